// Names in files that would harm a terminal or a log: every refusal shows them escaped.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/text.h"
#include "model/config.h"
#include "model/model.h"
#include "model/safetensors.h"
#include "tests/core/message_of.h"
#include "tests/model/stored_file.h"
#include "tests/model/temporary_folder.h"
#include "tests/model/tiny_model.h"

namespace tessera::testing {
namespace {

using nlohmann::json;

// Clears the screen, forges a line, reverses the direction of text, and is very long.
const std::string& hostile() {
  static const std::string text =
      "x\x1b[2J\x1b]0;title\a\r\ntessera: all is well\u202e" + std::string(100'000, 'A');
  return text;
}
// The same as a file name, which is shorter and not all UTF-8.
const std::string kHostileFile = "y\x1b[2J\r\ntessera: all is well\u202e\xff";

// No message holds a byte that is not printable, shows the whole of a long name, or is empty.
void expect_harmless(const std::string& what, const std::function<void()>& action) {
  const std::string message = message_of(action);
  EXPECT_FALSE(message.empty()) << what << " is not refused";
  EXPECT_LT(message.size(), 1500u) << what;
  for (const char c : message) {
    ASSERT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) << what << ": " << message;
  }
  EXPECT_EQ(message.find("\u202e"), std::string::npos) << what;
  EXPECT_EQ(message.find('\xff'), std::string::npos) << what;
}

std::string entry(const std::string& type, int64_t size, int64_t begin, int64_t end) {
  return json{{"dtype", type}, {"shape", {size}}, {"data_offsets", {begin, end}}}.dump();
}

std::string header_of(const std::string& name, const std::string& value) {
  return concat("{", json(name).dump(), ":", value, "}");
}

TEST(HostileNames, OfTensorsInAHeader) {
  const std::string twice = concat("{", json(hostile()).dump(), ":", entry("F32", 1, 0, 4), ",",
                                   json(hostile()).dump(), ":", entry("F32", 1, 4, 8), "}");
  const std::vector<std::pair<std::string, std::string>> headers = {
      {"a name twice", twice},
      {"no object", header_of(hostile(), "3")},
      {"an unknown type", header_of("t", entry(hostile(), 1, 0, 4))},
      {"an unknown field", header_of("t", json{{hostile(), 1}}.dump())},
      {"a field that is missing", header_of(hostile(), "{}")},
      {"bytes beyond the end", header_of(hostile(), entry("F32", 9, 0, 36))},
      {"a size that disagrees", header_of(hostile(), entry("F32", 9, 0, 8))},
      {"a gap", header_of(hostile(), entry("F32", 1, 4, 8))},
      {"metadata twice", concat(R"({"__metadata__":{)", json(hostile()).dump(), R"(:"",)",
                                json(hostile()).dump(), R"(:""}})")},
      {"no JSON", concat("{", hostile())}};
  for (const auto& [what, header] : headers) {
    const std::string file = stored_file(header, std::string(8, '\1'));
    expect_harmless(what, [&] { model::parse_safetensors(as_bytes_of(file), "a.safetensors"); });
  }
  const std::string file = stored_file(header_of(hostile(), entry("F64", 1, 0, 8)), "12345678");
  expect_harmless("a type that cannot be loaded", [&] {
    model::loadable_dtype(model::parse_safetensors(as_bytes_of(file), "a").front());
  });
}

TEST(HostileNames, OfTensorsThatAModelHasNoPlaceFor) {
  const TemporaryFolder folder;
  const model::ModelConfig config = tiny_config();
  std::vector<FileTensor> tensors = tiny_tensors(config);
  tensors.push_back({concat("model.", hostile()), {1}, {0}});
  folder.write("model.safetensors", stored_tensors(tensors));
  const model::Checkpoint checkpoint = model::Checkpoint::open(folder.path());
  expect_harmless("a tensor too many", [&] { model::load_model(checkpoint, config, {}); });
}

TEST(HostileNames, OfShardsAndTensorsInAnIndex) {
  const std::string one = stored_tensors({{"a", {1}, {1}}});
  const std::vector<std::pair<std::string, json>> maps = {
      {"a shard that is not there", {{"a", kHostileFile + "2"}}},
      {"a shard elsewhere", {{"a", concat("../", hostile())}}},
      {"a shard with NUL", {{"a", std::string("b\0c", 3) + hostile()}}},
      {"a tensor that no shard has", {{hostile(), kHostileFile}}},
      {"a value that is no name", {{hostile(), 3}}}};
  for (const auto& [what, map] : maps) {
    const TemporaryFolder folder;
    folder.write(kHostileFile, one);
    folder.write("model.safetensors.index.json",
                 json{{"weight_map", map}}.dump(-1, ' ', false, json::error_handler_t::ignore));
    expect_harmless(what, [&] { model::Checkpoint::open(folder.path()); });
  }
  const TemporaryFolder folder;
  folder.write("model.safetensors.index.json", concat("{\"", hostile(), "\""));
  expect_harmless("no JSON", [&] { model::Checkpoint::open(folder.path()); });
}

TEST(HostileNames, OfFilesInAFolder) {
  for (const std::string extension : {".safetensors", ".gguf", ".bin"}) {
    const TemporaryFolder folder;
    folder.write(kHostileFile + extension, "");
    expect_harmless(extension, [&] { model::Checkpoint::open(folder.path()); });
  }
}

TEST(HostileNames, OfTheFolderItself) {
  const TemporaryFolder outer;
  const std::filesystem::path folder = outer.path() / kHostileFile;
  expect_harmless("a folder that is not there", [&] { model::Checkpoint::open(folder); });
  expect_harmless("a config that is not there", [&] { model::load_config(folder); });
  std::filesystem::create_directories(folder);
  expect_harmless("an empty folder", [&] { model::Checkpoint::open(folder); });
  std::filesystem::create_directories(folder / "model.safetensors");
  expect_harmless("a folder for a file", [&] { model::Checkpoint::open(folder); });
  outer.write(std::filesystem::path(kHostileFile) / "config.json", "[");
  expect_harmless("a damaged config", [&] { model::load_config(folder); });
}

TEST(HostileNames, OfKeysAndValuesInAConfig) {
  const json good = {{"architectures", {"LlamaForCausalLM"}}, {"hidden_size", 64}};
  for (const char* key : {"architectures", "hidden_size", "hidden_act", "torch_dtype", "model_type",
                          "rope_scaling", "num_hidden_layers"}) {
    for (const json& value : {json(hostile()), json::array({hostile()}), json{{hostile(), 1}}}) {
      json config = good;
      config[key] = value;
      expect_harmless(key, [&] { model::parse_config(config.dump(), "config.json"); });
    }
  }
  expect_harmless("a key twice", [&] {
    const std::string key = json(hostile()).dump();
    model::parse_config(concat("{", key, ":1,", key, ":2}"), "c");
  });
}

// The JSON parser treats NUL as the end of the text and would ignore the rest.
TEST(BytesAfterNul, AreRefusedInEveryJsonFile) {
  const std::string tail("\0{}", 3);
  const auto expect_nul = [](const std::function<void()>& action) {
    const std::string message = message_of(action);
    EXPECT_NE(message.find("is NUL"), std::string::npos) << message;
  };
  expect_nul([&] { model::parse_config("{}" + tail, "config.json"); });
  const std::string file = stored_file("{}" + tail);
  expect_nul([&] { model::parse_safetensors(as_bytes_of(file), "a.safetensors"); });
  const TemporaryFolder folder;
  folder.write("model.safetensors.index.json", R"({"weight_map":{}})" + tail);
  expect_nul([&] { model::Checkpoint::open(folder.path()); });
}

}  // namespace
}  // namespace tessera::testing
