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
  GemmArgs good_codes{.a = a, .b = Weight{.values = codes, .scale = scale}, .out = out};

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
  good_codes.b.scale = group_scale;
  EXPECT_NO_THROW(gemm(good_codes));
  const Tensor wide(DType::f32, {4, 8});
  good.out = wide;
  EXPECT_NO_THROW(gemm(good));
}

TEST_F(RefusedGemm, WrongTypes) {
  EXPECT_TRUE(
      refused_with([&](auto& g) { g.a.dtype = DType::i8; }, {"gemm: a is i8[4, 16]", "a_scale"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.b.values.dtype = DType::f16; },
                           {"gemm: b is f16[8, 16]", "one of bf16, e4m3, e5m2, i8, u8, i4"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.out.dtype = DType::f16; },
                           {"gemm: out is f16[4, 8]", "one of f32, bf16, e4m3, i8"}));
  const Tensor wide(DType::f32, {8});
  EXPECT_TRUE(refused_with([&](auto& g) { g.bias = wide; },
                           {"gemm: bias is f32", "a is bf16", "one type"}));
  EXPECT_TRUE(codes_refused_with([&](auto& g) { g.b.scale->dtype = DType::i32; },
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
  EXPECT_TRUE(refused_with([&](auto& g) { g.b = with_stride(g.b.values, 1, 2); },
                           {"gemm: b", "strides [16, 2]", "contiguous"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.out = with_stride(g.out, 1, 2); },
                           {"gemm: out", "strides [8, 2]", "contiguous"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.out = with_stride(g.out, 0, 0); },
                           {"gemm: out", "written", "axis 0 may not have stride 0"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.bias = with_stride(*g.bias, 0, 2); },
                           {"gemm: bias", "strides [2]", "contiguous"}));
  EXPECT_TRUE(codes_refused_with([&](auto& g) { g.b.scale = with_stride(*g.b.scale, 0, 2); },
                                 {"gemm: b_scale", "strides [2]", "contiguous"}));
}

TEST_F(RefusedGemm, ScalesThatDoNotFitTheWeight) {
  EXPECT_TRUE(refused_with([&](auto& g) { g.b.scale = scale; },
                           {"gemm: b is bf16[8, 16]", "b_scale is given", "leave them out"}));
  EXPECT_TRUE(codes_refused_with([&](auto& g) { g.b.scale.reset(); },
                                 {"gemm: b is i8[8, 16]", "no b_scale", "row or group"}));
  for (const Tensor& wrong : {std::cref(a), std::cref(b)}) {
    EXPECT_TRUE(codes_refused_with([&](auto& g) { g.b.scale = wrong.view(); },
                                   {"gemm: b_scale is bf16", "one of f32"}));
  }
  const Tensor short_scale(DType::f32, {7}), uneven(DType::f32, {8, 3}), none(DType::f32, {8, 0});
  const Tensor cube(DType::f32, {8, 2, 2});
  for (const Tensor* wrong : {&short_scale, &uneven, &none, &cube}) {
    EXPECT_TRUE(codes_refused_with([&](auto& g) { g.b.scale = *wrong; },
                                   {to_string(wrong->view()), "b is i8[8, 16]", "divide k"}));
  }
}

TEST_F(RefusedGemm, ZeroPointsGroupsAndPackingsThatDoNotFitTheWeight) {
  const Tensor zero(DType::i32, {8}), other(DType::i32, {8, 4});
  EXPECT_TRUE(codes_refused_with([&](auto& g) { g.b.zero_point = zero; },
                                 {"gemm: b is i8", "only u8 and i4 take one"}));
  EXPECT_TRUE(codes_refused_with([&](auto& g) { g.b.values.dtype = DType::u8; },
                                 {"gemm: b is u8", "no zero_point"}));
  EXPECT_TRUE(codes_refused_with(
      [&](auto& g) {
        g.b.values.dtype = DType::u8;
        g.b.zero_point = other;
      },
      {"gemm: b_zero_point is i32[8, 4]", "gemm: b_scale is f32[8]", "one shape"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.b.zero_point = zero; }, {"neither zero points"}));
  const Tensor nibbles(DType::i4, {8, 12}), thirds(DType::f32, {8, 4}), a12(DType::bf16, {4, 12});
  EXPECT_TRUE(codes_refused_with(
      [&](auto& g) {
        g.a = a12;
        g.b = Weight{.values = nibbles, .scale = thirds};
      },
      {"gemm: b is i4[8, 12] on cpu in groups of 3", "must be even"}));
  EXPECT_TRUE(codes_refused_with(
      [&](auto& g) {
        g.b.scale = group_scale;
        g.b.group = 3;
      },
      {"gemm: b_scale is f32[8, 4]", "k / group of them"}));
  EXPECT_TRUE(codes_refused_with(
      [&](auto& g) {
        g.b.scale = group_scale;
        g.b.rows_per_scale = 4;
      },
      {"gemm: b_scale is f32[8, 4]", "[n / 4, groups]"}));
  EXPECT_TRUE(codes_refused_with([&](auto& g) { g.b.packing = static_cast<Packing>(9); },
                                 {"gemm: b is packed", "on the cpu it must be in rows"}));
}

TEST_F(RefusedGemm, GroupsThatDoNotDivideK) {
  const Tensor partial(DType::f32, {8, 2});
  EXPECT_TRUE(codes_refused_with(
      [&](auto& g) {
        g.b.scale = partial;
        g.b.group = 12;
      },
      {"gemm: b is i8[8, 16]", "in groups of 12", "k must be a multiple of the group"}));
}

TEST_F(RefusedGemm, OrdersOfColumns) {
  Tensor order(DType::i32, {16}), short_order(DType::i32, {15});
  for (int32_t i = 0; i < 16; ++i) order.view().as<int32_t>()[i] = 15 - i;
  good_codes.b.order = order;
  EXPECT_NO_THROW(gemm(good_codes));
  EXPECT_TRUE(codes_refused_with([&](auto& g) { g.b.order = short_order; },
                                 {"weight: order is i32[15]", "must have 16", "column of b"}));
  order.view().as<int32_t>()[3] = 0;  // 15 - 15 is 0 too
  EXPECT_TRUE(codes_refused_with([](auto&) {}, {"weight: order[15] is 0", "exactly once"}));
  order.view().as<int32_t>()[3] = 16;
  EXPECT_TRUE(codes_refused_with([](auto&) {}, {"weight: order[3] is 16", "exactly once"}));
}

TEST_F(RefusedGemm, WeightsThatHaveNoFragments) {
  const Tensor a64(DType::bf16, {4, 64}), out64(DType::bf16, {4, 64}), out8(DType::bf16, {4, 8});
  const Tensor nibbles(DType::i4, {64, 64}), few(DType::i4, {8, 64}), bytes(DType::i8, {64, 64});
  const Tensor row_scale(DType::f32, {64}), few_scale(DType::f32, {8}), one(DType::f32, {1});
  const auto packed = [](const Tensor& values, const Tensor& scales) {
    return Weight{.values = values, .scale = scales, .packing = Packing::fragments};
  };
  good_codes = {.a = a64, .b = packed(nibbles, row_scale), .out = out64};
  EXPECT_NO_THROW(gemm(good_codes));
  EXPECT_TRUE(codes_refused_with([&](auto& g) { g.b = packed(bytes, row_scale); },
                                 {"gemm: b is i8[64, 64]", "'fragments'", "only i4"}));
  EXPECT_TRUE(codes_refused_with(
      [&](auto& g) {
        g.b = packed(few, few_scale);
        g.out = out8;
      },
      {"gemm: b is i4[8, 64]", "multiples of 64"}));
  EXPECT_TRUE(codes_refused_with([&](auto& g) { g.b = packed(nibbles, one); },
                                 {"gemm: b", "a scale serves several rows"}));
}

TEST_F(RefusedGemm, ScalesOfTypesThatTheirPackingDoesNotHave) {
  const Tensor a64(DType::bf16, {4, 64}), out64(DType::bf16, {4, 64});
  const Tensor nibbles(DType::i4, {64, 64}), bytes(DType::i8, {64, 64});
  const Tensor brain(DType::bf16, {64}), half(DType::f16, {64}), whole(DType::i32, {64});
  const Tensor single(DType::f32, {64});
  good_codes = {.a = a64,
                .b = Weight{.values = nibbles, .scale = half, .packing = Packing::fragments},
                .out = out64};
  EXPECT_NO_THROW(gemm(good_codes));
  EXPECT_TRUE(codes_refused_with([&](auto& g) { g.b.scale = whole; },
                                 {"gemm: b_scale is i32[64]", "one of f32, f16, bf16"}));
  good_codes.b.scale = brain;
  EXPECT_NO_THROW(gemm(good_codes));
  EXPECT_TRUE(codes_refused_with([&](auto& g) { g.b.packing = Packing::rows; },
                                 {"gemm: b_scale is bf16[64]", "one of f32"}));
  good_codes.b = Weight{.values = bytes, .scale = single};
  EXPECT_TRUE(codes_refused_with([&](auto& g) { g.b.scale = half; },
                                 {"gemm: b_scale is f16[64]", "one of f32"}));
}

TEST_F(RefusedGemm, PackingIntoScalesThatRowsDoNotHave) {
  const Tensor rows(DType::i4, {64, 64}), out(DType::i4, {64, 64});
  const Tensor single(DType::f32, {64}), brain(DType::bf16, {64}), bytes(DType::i8, {64});
  PackWeightArgs args{.weight = {.values = rows, .scale = single},
                      .out = {.values = out, .scale = brain, .packing = Packing::fragments}};
  EXPECT_NO_THROW(pack_weight(args));
  args.out.scale = bytes;
  EXPECT_TRUE(
      refused([&] { pack_weight(args); }, {"scale of out is i8[64]", "one of f32, f16, bf16"}));
  args.out = {.values = out, .scale = single};
  args.weight = {.values = rows, .scale = brain};
  EXPECT_TRUE(
      refused([&] { pack_weight(args); }, {"pack_weight: scale is bf16[64]", "one of f32"}));
}

TEST_F(RefusedGemm, MixedDevicesAndMissingMemory) {
  EXPECT_TRUE(refused_with([&](auto& g) { g.b = on_gpu(g.b.values); },
                           {"gemm: b is on cuda:3", "a on cpu", "one device"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.out = on_gpu(g.out); }, {"gemm: out is on cuda:3"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.bias = on_gpu(*g.bias); }, {"gemm: bias is on"}));
  EXPECT_TRUE(codes_refused_with([&](auto& g) { g.b.scale = on_gpu(*g.b.scale); },
                                 {"gemm: b_scale is on cuda:3"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.b.values.data = nullptr; }, {"gemm: b", "null"}));
  EXPECT_TRUE(refused_with(
      [&](auto& g) {
        for (TensorView* view : {&g.a, &g.b.values, &g.out, &*g.bias}) *view = on_gpu(*view);
      },
      {"cuda:3"}));
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
      [&](auto& g) { g.b.scale = TensorView::contiguous(g.out.data, DType::f32, {8}); },
      {"gemm: out", "shares memory with gemm: b_scale"}));
}

TEST_F(RefusedGemm, BatchesThatDoNotMatch) {
  const Tensor a3(DType::bf16, {3, 4, 16}), b2(DType::bf16, {2, 8, 16}),
      out3(DType::bf16, {3, 4, 8});
  const Tensor out2(DType::bf16, {2, 4, 8}), cube(DType::bf16, {1, 3, 4, 16});
  good.a = a3;
  good.out = out3;
  EXPECT_NO_THROW(gemm(good));  // one b for all
  EXPECT_TRUE(refused_with([&](auto& g) { g.b = b2; },
                           {"a is bf16[3, 4, 16]", "b is bf16[2, 8, 16]", "as many matrices"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.out = out2; },
                           {"gemm: out is bf16[2, 4, 8]", "must be [3, 4, 8]"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.out = out; },
                           {"gemm: out is bf16[4, 8]", "must be [3, 4, 8]"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.a = cube; },
                           {"gemm: a", "rank 4", "must be 2, or 3 with a batch axis"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.out = with_stride(g.out, 0, 0); },
                           {"gemm: out", "axis 0 may not have stride 0"}));
  const Tensor codes3(DType::i8, {3, 8, 16});
  EXPECT_TRUE(refused_with(
      [&](auto& g) {
        g.b = codes3;
        g.b.scale = scale;
      },
      {"gemm: b is i8[3, 8, 16]", "two axes", "dequantize"}));
}

TEST_F(RefusedGemm, CodesForBOnAGpu) {
  EXPECT_TRUE(codes_refused_with(
      [&](auto& g) {
        for (TensorView* view : {&g.a, &g.b.values, &g.out, &*g.b.scale}) *view = on_gpu(*view);
      },
      {"cuda:3"}));
}

TEST_F(RefusedGemm, GatesWithoutAFunctionOrWithOddRows) {
  const Tensor packed(DType::bf16, {32, 16}), half(DType::bf16, {4, 16}),
      uneven(DType::bf16, {24, 16});
  good.bias.reset();
  good.b = packed;
  good.out = half;
  good.is_gated = true;
  good.activation = Activation::silu;
  EXPECT_NO_THROW(gemm(good));
  EXPECT_TRUE(refused_with([&](auto& g) { g.activation.reset(); },
                           {"is_gated is set and activation is not", "which function"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.b = uneven; },
                           {"gemm: b is bf16[24, 16]", "multiple of 16", "pack_gate_up"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.is_gated = false; },
                           {"gemm: out is bf16[4, 16]", "must be [4, 32]"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.activation = static_cast<Activation>(9); },
                           {"gemm: activation is none of relu"}));
}

TEST_F(RefusedGemm, ResidualsThatDoNotFit) {
  const Tensor residual(DType::bf16, {4, 8}), tall(DType::bf16, {5, 8}), wide(DType::f32, {4, 8});
  good.residual = residual;
  EXPECT_NO_THROW(gemm(good));
  good.residual = good.out;
  EXPECT_NO_THROW(gemm(good));  // in place
  EXPECT_TRUE(
      refused_with([&](auto& g) { g.residual = tall; },
                   {"gemm: residual is bf16[5, 8]", "gemm: out is bf16[4, 8]", "one shape"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.residual = wide; },
                           {"gemm: residual is f32", "a is bf16", "one type"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.residual = with_stride(residual, 1, 2); },
                           {"gemm: residual", "strides [8, 2]", "contiguous"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.residual = on_gpu(*g.residual); },
                           {"gemm: residual is on cuda:3"}));
  // A residual that overlaps out with other strides, in part, or as another type.
  const Tensor square(DType::bf16, {8, 8});
  EXPECT_TRUE(refused_with(
      [&](auto& g) {
        g.out = square.view().slice(0, 0, 4);
        g.residual = square.view().slice(0, 2, 6);
      },
      {"gemm: out", "shares part of the memory of gemm: residual", "the same view"}));
  EXPECT_TRUE(refused_with(
      [&](auto& g) {
        g.out = wide;
        g.residual = TensorView::contiguous(wide.view().data, DType::bf16, {4, 8});
      },
      {"gemm: out", "shares part of the memory of gemm: residual"}));
}

TEST_F(RefusedGemm, ScalesThatDoNotFitTheOutput) {
  const Tensor bytes(DType::i8, {4, 8}), floats(DType::e4m3, {4, 8}), one(DType::f32, {1});
  const Tensor two(DType::f32, {2}), scalar(DType::f32, {1, 1});
  EXPECT_TRUE(refused_with([&](auto& g) { g.out_scale = one; },
                           {"gemm: out is bf16[4, 8]", "out_scale is given", "leave it out"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.out = floats; },
                           {"gemm: out is e4m3[4, 8]", "no out_scale", "codes need the scale"}));
  good.out = bytes;
  good.out_scale = one;
  EXPECT_NO_THROW(gemm(good));
  EXPECT_TRUE(refused_with([&](auto& g) { g.out_scale = two; },
                           {"gemm: out_scale is f32[2]", "must have 1"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.out_scale = scalar; },
                           {"gemm: out_scale is f32[1, 1]", "rank must be 1"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.out_scale->dtype = DType::i32; },
                           {"gemm: out_scale is i32[1]", "one of f32"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.out_scale = on_gpu(*g.out_scale); },
                           {"gemm: out_scale is on cuda:3"}));
  EXPECT_TRUE(refused_with(
      [&](auto& g) { g.out_scale = TensorView::contiguous(g.out.data, DType::f32, {1}); },
      {"gemm: out", "shares memory with gemm: out_scale"}));
}

TEST_F(RefusedGemm, ARowForcedOnTheCpu) {
  Context ctx;
  ctx.row = "gemm_bf16";
  EXPECT_FALSE(supports(good, ctx));
  EXPECT_TRUE(refused([&] { gemm(good, ctx); }, {"gemm", "gemm_bf16"}));
}

}  // namespace
}  // namespace tessera::testing
