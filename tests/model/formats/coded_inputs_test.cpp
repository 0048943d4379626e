// Linear layers that take codes: which do, by options and checkpoint; and that their model computes
// what the same model of values does with inputs rounded to those codes.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "model/model.h"
#include "tessera/ops/quantize.h"
#include "tests/core/message_of.h"
#include "tests/model/formats/twins.h"
#include "tests/model/runner.h"

namespace tessera::testing {
namespace {

using model::LoadOptions;
using model::WeightFormat;

constexpr const char* kInt8Inputs = R"("num_bits": 8, "type": "int", "strategy": "token",
                                       "dynamic": true)";

// Rounds what products read to codes and back, by the quantisers' own observer.
class RoundedInputs final : public ProductInputs {
 public:
  RoundedInputs(DType codes, int64_t group) : codes_(codes), group_(group) {}

  TensorView see(const TensorView& a, const TensorView&) override {
    const int64_t rows = a.size(0), cols = a.size(1);
    const Tensor codes(codes_, {rows, cols});
    const Tensor scale(DType::f32, {rows, group_ > 0 ? cols / group_ : 1});
    quantize({.x = a, .out = codes, .scale = scale});
    kept_.push_back(Tensor(a.dtype, {rows, cols}));
    dequantize({.x = codes, .scale = scale, .out = kept_.back()});
    return kept_.back();
  }

 private:
  DType codes_;
  int64_t group_;
  std::vector<Tensor> kept_;
};

std::vector<Chunk> chunks_of(std::vector<Sequence>& sequences, int count) {
  std::vector<Chunk> chunks;
  for (size_t s = 0; s < sequences.size(); ++s) {
    std::vector<int32_t> tokens;
    for (int i = 0; i < count + static_cast<int>(s); ++i) {
      tokens.push_back((i * 37 + 11 * static_cast<int>(s)) % 128);
    }
    chunks.push_back({&sequences[s], tokens, true});
  }
  return chunks;
}

std::vector<float> logits_seen(std::unique_ptr<model::Model> loaded,
                               ProductInputs* inputs = nullptr) {
  dist::LocalCommunicator local;
  Runner runner(std::move(loaded), local);
  runner.context().product_inputs = inputs;
  std::vector<Sequence> one(1);
  const TensorView logits = runner.step(chunks_of(one, 19));
  return {logits.as<float>(), logits.as<float>() + logits.num_elements()};
}

float difference(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = 0, worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::fabs(b[i]));
    worst = std::max(worst, std::fabs(a[i] - b[i]));
  }
  return worst / largest;
}

class EveryCodedFormat : public ::testing::TestWithParam<WeightFormat> {};

// In f32 the codes of both are those of the same numbers but for sums that round differently, which
// may move single codes by one: far less than rounding all inputs does.
TEST_P(EveryCodedFormat, ComputesWhatRoundedInputsGive) {
  Twins twins;
  write_twins(twins, format_named("Int8"));
  const LoadOptions plain{
      .dtype = DType::f32, .format = GetParam(), .activations = ActivationFormat::plain};
  LoadOptions coded = plain;
  coded.activations = ActivationFormat::codes;
  auto loaded = load(twins.dense, coded);
  const model::InputForm form =
      loaded->weights().find("model.layers.0.self_attn.qkv.weight").inputs;
  ASSERT_TRUE(form.codes.has_value());
  EXPECT_EQ(form.group, GetParam() == WeightFormat::fp8_block ? 128 : 0);
  RoundedInputs rounded(*form.codes, form.group);
  const std::vector<float> want = logits_seen(load(twins.dense, plain), &rounded);
  const float unrounded = difference(logits_seen(load(twins.dense, plain)), want);
  const float got = difference(logits_seen(std::move(loaded)), want);
  EXPECT_LT(got, unrounded / 8);
  EXPECT_GT(unrounded, 1e-3f);
}

// A token's logits are the same bits alone and beside others.
TEST_P(EveryCodedFormat, GivesARowTheSameBitsInEveryBatch) {
  Twins twins;
  write_twins(twins, format_named("Int8"));
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const LoadOptions options{
        .dtype = dtype, .format = GetParam(), .activations = ActivationFormat::codes};
    dist::LocalCommunicator local;
    Runner together(load(twins.dense, options), local), alone(load(twins.dense, options), local);
    std::vector<Sequence> many(3), single(3);
    const std::vector<Chunk> chunks = chunks_of(many, 7);
    const TensorView all = together.step(chunks);
    int64_t row = 0;
    std::vector<Chunk> ones = chunks_of(single, 7);
    for (const Chunk& chunk : ones) {
      const TensorView some = alone.step({&chunk, 1});
      for (int64_t i = 0; i < some.size(0); ++i) EXPECT_EQ(row_of(some, i), row_of(all, row++));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(CodedInputs, EveryCodedFormat,
                         ::testing::Values(WeightFormat::int8, WeightFormat::fp8,
                                           WeightFormat::fp8_block),
                         [](const auto& info) { return std::string(name(info.param)); });

// The scheme of a format with input_activations.
Format with_inputs(const std::string& name, const std::string& inputs) {
  Format format = format_named(name);
  const size_t at = format.config.rfind("}}}");
  format.config.insert(at, R"(, "input_activations": {)" + inputs + "}");
  return format;
}

model::InputForm inputs_of(const Twins& twins, const LoadOptions& options) {
  return load(twins.quantised, options)
      ->weights()
      .find("model.layers.0.self_attn.qkv.weight")
      .inputs;
}

TEST(CodedInputs, AreTakenWhereTheCheckpointAsksForThem) {
  struct Case {
    std::string format, inputs;
    std::optional<DType> codes;
    int64_t group = 0;
  };
  const std::vector<Case> cases = {
      {"Int8", kInt8Inputs, DType::i8},
      {"Fp8Channel", R"("num_bits": 8, "type": "float", "dynamic": true)", DType::e4m3},
      {"Fp8Tensor", R"("num_bits": 8, "type": "float", "dynamic": true)", DType::e4m3},
      {"W4A16", kInt8Inputs, std::nullopt},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.format);
    Twins twins;
    write_twins(twins, with_inputs(one.format, one.inputs));
    const model::InputForm form = inputs_of(twins, {.dtype = DType::f32});
    EXPECT_EQ(form.codes, one.codes);
    EXPECT_EQ(form.static_scale.rank, 0);
    const LoadOptions plain{.dtype = DType::f32, .activations = ActivationFormat::plain};
    EXPECT_EQ(inputs_of(twins, plain).codes, std::nullopt);
  }
  Twins blocks;
  write_twins(blocks, format_named("Fp8Block"));
  const model::InputForm form = inputs_of(blocks, {.dtype = DType::bf16});
  EXPECT_EQ(form.codes, DType::e4m3);
  EXPECT_EQ(form.group, 128);
}

// On the CPU both products exist: without a word from the checkpoint inputs stay values.
TEST(CodedInputs, AreValuesByDefaultWhereTheDeviceTakesThem) {
  Twins twins;
  write_twins(twins, format_named("Int8"));
  EXPECT_EQ(inputs_of(twins, {.dtype = DType::f32}).codes, std::nullopt);
  EXPECT_EQ(inputs_of(twins, {.dtype = DType::f32, .format = WeightFormat::fp8}).codes,
            std::nullopt);
  EXPECT_EQ(inputs_of(twins, {.dtype = DType::f32, .activations = ActivationFormat::codes}).codes,
            DType::i8);
}

Format static_format() {
  return with_inputs("Fp8Channel", R"("num_bits": 8, "type": "float", "dynamic": false,
                                      "strategy": "tensor")");
}
// Layers q, k and v have different scales; all others the same.
void add_input_scales(std::vector<RawTensor>& file, float of_key = 0.5f) {
  std::vector<std::string> layers;
  for (const RawTensor& tensor : file) {
    if (is_linear(tensor.name) && tensor.name.ends_with(".weight")) {
      layers.push_back(tensor.name.substr(0, tensor.name.size() - 7));
    }
  }
  for (const std::string& layer : layers) {
    const float scale = layer.ends_with("k_proj")      ? of_key
                        : layer.ends_with("down_proj") ? 2
                                                       : 0.25f;
    file.push_back(raw<float>(layer + ".input_scale", "F32", {1}, {scale}));
  }
}

TEST(CodedInputs, UseStaticScalesOfTheCheckpoint) {
  Twins twins;
  write_twins(twins, static_format(), "", [](auto& file) { add_input_scales(file); });
  for (const DType dtype : {DType::f32, DType::bf16}) {
    auto loaded = load(twins.quantised, {.dtype = dtype});
    const auto scale_of = [&](const char* layer) {
      const model::InputForm form =
          loaded->weights().find(std::string("model.layers.1.") + layer + ".weight").inputs;
      return form.static_scale.rank == 1 ? *form.static_scale.as<float>() : 0.0f;
    };
    EXPECT_EQ(scale_of("self_attn.qkv"), 0.5f);  // the largest of its three parts
    EXPECT_EQ(scale_of("mlp.gate_up"), 0.25f);
    EXPECT_EQ(scale_of("mlp.down_proj"), 2.0f);
    // Codes reach 448 times these scales and have 3 bits: near the logits of the values.
    const std::vector<float> want = logits_seen(load(twins.dense, {.dtype = DType::f32}));
    const float off = difference(logits_seen(std::move(loaded)), want);
    EXPECT_LT(off, 0.5f);
    EXPECT_GT(off, 0.0f);
  }
}

TEST(CodedInputs, RefuseStaticScalesThatAreMissingOrNotPositive) {
  Twins missing, zero;
  write_twins(missing, static_format());
  EXPECT_NE(
      message_of([&] { load(missing.quantised, {}); }).find("q_proj.input_scale' [1] is missing"),
      std::string::npos);
  write_twins(zero, static_format(), "", [](auto& file) { add_input_scales(file, 0.0f); });
  EXPECT_NE(message_of([&] { load(zero.quantised, {}); }).find("k_proj.input_scale' is 0"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::testing
