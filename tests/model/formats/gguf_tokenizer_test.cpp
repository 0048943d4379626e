// Tokenizers out of GGUF metadata encode as the tokenizer.json that they were made from.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/gguf/gguf_model.h"
#include "tessera/text/tokenizer.h"

namespace tessera::testing {
namespace {

using nlohmann::json;

const std::string kData = TESSERA_SOURCE_DIR "/tests/text/tokenizer/data/";

json read_json(const std::string& name) {
  std::ifstream file(kData + name);
  return json::parse(file);
}

// The header of a GGUF file without tensors.
class Header {
 public:
  void text(const std::string& key, const std::string& value) {
    begin(key, 8);
    add_text(value);
  }
  void flag(const std::string& key, bool value) {
    begin(key, 7);
    bytes_ += static_cast<char>(value);
  }
  void texts(const std::string& key, const std::vector<std::string>& values) {
    begin_array(key, 8, values.size());
    for (const std::string& value : values) add_text(value);
  }
  template <class T>
  void numbers(const std::string& key, uint32_t type, const std::vector<T>& values) {
    begin_array(key, type, values.size());
    for (const T value : values) add(value);
  }
  std::string file() const {
    std::string whole = "GGUF";
    const uint32_t version = 3;
    const uint64_t counts[2] = {0, num_keys_};
    whole.append(reinterpret_cast<const char*>(&version), sizeof(version));
    whole.append(reinterpret_cast<const char*>(counts), sizeof(counts));
    return whole + bytes_;
  }

 private:
  template <class T>
  void add(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void add_text(const std::string& text) {
    add(static_cast<uint64_t>(text.size()));
    bytes_ += text;
  }
  void begin(const std::string& key, uint32_t type) {
    ++num_keys_;
    add_text(key);
    add(type);
  }
  void begin_array(const std::string& key, uint32_t type, size_t count) {
    begin(key, 9);
    add(type);
    add(static_cast<uint64_t>(count));
  }

  std::string bytes_;
  uint64_t num_keys_ = 0;
};

// What a converter makes of a tokenizer.json.
Tokenizer by_gguf(const json& file, const std::string& kind, const std::string& words) {
  std::map<int64_t, std::string> tokens;
  for (const auto& [token, id] : file["model"]["vocab"].items()) tokens[id] = token;
  std::map<int64_t, int32_t> types;
  for (const json& added : file["added_tokens"]) {
    const int64_t id = added["id"];
    tokens[id] = added["content"];
    types[id] = added["content"] == "<unk>" ? 2 : added["special"].get<bool>() ? 3 : 4;
  }
  std::map<std::string, float> scores;
  std::vector<std::string> merges;
  for (const json& merge : file["model"]["merges"]) {
    const std::string text = merge.is_string()
                                 ? merge.get<std::string>()
                                 : merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    std::string joined = text;
    joined.erase(joined.find(' '), 1);
    scores.emplace(joined, -static_cast<float>(merges.size()));
    merges.push_back(text);
  }
  std::vector<std::string> all;
  std::vector<int32_t> all_types;
  std::vector<float> all_scores;
  for (const auto& [id, token] : tokens) {
    EXPECT_EQ(id, std::ssize(all)) << "ids have no gaps";
    all.push_back(token);
    all_types.push_back(types.contains(id) ? types[id] : 1);
    all_scores.push_back(scores.contains(token) ? scores[token] : -1e6f);
  }
  Header header;
  header.text("tokenizer.ggml.model", kind);
  if (!words.empty()) header.text("tokenizer.ggml.pre", words);
  header.texts("tokenizer.ggml.tokens", all);
  header.numbers("tokenizer.ggml.token_type", 5, all_types);
  header.numbers("tokenizer.ggml.scores", 6, all_scores);
  header.texts("tokenizer.ggml.merges", merges);
  header.flag("tokenizer.ggml.add_bos_token", false);
  const std::string bytes = header.file();
  const auto gguf = model::GgufFile::parse(std::as_bytes(std::span(bytes)), "test");
  return Tokenizer::parse(model::gguf_tokenizer_json(gguf), "test");
}

// Whether a text holds an added token that strips spaces or matches whole words: GGUF cannot say
// so.
bool has_fussy_token(const json& file, const std::string& text) {
  for (const json& added : file["added_tokens"]) {
    const bool is_fussy = added["single_word"].get<bool>() || added["lstrip"].get<bool>() ||
                          added["rstrip"].get<bool>();
    if (is_fussy && text.find(added["content"].get<std::string>()) != std::string::npos) {
      return true;
    }
  }
  return false;
}

void expect_same(const std::string& name, const std::string& kind, const std::string& words) {
  const json file = read_json(name + ".json");
  const Tokenizer made = by_gguf(file, kind, words);
  size_t num_texts = 0;
  for (const json& set : read_json("vectors.json")) {
    if (set["tokenizer"] != name) continue;
    for (const json& vector : set["vectors"]) {
      const std::string text = vector["text"];
      if (has_fussy_token(file, text)) continue;
      const std::vector<int32_t> want = vector["plain"];
      EXPECT_EQ(made.encode(text), want) << text;
      ++num_texts;
    }
  }
  EXPECT_GT(num_texts, 20u);
}

TEST(GgufTokenizer, Gpt2) { expect_same("gpt2", "gpt2", "gpt-2"); }

TEST(GgufTokenizer, Qwen2) { expect_same("qwen2", "gpt2", "qwen2"); }

TEST(GgufTokenizer, SentencePiece) { expect_same("llama2", "llama", ""); }

}  // namespace
}  // namespace tessera::testing
