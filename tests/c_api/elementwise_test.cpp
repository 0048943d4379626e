// Every operation once through the C ABI, on numbers small enough to check by hand.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/c_api/dl_tensor.h"
#include "tests/c_api/expect.h"
#include "tests/c_api/plain_c.h"

namespace tessera::testing {
namespace {

using Floats = std::vector<float>;

void expect_near(const std::vector<float>& got, const std::vector<float>& want, float bound) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], bound) << "element " << i;
}

TEST(CApi, RmsNormDividesByTheRootMeanSquare) {
  // mean(x^2) is 9 in both rows, so y = x / 3 * weight.
  Array<float> x({2, 4}, {3, -3, 3, -3, 3, 3, 3, 3});
  Array<float> weight({4}, {1, 2, 3, 4});
  Array<float> out({2, 4});
  expect_ok(tessera_rms_norm(x, weight, out, nullptr, nullptr, nullptr, 0.0f, TESSERA_DTYPE_AUTO,
                             nullptr));
  expect_near(out.values, {1, -2, 3, -4, 1, 2, 3, 4}, 1e-6f);
}

TEST(CApi, RmsNormAddsTheResidualAndQuantisesEachRow) {
  Array<float> x({1, 2}, {1, -1});
  Array<float> residual({1, 2}, {2, -2});
  Array<float> weight({2}, {1, 0.5f});
  Array<uint8_t> out({1, 2});
  Array<float> scale({1});
  expect_ok(
      tessera_rms_norm(x, weight, out, residual, nullptr, scale, 0.0f, TESSERA_E4M3, nullptr));
  EXPECT_EQ(residual.values, (Floats{3, -3}));
  EXPECT_NEAR(scale.values[0], 1.0f / 448, 1e-8f);
  EXPECT_EQ(out.values[0], 0x7e);  // 448, the largest e4m3
  EXPECT_EQ(out.values[1], 0xf6);  // -224
}

TEST(CApi, RmsNormQuantisesByAStaticScale) {
  Array<float> x({1, 2}, {3, -3});
  Array<float> weight({2}, {1, 2});
  Array<int8_t> out({1, 2});
  Array<float> scale({1}, {0.1f});
  expect_ok(tessera_rms_norm(x, weight, out, nullptr, scale, nullptr, 0.0f, TESSERA_I8, nullptr));
  EXPECT_EQ(out.values, (std::vector<int8_t>{10, -20}));
}

TEST(CApi, LayerNormTakesOffTheMeanAndAddsTheBias) {
  Array<float> x({1, 4}, {1, 3, 1, 3});
  Array<float> weight({4}, {1, 1, 2, 2});
  Array<float> bias({4}, {0, 10, 0, 10});
  Array<float> out({1, 4});
  expect_ok(tessera_layer_norm(x, weight, bias, out, nullptr, nullptr, nullptr, 0.0f,
                               TESSERA_DTYPE_AUTO, nullptr));
  expect_near(out.values, {-1, 11, -2, 12}, 1e-6f);
}

TEST(CApi, RopeRotatesQAndKByTheTable) {
  Array<float> table({2, 2});
  expect_ok(tessera_make_rope_table(table, 10000.0, nullptr));
  expect_near(table.values, {1, 0, std::cos(1.0f), std::sin(1.0f)}, 1e-7f);
  Array<float> q({2, 1, 2}, {1, 0, 1, 0});
  Array<float> k({2, 1, 2}, {0, 1, 0, 1});
  Array<int32_t> positions({2}, {0, 1});
  expect_ok(tessera_rope(q, k, positions, table, TESSERA_ROPE_HALF_SPLIT, nullptr));
  expect_near(q.values, {1, 0, std::cos(1.0f), std::sin(1.0f)}, 1e-6f);
  expect_near(k.values, {0, 1, -std::sin(1.0f), std::cos(1.0f)}, 1e-6f);
}

TEST(CApi, RopeTablesAreStretched) {
  TesseraRopeScaling scaling{};
  scaling.struct_size = sizeof scaling;
  scaling.kind = TESSERA_ROPE_SCALING_LINEAR;
  scaling.factor = 4;
  Array<float> table({5, 2});
  expect_ok(tessera_make_rope_table(table, 10000.0, &scaling));
  EXPECT_NEAR(table.values[8], std::cos(1.0f), 1e-7f);  // position 4 by a factor of 4
}

TEST(CApi, ActivationGatesAndMayWorkInPlace) {
  Array<float> x({1, 3}, {-1, 0, 2});
  Array<float> up({1, 3}, {3, 3, 3});
  expect_ok(tessera_activation(x, up, x, TESSERA_RELU, nullptr));
  EXPECT_EQ(x.values, (Floats{0, 0, 6}));
  Array<float> y({1, 1}, {1});
  expect_ok(tessera_activation(y, nullptr, y, TESSERA_GELU, nullptr));
  EXPECT_NEAR(y.values[0], 0.8413447f, 1e-6f);
}

TEST(CApi, SoftmaxScalesAndMasks) {
  Array<float> x({1, 3}, {0, std::log(3.0f) / 2, 100});
  Array<uint8_t> mask({1, 3}, {1, 1, 0});
  mask.dl.dtype = {6, 8, 1};  // bool
  Array<float> out({1, 3});
  expect_ok(tessera_softmax(x, mask, out, 2.0f, nullptr));
  expect_near(out.values, {0.25f, 0.75f, 0}, 1e-6f);
}

TEST(CApi, ScaleCapsAndAddsTheResidual) {
  Array<float> x({1, 2}, {1, -2});
  Array<float> out({1, 2});
  expect_ok(tessera_scale(x, out, nullptr, 0.5f, 0.0f, nullptr));
  EXPECT_EQ(out.values, (Floats{0.5f, -1}));
  Array<float> residual({1, 2}, {10, 20});
  expect_ok(tessera_scale(x, residual, residual, 2.0f, 4.0f, nullptr));
  expect_near(residual.values, {10 + 4 * std::tanh(0.5f), 20 - 4 * std::tanh(1.0f)}, 1e-5f);
}

TEST(CApi, EmbeddingPicksRows) {
  Array<float> table({3, 2}, {1, 2, 3, 4, 5, 6});
  Array<int64_t> ids({2}, {2, 0});
  Array<float> out({2, 2});
  expect_ok(tessera_embedding(table, ids, out, nullptr));
  EXPECT_EQ(out.values, (Floats{5, 6, 1, 2}));
}

TEST(CApi, CopyFollowsStridesAndTheByteOffset) {
  Array<int32_t> x({2, 3}, {1, 2, 3, 4, 5, 6});
  int64_t transposed_shape[] = {2, 2};
  int64_t transposed_strides[] = {1, 3};
  x.dl.shape = transposed_shape;
  x.dl.strides = transposed_strides;
  x.dl.byte_offset = sizeof(int32_t);
  Array<int32_t> out({2, 2});
  expect_ok(tessera_copy(x, out, nullptr));
  EXPECT_EQ(out.values, (std::vector<int32_t>{2, 5, 3, 6}));
}

TEST(CApi, QuantizeToInt8AndBack) {
  Array<float> x({2, 2}, {127, -63.5f, 0, 0});
  Array<int8_t> q({2, 2});
  Array<float> scale({2, 1});
  expect_ok(
      tessera_quantize(x, q, scale, nullptr, TESSERA_SCALE_DYNAMIC, TESSERA_DTYPE_AUTO, nullptr));
  EXPECT_EQ(q.values, (std::vector<int8_t>{127, -64, 0, 0}));
  EXPECT_EQ(scale.values, (Floats{1, 1}));
  Array<float> back({2, 2});
  expect_ok(tessera_dequantize(q, scale, nullptr, back, TESSERA_DTYPE_AUTO, nullptr));
  EXPECT_EQ(back.values, (Floats{127, -64, 0, 0}));
}

TEST(CApi, QuantizeToInt4PacksTwoElementsAByte) {
  Array<float> x({1, 4}, {7, -7, 3, 1});
  Array<uint8_t> q({1, 2});
  Array<float> scale({1, 1});
  expect_ok(tessera_quantize(x, q, scale, nullptr, TESSERA_SCALE_DYNAMIC, TESSERA_I4, nullptr));
  EXPECT_EQ(q.values, (std::vector<uint8_t>{0x97, 0x13}));  // -7 is 9 in four bits
  Array<float> back({1, 4});
  expect_ok(tessera_dequantize(q, scale, nullptr, back, TESSERA_I4, nullptr));
  EXPECT_EQ(back.values, x.values);
}

TEST(CApi, QuantizeReadsGivenScalesAndZeroPoints) {
  Array<float> x({1, 2}, {-1, 2});
  Array<uint8_t> q({1, 2});
  Array<float> scale({1, 1}, {0.5f});
  Array<int32_t> zero({1, 1}, {10});
  expect_ok(tessera_quantize(x, q, scale, zero, TESSERA_SCALE_FIXED, TESSERA_U8, nullptr));
  EXPECT_EQ(q.values, (std::vector<uint8_t>{8, 14}));
  EXPECT_EQ(scale.values[0], 0.5f);
}

TEST(CApi, ReduceAndArgmaxWorkOnRows) {
  Array<float> x({2, 3}, {1, -5, 2, 4, 4, -1});
  Array<float> out({2});
  const std::vector<std::pair<TesseraReduction, Floats>> cases = {{TESSERA_SUM, {-2, 7}},
                                                                  {TESSERA_MAX, {2, 4}},
                                                                  {TESSERA_MIN, {-5, -1}},
                                                                  {TESSERA_ABSMAX, {5, 4}}};
  for (const auto& [kind, want] : cases) {
    expect_ok(tessera_reduce(x, out, kind, nullptr));
    EXPECT_EQ(out.values, want) << "kind " << kind;
  }
  expect_ok(tessera_reduce(x, out, TESSERA_MEAN, nullptr));
  expect_near(out.values, {-2.0f / 3, 7.0f / 3}, 1e-6f);
  Array<int32_t> index({2});
  expect_ok(tessera_argmax(x, index, nullptr));
  EXPECT_EQ(index.values, (std::vector<int32_t>{2, 0}));
}

TEST(CApi, ServesAProgramInPlainC) {
  float result = 1;
  EXPECT_EQ(silu_of_zero_from_c(&result), 0);
  EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace tessera::testing
