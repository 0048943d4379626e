// Checkpoints of bitsandbytes: NF4 weights become the values that tables and largest values say.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/core/message_of.h"
#include "tests/model/formats/small_llama.h"

namespace tessera::testing {
namespace {

constexpr const char* kConfig =
    R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4"})";
constexpr int64_t kBlock = 64, kNestedBlock = 16;
constexpr float kOffset = 0.03125f;

// Adds a layer, and returns its values.
std::vector<float> add_nf4(std::vector<RawTensor>& file, const std::string& layer, int64_t n,
                           int64_t k, bool is_nested, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> table, nested_table, absmax, values;
  for (int i = 0; i < 16; ++i) table.push_back(static_cast<float>(i * i - 100) / 128.0f);
  for (int i = 0; i < 256; ++i) nested_table.push_back(static_cast<float>(i) / 256.0f);
  const int64_t num_blocks = n * k / kBlock;
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
    values.push_back(table[byte >> 4] * absmax[static_cast<size_t>(i / kBlock)]);
    values.push_back(table[byte & 15] * absmax[static_cast<size_t>((i + 1) / kBlock)]);
  }
  nlohmann::json state = {{"quant_type", "nf4"}, {"blocksize", kBlock}, {"shape", {n, k}}};
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

// Writes a checkpoint and returns the values of down_proj of the first layer.
std::vector<float> write_model(const TemporaryFolder& folder, bool is_nested) {
  const auto dry = make_dry_model(model::parse_config(config_json(""), "test"), {});
  std::vector<RawTensor> file;
  std::vector<float> down;
  uint32_t seed = 7;
  for (const model::TensorSpec& spec : dry->weights().specs()) {
    std::vector<int64_t> shape = {spec.num_rows};
    if (!spec.is_vector) shape.push_back(spec.num_cols);
    if (!is_linear(spec.name)) {
      file.push_back(values_of(spec.name, shape, ++seed));
      continue;
    }
    const std::string layer = spec.name.substr(0, spec.name.size() - 7);
    const auto values = add_nf4(file, layer, spec.num_rows, spec.num_cols, is_nested, ++seed);
    if (layer == "model.layers.0.mlp.down_proj") down = values;
  }
  folder.write("model.safetensors", raw_file(file));
  folder.write("config.json", config_json(kConfig));
  return down;
}

TEST(Nf4Checkpoint, HasTheValuesOfItsTables) {
  for (const bool is_nested : {false, true}) {
    const TemporaryFolder folder;
    const std::vector<float> want = write_model(folder, is_nested);
    const auto loaded = load(folder, {.dtype = DType::f32});
    const TensorView got = loaded->weights().find("model.layers.0.mlp.down_proj.weight").values;
    ASSERT_EQ(got.num_elements(), std::ssize(want));
    for (size_t i = 0; i < want.size(); ++i) {
      // A compiler may fuse the product and the offset of nested values: one rounding apart.
      ASSERT_NEAR(got.as<float>()[i], want[i], is_nested ? 1e-8f : 0.0f) << i;
    }
    EXPECT_EQ(loaded->weights().kept()[0].as.substr(0, 25), "f32, dequantised from nf4");
  }
}

TEST(Nf4Checkpoint, IsRefusedWithoutItsState) {
  const TemporaryFolder folder;
  write_model(folder, true);
  std::string config = config_json(kConfig);
  config.replace(config.find("\"intermediate_size\": 256"), 24, "\"intermediate_size\": 512");
  folder.write("config.json", config);
  const std::string message = message_of([&] { load(folder, {}); });
  EXPECT_NE(message.find("quant_state.bitsandbytes__nf4' says shape"), std::string::npos)
      << message;
}

}  // namespace
}  // namespace tessera::testing
