// Products of two quantised operands that gemm refuses, and the words they are refused with.
// SPDX-License-Identifier: MIT
#include <functional>

#include "tessera/ops/gemm.h"
#include "tests/ops/refusal.h"

namespace tessera::testing {
namespace {

class RefusedCodes : public ::testing::Test {
 protected:
  Tensor a{DType::i8, {4, 256}}, b{DType::i8, {8, 256}}, out{DType::bf16, {4, 8}};
  Tensor a_scale{DType::f32, {4}}, b_scale{DType::f32, {8}}, groups{DType::f32, {4, 2}};
  Tensor zero{DType::i32, {4}}, bytes{DType::u8, {4, 256}};
  GemmArgs good{.a = a, .b = Weight{.values = b, .scale = b_scale}, .out = out, .a_scale = a_scale};

  ::testing::AssertionResult refused_with(const std::function<void(GemmArgs&)>& change,
                                          std::initializer_list<std::string_view> words) {
    GemmArgs args = good;
    change(args);
    if (supports(args)) return ::testing::AssertionFailure() << "supports() says yes";
    return refused([&] { gemm(args); }, words);
  }
};

TEST_F(RefusedCodes, TheUnchangedCallsAreTaken) {
  EXPECT_NO_THROW(gemm(good));
  good.a_scale = groups;
  EXPECT_NO_THROW(gemm(good));
  good.a_scale = a_scale;
  good.a = bytes;
  good.a_zero_point = zero;
  EXPECT_NO_THROW(gemm(good));
}

TEST_F(RefusedCodes, ScalesThatDoNotFit) {
  const Tensor three(DType::f32, {3}), wide(DType::f32, {4, 4});
  EXPECT_TRUE(refused_with([&](auto& g) { g.a_scale = three; },
                           {"a_scale is f32[3]", "[1], [4]", "k / 128"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.a_scale = wide; }, {"a_scale is f32[4, 4]"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.a_scale.reset(); }, {"a is i8[4, 256]", "a_scale"}));
}

TEST_F(RefusedCodes, OtherCodesOnTheOtherSide) {
  const Tensor floats(DType::e4m3, {8, 256}), dense(DType::bf16, {8, 256});
  EXPECT_TRUE(
      refused_with([&](auto& g) { g.b.values = floats; }, {"b is e4m3[8, 256]", "codes of i8"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.b.scale.reset(); }, {"gemm: b"}));
  const Tensor nibbles(DType::i4, {8, 256}), zeros(DType::i32, {8}), few(DType::i4, {4, 256});
  good.b.values = nibbles;
  EXPECT_NO_THROW(gemm(good));
  EXPECT_TRUE(refused_with([&](auto& g) { g.b.zero_point = zeros; },
                           {"b is i4[8, 256]", "i8 or i4", "without zero points"}));
  EXPECT_TRUE(refused_with(
      [&](auto& g) {
        g.a = bytes;
        g.a_zero_point = zero;
      },
      {"a is u8[4, 256]", "codes of i8 with"}));
  const Tensor wide(DType::i4, {64, 256}), wide_scale(DType::f32, {64}),
      wide_out(DType::bf16, {4, 64});
  EXPECT_TRUE(refused_with(
      [&](auto& g) {
        g.b = Weight{.values = wide, .scale = wide_scale, .packing = Packing::fragments};
        g.out = wide_out;
      },
      {"a is i8[4, 256]", "packed as 'fragments'", "must be in rows"}));
  good.a = few;
  EXPECT_NO_THROW(gemm(good));
  EXPECT_TRUE(
      refused_with([&](auto& g) { g.b.values = b; }, {"a is i4[4, 256]", "codes of i4 with"}));
}

TEST_F(RefusedCodes, ZeroPointsWhereThereAreNone) {
  EXPECT_TRUE(refused_with([&](auto& g) { g.a_zero_point = zero; },
                           {"a is i8[4, 256]", "a_zero_point", "u8"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.a = bytes; }, {"no a_zero_point", "u8 need one"}));
  EXPECT_TRUE(refused_with(
      [&](auto& g) {
        g.a = bytes;
        g.a_zero_point = zero;
        g.a_scale = groups;
      },
      {"a_zero_point is i32[4]", "no scale may change along k"}));
}

TEST_F(RefusedCodes, BiasesOfAnotherType) {
  const Tensor half(DType::f16, {8});
  EXPECT_TRUE(refused_with([&](auto& g) { g.bias = half; }, {"gemm: bias is f16[8]", "bf16"}));
}

}  // namespace
}  // namespace tessera::testing
