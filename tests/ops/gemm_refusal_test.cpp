// Arguments gemm refuses, and the words they are refused with. Each case breaks one rule of a call
// that is otherwise taken.
// SPDX-License-Identifier: MIT
#include <functional>

#include "ops/check.h"
#include "tessera/ops/gemm.h"
#include "tests/ops/refusal.h"

namespace tessera::testing {
namespace {

class RefusedGemm : public ::testing::Test {
 protected:
  Tensor a{DType::bf16, {4, 16}}, b{DType::bf16, {8, 16}}, out{DType::bf16, {4, 8}};
  Tensor codes{DType::i8, {8, 16}}, scale{DType::f32, {8}}, group_scale{DType::f32, {8, 4}};
  Tensor bias{DType::bf16, {8}};
  GemmArgs good{.a = a, .b = b, .bias = bias, .out = out};
  GemmArgs good_codes{.a = a, .b = codes, .b_scale = scale, .out = out};

  ::testing::AssertionResult refused_with(const std::function<void(GemmArgs&)>& change,
                                          std::initializer_list<std::string_view> words) {
    return refused_after(good, change, words);
  }
  ::testing::AssertionResult codes_refused_with(const std::function<void(GemmArgs&)>& change,
                                                std::initializer_list<std::string_view> words) {
    return refused_after(good_codes, change, words);
  }

 private:
  static ::testing::AssertionResult refused_after(GemmArgs args,
                                                  const std::function<void(GemmArgs&)>& change,
                                                  std::initializer_list<std::string_view> words) {
    change(args);
    if (supports(args)) return ::testing::AssertionFailure() << "supports() says yes";
    return refused([&] { gemm(args); }, words);
  }
};

TEST_F(RefusedGemm, TheUnchangedCallsAreTaken) {
  EXPECT_TRUE(supports(good));
  EXPECT_NO_THROW(gemm(good));
  EXPECT_TRUE(supports(good_codes));
  EXPECT_NO_THROW(gemm(good_codes));
  good_codes.b_scale = group_scale;
  EXPECT_NO_THROW(gemm(good_codes));
  const Tensor wide(DType::f32, {4, 8});
  good.out = wide;
  EXPECT_NO_THROW(gemm(good));
}

TEST_F(RefusedGemm, WrongTypes) {
  EXPECT_TRUE(refused_with([&](auto& g) { g.a.dtype = DType::i8; },
                           {"gemm: a is i8[4, 16]", "f32, f16, bf16"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.b.dtype = DType::f16; },
                           {"gemm: b is f16[8, 16]", "one of bf16, i8"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.out.dtype = DType::f16; },
                           {"gemm: out is f16[4, 8]", "one of f32, bf16"}));
  const Tensor wide(DType::f32, {8});
  EXPECT_TRUE(refused_with([&](auto& g) { g.bias = wide; },
                           {"gemm: bias is f32", "a is bf16", "one type"}));
  EXPECT_TRUE(codes_refused_with([&](auto& g) { g.b_scale->dtype = DType::i32; },
                                 {"gemm: b_scale is i32[8]", "one of f32"}));
}

TEST_F(RefusedGemm, WrongRanks) {
  const auto vector = TensorView::contiguous(a.view().data, DType::bf16, {16});
  const auto stack = TensorView::contiguous(b.view().data, DType::bf16, {2, 4, 16});
  EXPECT_TRUE(refused_with([&](auto& g) { g.a = vector; }, {"gemm: a", "rank 1", "must be 2"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.b = stack; }, {"gemm: b", "rank 3", "must be 2"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.out = vector; }, {"gemm: out", "rank 1"}));
  EXPECT_TRUE(refused_with(
      [&](auto& g) {
        g.bias = TensorView::contiguous(bias.view().data, DType::bf16, {1, 8});
      },
      {"gemm: bias", "rank 2", "must be 1"}));
}

TEST_F(RefusedGemm, WrongShapes) {
  const Tensor short_b(DType::bf16, {8, 15}), short_bias(DType::bf16, {7});
  const Tensor tall(DType::bf16, {5, 8}), wide(DType::bf16, {4, 9});
  EXPECT_TRUE(refused_with([&](auto& g) { g.b = short_b; },
                           {"a is bf16[4, 16]", "b is bf16[8, 15]", "agree in k"}));
  EXPECT_TRUE(
      refused_with([&](auto& g) { g.out = tall; }, {"gemm: out is bf16[5, 8]", "must be [4, 8]"}));
  EXPECT_TRUE(
      refused_with([&](auto& g) { g.out = wide; }, {"gemm: out is bf16[4, 9]", "must be [4, 8]"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.bias = short_bias; },
                           {"gemm: bias is bf16[7]", "must have 8", "row of b"}));
  EXPECT_TRUE(refused_with(
      [&](auto& g) {
        g.a = TensorView::contiguous(a.view().data, DType::bf16, {1, ops::kMaxCols + 2});
      },
      {"gemm: a", "at most 1073741824"}));
}

TEST_F(RefusedGemm, RowsThatAreNotContiguous) {
  EXPECT_TRUE(refused_with([&](auto& g) { g.a = with_stride(g.a, 1, 2); },
                           {"gemm: a", "strides [16, 2]", "contiguous"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.b = with_stride(g.b, 1, 2); },
                           {"gemm: b", "strides [16, 2]", "contiguous"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.out = with_stride(g.out, 1, 2); },
                           {"gemm: out", "strides [8, 2]", "contiguous"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.out = with_stride(g.out, 0, 0); },
                           {"gemm: out", "written", "axis 0 may not have stride 0"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.bias = with_stride(*g.bias, 0, 2); },
                           {"gemm: bias", "strides [2]", "contiguous"}));
  EXPECT_TRUE(codes_refused_with([&](auto& g) { g.b_scale = with_stride(*g.b_scale, 0, 2); },
                                 {"gemm: b_scale", "strides [2]", "contiguous"}));
}

TEST_F(RefusedGemm, ScalesThatDoNotFitTheWeight) {
  EXPECT_TRUE(refused_with([&](auto& g) { g.b_scale = scale; },
                           {"gemm: b is bf16[8, 16]", "b_scale is given", "leave them out"}));
  EXPECT_TRUE(codes_refused_with([&](auto& g) { g.b_scale.reset(); },
                                 {"gemm: b is i8[8, 16]", "no b_scale", "row or group"}));
  for (const Tensor& wrong : {std::cref(a), std::cref(b)}) {
    EXPECT_TRUE(codes_refused_with([&](auto& g) { g.b_scale = wrong.view(); },
                                   {"gemm: b_scale is bf16", "one of f32"}));
  }
  const Tensor short_scale(DType::f32, {7}), uneven(DType::f32, {8, 3}), none(DType::f32, {8, 0});
  const Tensor cube(DType::f32, {8, 2, 2});
  for (const Tensor* wrong : {&short_scale, &uneven, &none, &cube}) {
    EXPECT_TRUE(codes_refused_with([&](auto& g) { g.b_scale = *wrong; },
                                   {to_string(wrong->view()), "b is i8[8, 16]", "divide k"}));
  }
}

TEST_F(RefusedGemm, MixedDevicesAndMissingMemory) {
  EXPECT_TRUE(refused_with([&](auto& g) { g.b = on_gpu(g.b); },
                           {"gemm: b is on cuda:3", "a on cpu", "one device"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.out = on_gpu(g.out); }, {"gemm: out is on cuda:3"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.bias = on_gpu(*g.bias); }, {"gemm: bias is on"}));
  EXPECT_TRUE(codes_refused_with([&](auto& g) { g.b_scale = on_gpu(*g.b_scale); },
                                 {"gemm: b_scale is on cuda:3"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.b.data = nullptr; }, {"gemm: b", "null"}));
  EXPECT_TRUE(refused_with(
      [&](auto& g) {
        for (TensorView* view : {&g.a, &g.b, &g.out, &*g.bias}) *view = on_gpu(*view);
      },
      {"gemm", "cuda:3"}));
}

TEST_F(RefusedGemm, AnOutputThatSharesMemoryWithAnInput) {
  const Tensor square(DType::bf16, {16, 16});
  const TensorView top = square.view().slice(0, 0, 4);
  EXPECT_TRUE(refused_with(
      [&](auto& g) {
        g.a = top;
        g.out = top.slice(1, 8, 16);
      },
      {"gemm: out", "shares memory with gemm: a"}));
  EXPECT_TRUE(refused_with(
      [&](auto& g) {
        g.b = square.view().slice(0, 0, 8);
        g.out = top.slice(1, 8, 16);
      },
      {"gemm: out", "shares memory with gemm: b"}));
  EXPECT_TRUE(
      refused_with([&](auto& g) { g.bias = TensorView::contiguous(g.out.data, DType::bf16, {8}); },
                   {"gemm: out", "shares memory with gemm: bias"}));
  EXPECT_TRUE(codes_refused_with(
      [&](auto& g) { g.b_scale = TensorView::contiguous(g.out.data, DType::f32, {8}); },
      {"gemm: out", "shares memory with gemm: b_scale"}));
}

TEST_F(RefusedGemm, ARowForcedOnTheCpu) {
  Context ctx;
  ctx.row = "gemm_bf16";
  EXPECT_FALSE(supports(good, ctx));
  EXPECT_TRUE(refused([&] { gemm(good, ctx); }, {"gemm", "gemm_bf16"}));
}

}  // namespace
}  // namespace tessera::testing
