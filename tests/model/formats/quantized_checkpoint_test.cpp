// Checkpoints in every quantised format: each weight is bit for bit what its codes say, and logits
// are those of the same weights stored as values.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "model/formats/stored_format.h"
#include "model/model.h"
#include "tests/core/message_of.h"
#include "tests/model/formats/loaded_element.h"
#include "tests/model/formats/twins.h"
#include "tests/model/runner.h"

namespace tessera::testing {
namespace {

using model::Checkpoint;
using model::LoadOptions;
using model::ModelConfig;
using model::WeightFormat;

// The layers that a weight of the model is made of, and where their rows are in it.
void expect_exact(const model::Model& loaded, const Twins& twins) {
  for (const auto& [layer, w] : twins.weights) {
    const size_t dot = layer.rfind('.');
    const std::string scope = layer.substr(0, dot), part = layer.substr(dot + 1);
    std::string name = layer;
    int64_t first = 0;
    if (part == "q_proj" || part == "k_proj" || part == "v_proj") {
      name = scope + ".qkv";
      first = part == "q_proj" ? 0 : part == "k_proj" ? 128 : 192;
    }
    const bool is_gate = part == "gate_proj", is_pair = is_gate || part == "up_proj";
    if (is_pair) name = scope + ".gate_up";
    const model::LinearWeight& weight = loaded.weights().find(name + ".weight");
    // Gate and up are interleaved, unless that would break up blocks of rows.
    const bool is_interleaved = is_pair && weight.rows_per_scale == 1;
    if (is_pair && !is_gate) first = w.n;
    for (int64_t row = 0; row < w.n; ++row) {
      const int64_t at = is_interleaved ? row / 8 * 16 + (is_gate ? 0 : 8) + row % 8 : first + row;
      for (int64_t col = 0; col < w.k; ++col) {
        ASSERT_EQ(element(weight, at, col), w.value(row, col))
            << layer << " [" << row << ", " << col << "]";
      }
    }
  }
}

std::vector<float> logits_of(std::unique_ptr<model::Model> loaded) {
  dist::LocalCommunicator local;
  Runner runner(std::move(loaded), local);
  Sequence sequence;
  std::vector<int32_t> tokens;
  for (int i = 0; i < 19; ++i) tokens.push_back(i * 37 % 128);
  const std::vector<Chunk> chunks = {{&sequence, tokens, true}};
  const TensorView logits = runner.step(chunks);
  return {logits.as<float>(), logits.as<float>() + logits.num_elements()};
}

// Each product is within k * 2^-22 of the sum of magnitudes (gemm.h), on either side. With k <=
// 256, fewer than 16 products in a row, and sums at most 32 times their result, logits differ by
// less than 2 * 16 * 32 * 256 * 2^-22 = 1/16 of the largest; a scale or a column out of place
// changes them by about as much as they are.
void expect_close(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  float largest = 0, worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::fabs(want[i]));
    worst = std::max(worst, std::fabs(got[i] - want[i]));
  }
  EXPECT_LE(worst, largest / 16) << "largest " << largest;
  EXPECT_GT(largest, 0.1f);
}

class EveryFormat : public ::testing::TestWithParam<Format> {};

TEST_P(EveryFormat, KeepsItsCodesAndGivesTheLogitsOfItsValues) {
  Twins twins;
  write_twins(twins, GetParam());
  auto stored =
      load(twins.quantised, {.dtype = DType::f32, .activations = ActivationFormat::plain});
  expect_exact(*stored, twins);
  // Only codes: a quarter of f32, at most, and scales.
  const auto dense = load(twins.dense, {.dtype = DType::f32});
  EXPECT_LT(stored->weight_bytes(), dense->weight_bytes() / 2);
  for (const model::KeptWeights& kept : stored->weights().kept()) {
    EXPECT_TRUE(kept.as == "f32" || kept.as.find("dequantised") == std::string::npos) << kept.as;
  }
  const std::vector<float> want = logits_of(load(twins.dense, {.dtype = DType::f32}));
  expect_close(logits_of(std::move(stored)), want);
  // As values they are the same bits, and so are the logits.
  auto plain = load(twins.quantised, {.dtype = DType::f32, .format = WeightFormat::plain});
  expect_exact(*plain, twins);
  EXPECT_EQ(logits_of(std::move(plain)), want);
}

INSTANTIATE_TEST_SUITE_P(Quantised, EveryFormat, ::testing::ValuesIn(formats()),
                         [](const auto& info) { return info.param.name; });

// load_config finds the type of each layer's scales in the headers of the files.
TEST(QuantizedCheckpoint, SaysWhatTypeItsScalesHave) {
  const auto scale_of = [](const ModelConfig& config, const std::string& layer) {
    return form_of(config.formats->of("model.layers.1." + layer), 256)->scale;
  };
  for (const char* name : {"GptqSymmetric", "GptqVersion2", "Awq", "W4A16"}) {
    Twins twins;
    write_twins(twins, format_named(name));
    const ModelConfig config = model::load_config(twins.quantised.path());
    EXPECT_EQ(scale_of(config, "mlp.down_proj"), DType::f16) << name;
    EXPECT_EQ(scale_of(config, "self_attn.q_proj"), DType::f16) << name;
  }
  Twins twins;
  write_twins(twins, format_named("W4A16"), "", [](std::vector<RawTensor>& tensors) {
    const std::string layer = "model.layers.1.self_attn.";
    RawTensor& query = tensor_of(tensors, layer + "q_proj.weight_scale");
    query.type = "BF16";  // the same bits stand for other numbers
    RawTensor& key = tensor_of(tensors, layer + "k_proj.weight_scale");
    key.type = "F32";
    key.bytes += key.bytes;
  });
  const ModelConfig config = model::load_config(twins.quantised.path());
  EXPECT_EQ(scale_of(config, "self_attn.q_proj"), DType::bf16);
  EXPECT_EQ(scale_of(config, "self_attn.k_proj"), DType::f32);
  EXPECT_EQ(scale_of(config, "self_attn.v_proj"), DType::f16);
  EXPECT_EQ(config.formats->of("lm_head").storage, model::Storage::values);
  // Once loaded on the CPU, all scales are f32.
  const auto loaded = load(twins.quantised, {.dtype = DType::f32});
  EXPECT_EQ(loaded->weights().find("model.layers.1.mlp.down_proj.weight").scale.dtype, DType::f32);
}

// A layer of a joined product that is stored as values makes the whole product values.
TEST(QuantizedCheckpoint, MayHaveLayersThatAreValues) {
  Format format = format_named("Awq");
  format.config = R"({"quant_method": "awq", "bits": 4, "group_size": 32,
      "modules_to_not_convert": ["v_proj"]})";
  Twins twins;
  write_twins(twins, format, "v_proj");
  auto loaded = load(twins.quantised, {.dtype = DType::f32});
  EXPECT_EQ(loaded->weights().find("model.layers.0.self_attn.qkv.weight").values.dtype, DType::f32);
  EXPECT_EQ(loaded->weights().find("model.layers.0.mlp.down_proj.weight").values.dtype, DType::i4);
  expect_exact(*loaded, twins);
  EXPECT_NE(loaded->weights().kept()[0].as.find("dequantised from awq, 4 bits"), std::string::npos);
  expect_close(logits_of(std::move(loaded)), logits_of(load(twins.dense, {.dtype = DType::f32})));
}

TEST(QuantizedCheckpoint, MayBeQuantisedAnew) {
  Twins twins;
  write_twins(twins, format_named("Fp8Channel"));
  const auto loaded = load(twins.quantised, {.dtype = DType::bf16, .format = WeightFormat::int8});
  EXPECT_EQ(loaded->weights().find("model.layers.0.self_attn.qkv.weight").values.dtype, DType::i8);
}

// Codes are chosen with the rounded scales, so they are the nearest ones for them. Only the first
// and the last code may be further off: where rounding made the scale smaller, values beyond them
// are cut off, by at most 15 times half a unit in the last place of bf16.
TEST(QuantizedCheckpoint, RoundsScalesOfInt4ToBf16BeforeItChoosesCodes) {
  Twins twins;
  write_twins(twins, format_named("Int8"));
  const auto plain = load(twins.dense, {.dtype = DType::f32});
  const auto int4 =
      load(twins.dense, {.dtype = DType::bf16, .format = WeightFormat::int4, .weight_group = 32});
  for (const std::string layer : {"self_attn.qkv", "mlp.gate_up", "mlp.down_proj"}) {
    const std::string name = "model.layers.1." + layer + ".weight";
    const model::LinearWeight& want = plain->weights().find(name);
    const model::LinearWeight& got = int4->weights().find(name);
    ASSERT_EQ(got.scale.dtype, DType::f32);
    const int64_t groups = got.scale.size(1);
    for (int64_t row = 0; row < want.values.size(0); ++row) {
      for (int64_t col = 0; col < want.values.size(1); ++col) {
        const float scale = got.scale.as<float>()[row * groups + col / 32];
        ASSERT_EQ(scale, to_float(from_float<Bf16>(scale))) << name;
        const int code = read_element<I4x2>(got.values.data, row * got.values.size(1) + col) & 15;
        const bool is_inner = code > 0 && code < 15;
        ASSERT_LE(std::fabs(element(got, row, col) - element(want, row, col)),
                  (0.5001f + (is_inner ? 0 : 15 * 0x1p-9f)) * scale)
            << name << " [" << row << ", " << col << "]";
      }
    }
  }
}

class RanksOf : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Quantised, RanksOf, ::testing::Values("W4A16", "Mxfp4"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(RanksOf, ACheckpointReadTheirShare) {
  Twins twins;
  write_twins(twins, format_named(GetParam()));
  const auto whole = load(twins.quantised, {.dtype = DType::f32});
  const std::string down = "model.layers.1.mlp.down_proj";
  const ModelConfig config = model::load_config(twins.quantised.path());
  ModelConfig shared = config;
  for (const int rank : {0, 1}) {
    // One KV head cannot be shared, so this looks at the weights that can.
    model::Weights dry(
        {.dtype = DType::f32, .rank = rank, .num_ranks = 2, .formats = config.formats});
    const auto names = make_dry_model(config, {})->weights().specs();
    const Checkpoint checkpoint = Checkpoint::open(twins.quantised.path());
    const auto source = make_stored_source(checkpoint, config, names);
    model::Slice slice{.spec = {.name = down + ".weight", .num_rows = 128, .num_cols = 256},
                       .num_rows = 128,
                       .col = 128 * rank,
                       .num_cols = 128};
    dry.linear("down", {slice});
    model::Weights part(dry.options(), *source, dry);
    const model::LinearWeight weight = part.linear("down", {slice});
    EXPECT_EQ(weight.values.dtype, DType::i4);
    const Quantized& w = twins.weights.at(down);
    for (int64_t row = 0; row < 128; ++row) {
      for (int64_t col = 0; col < 128; ++col) {
        ASSERT_EQ(element(weight, row, col), w.value(row, 128 * rank + col));
      }
    }
  }
}

}  // namespace
}  // namespace tessera::testing
