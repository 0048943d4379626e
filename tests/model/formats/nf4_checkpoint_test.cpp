// Checkpoints of bitsandbytes: NF4 weights keep their codes, and stand for the values that tables
// and largest values say.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/core/message_of.h"
#include "tests/model/formats/loaded_element.h"
#include "tests/model/formats/small_llama.h"

namespace tessera::testing {
namespace {

constexpr const char* kConfig =
    R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4"})";
constexpr int64_t kBlock = 64, kNestedBlock = 16;
constexpr float kOffset = 0.03125f;

struct Kind {
  bool is_nested = false;
  int64_t block = kBlock;
  int64_t inter = 256;  // rows of gate and up, and columns of down
};

// Adds a layer, and returns its values.
std::vector<float> add_nf4(std::vector<RawTensor>& file, const std::string& layer, int64_t n,
                           int64_t k, const Kind& kind, uint32_t seed) {
  const int64_t block = kind.block;
  const bool is_nested = kind.is_nested;
  std::mt19937 random(seed);
  std::vector<float> table, nested_table, absmax, values;
  for (int i = 0; i < 16; ++i) table.push_back(static_cast<float>(i * i - 100) / 128.0f);
  for (int i = 0; i < 256; ++i) nested_table.push_back(static_cast<float>(i) / 256.0f);
  const int64_t num_blocks = (n * k + block - 1) / block;
  std::vector<uint8_t> codes;
  std::vector<float> nested;
  for (int64_t i = 0; i < num_blocks; ++i) {
    if (i % kNestedBlock == 0) nested.push_back(static_cast<float>(1 + random() % 7) / 64.0f);
    codes.push_back(static_cast<uint8_t>(random() % 256));
    absmax.push_back(is_nested ? nested_table[codes.back()] * nested.back() + kOffset
                               : static_cast<float>(1 + random() % 15) / 256.0f);
  }
  std::vector<uint8_t> bytes;
  for (int64_t i = 0; i < n * k; i += 2) {
    const auto byte = static_cast<uint8_t>(random() % 256);
    bytes.push_back(byte);
    values.push_back(table[byte >> 4] * absmax[static_cast<size_t>(i / block)]);
    values.push_back(table[byte & 15] * absmax[static_cast<size_t>((i + 1) / block)]);
  }
  nlohmann::json state = {{"quant_type", "nf4"}, {"blocksize", block}, {"shape", {n, k}}};
  file.push_back(raw(layer + ".weight", "U8", {n * k / 2, 1}, bytes));
  file.push_back(raw(layer + ".weight.quant_map", "F32", {16}, table));
  if (is_nested) {
    state["nested_blocksize"] = kNestedBlock;
    state["nested_offset"] = kOffset;
    file.push_back(raw(layer + ".weight.absmax", "U8", {num_blocks}, codes));
    file.push_back(raw(layer + ".weight.nested_quant_map", "F32", {256}, nested_table));
    file.push_back(raw(layer + ".weight.nested_absmax", "F32", {std::ssize(nested)}, nested));
  } else {
    file.push_back(raw(layer + ".weight.absmax", "F32", {num_blocks}, absmax));
  }
  const std::string text = state.dump();
  file.push_back({layer + ".weight.quant_state.bitsandbytes__nf4", "U8", {std::ssize(text)}, text});
  return values;
}

std::string config_of(const Kind& kind) {
  std::string config = config_json(kConfig);
  const std::string inter = "\"intermediate_size\": 256";
  config.replace(config.find(inter), inter.size(),
                 "\"intermediate_size\": " + std::to_string(kind.inter));
  return config;
}

using Values = std::map<std::string, std::vector<float>>;

// Writes a checkpoint and returns the values of its layers. `change` may spoil the file.
Values write_model(const TemporaryFolder& folder, const Kind& kind,
                   const std::function<void(std::vector<RawTensor>&)>& change = {}) {
  const auto dry = make_dry_model(model::parse_config(config_of(kind), "test"), {});
  std::vector<RawTensor> file;
  Values values;
  uint32_t seed = 7;
  for (const model::TensorSpec& spec : dry->weights().specs()) {
    std::vector<int64_t> shape = {spec.num_rows};
    if (!spec.is_vector) shape.push_back(spec.num_cols);
    if (!is_linear(spec.name)) {
      file.push_back(values_of(spec.name, shape, ++seed));
      continue;
    }
    const std::string layer = spec.name.substr(0, spec.name.size() - 7);
    values[layer] = add_nf4(file, layer, spec.num_rows, spec.num_cols, kind, ++seed);
  }
  if (change) change(file);
  folder.write("model.safetensors", raw_file(file));
  folder.write("config.json", config_of(kind));
  return values;
}

// Rows of `layer` from `first` on in a loaded weight. A compiler may fuse the product and the
// offset of nested values: one rounding apart.
void expect_values(const model::LinearWeight& weight, const std::vector<float>& want, int64_t first,
                   float tolerance) {
  const int64_t k = weight.values.size(1);
  for (size_t i = 0; i < want.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / k, col = static_cast<int64_t>(i) % k;
    ASSERT_NEAR(element(weight, first + row, col), want[i], tolerance) << row << ", " << col;
  }
}

constexpr const char* kDownLayer = "model.layers.0.mlp.down_proj";
constexpr const char* kKeyLayer = "model.layers.1.self_attn.k_proj";

TEST(Nf4Checkpoint, KeepsItsCodesAndTable) {
  for (const Kind kind : {Kind{}, Kind{.is_nested = true}, Kind{.block = 128},
                          Kind{.is_nested = true, .block = 256}}) {
    SCOPED_TRACE(::testing::Message() << kind.is_nested << " " << kind.block);
    const TemporaryFolder folder;
    const Values want = write_model(folder, kind);
    const auto loaded = load(folder, {.dtype = DType::f32});
    const float tolerance = kind.is_nested ? 1e-8f : 0.0f;
    const model::LinearWeight& down = loaded->weights().find(std::string(kDownLayer) + ".weight");
    EXPECT_EQ(down.values.dtype, DType::i4);
    EXPECT_EQ(down.scale.size(1), 256 / 64);
    expect_values(down, want.at(kDownLayer), 0, tolerance);
    // Keys are rows 128 to 191 of queries, keys and values.
    expect_values(loaded->weights().find("model.layers.1.self_attn.qkv.weight"), want.at(kKeyLayer),
                  128, tolerance);
    EXPECT_EQ(loaded->weights().kept()[0].as, "i4 of a table, groups of 64");
  }
}

TEST(Nf4Checkpoint, HasTheValuesOfItsTables) {
  for (const bool is_nested : {false, true}) {
    const TemporaryFolder folder;
    const Values want = write_model(folder, {.is_nested = is_nested});
    const auto loaded = load(folder, {.dtype = DType::f32, .format = model::WeightFormat::plain});
    const model::LinearWeight& down = loaded->weights().find(std::string(kDownLayer) + ".weight");
    EXPECT_EQ(down.values.dtype, DType::f32);
    expect_values(down, want.at(kDownLayer), 0, is_nested ? 1e-8f : 0.0f);
    EXPECT_EQ(loaded->weights().kept()[0].as.substr(0, 25), "f32, dequantised from nf4");
  }
}

// Blocks that reach from one row into the next have no scales by row.
TEST(Nf4Checkpoint, BecomesValuesWhereBlocksReachIntoTheNextRow) {
  const TemporaryFolder folder;
  const Values want = write_model(folder, {.inter = 224});
  const auto loaded = load(folder, {.dtype = DType::f32});
  const model::LinearWeight& down = loaded->weights().find(std::string(kDownLayer) + ".weight");
  EXPECT_EQ(down.values.dtype, DType::f32);
  expect_values(down, want.at(kDownLayer), 0, 0.0f);
  EXPECT_EQ(loaded->weights().find("model.layers.0.mlp.gate_up.weight").values.dtype, DType::i4);
}

std::string refusal(const Kind& kind, const std::function<void(std::vector<RawTensor>&)>& change) {
  const TemporaryFolder folder;
  write_model(folder, kind, change);
  return message_of([&] { load(folder, {.dtype = DType::f32}); });
}

TEST(Nf4Checkpoint, IsRefusedInBlocksThatAreSmallerThanItsGroups) {
  const std::string message = refusal({.block = 32}, {});
  EXPECT_NE(message.find("nf4' says blocksize 32; codes are kept in groups of 64"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("weights 'plain'"), std::string::npos) << message;
  const TemporaryFolder folder;
  const Values want = write_model(folder, {.block = 32});
  const auto plain = load(folder, {.dtype = DType::f32, .format = model::WeightFormat::plain});
  expect_values(plain->weights().find(std::string(kDownLayer) + ".weight"), want.at(kDownLayer), 0,
                0.0f);
}

TEST(Nf4Checkpoint, IsRefusedWithATableThatIsNotFiniteOrNotThatOfTheLayersBeside) {
  const std::string name = std::string(kKeyLayer) + ".weight.quant_map";
  const auto set = [&](float value) {
    return [=](std::vector<RawTensor>& file) {
      std::memcpy(tensor_of(file, name).bytes.data() + 4 * 3, &value, 4);
    };
  };
  std::string message = refusal({}, set(INFINITY));
  EXPECT_NE(message.find("k_proj.weight.quant_map' holds inf at [3]"), std::string::npos)
      << message;
  message = refusal({}, set(0.25f));
  EXPECT_NE(message.find("the tables of 'model.layers.1.self_attn.q_proj.weight' and '" +
                         std::string(kKeyLayer) + ".weight' differ"),
            std::string::npos)
      << message;
}

TEST(Nf4Checkpoint, IsRefusedWithoutItsState) {
  const TemporaryFolder folder;
  write_model(folder, {.is_nested = true});
  folder.write("config.json", config_of({.inter = 512}));
  const std::string message = message_of([&] { load(folder, {}); });
  EXPECT_NE(message.find("quant_state.bitsandbytes__nf4' says shape"), std::string::npos)
      << message;
}

}  // namespace
}  // namespace tessera::testing
