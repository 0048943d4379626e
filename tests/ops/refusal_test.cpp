// Arguments the norms, rope, activations and softmax refuse, and the words they are refused with.
// Each case breaks one rule of a call that is otherwise taken.
// SPDX-License-Identifier: MIT
#include "tests/ops/refusal.h"

#include <functional>

#include "ops/check.h"
#include "tessera/ops/activation.h"
#include "tessera/ops/norm.h"
#include "tessera/ops/rope.h"
#include "tessera/ops/softmax.h"

namespace tessera::testing {
namespace {

// A view of any shape over memory that is too small for it: checks never read elements.
TensorView imagined(DType dtype, std::initializer_list<int64_t> shape, void* data) {
  return TensorView::contiguous(data, dtype, shape);
}

class RefusedNorm : public ::testing::Test {
 protected:
  Tensor x{DType::bf16, {4, 16}}, weight{DType::bf16, {16}}, out{DType::bf16, {4, 16}};
  Tensor residual{DType::bf16, {4, 16}}, codes{DType::e4m3, {4, 16}};
  Tensor one{DType::f32, {1}}, four{DType::f32, {4}};
  RmsNormArgs good{.x = x, .weight = weight, .out = out};

  // The good call with one change, for both norms.
  ::testing::AssertionResult refused_with(const std::function<void(RmsNormArgs&)>& change,
                                          std::initializer_list<std::string_view> words) {
    RmsNormArgs args = good;
    change(args);
    if (supports(args)) return ::testing::AssertionFailure() << "supports() says yes";
    const LayerNormArgs layer{.x = args.x,
                              .weight = args.weight,
                              .bias = {},
                              .out = args.out,
                              .residual = args.residual,
                              .static_scale = args.static_scale,
                              .token_scale = args.token_scale,
                              .eps = args.eps};
    if (supports(layer)) return ::testing::AssertionFailure() << "supports(layer_norm) says yes";
    const auto first = refused([&] { layer_norm(layer); }, words);
    return first ? refused([&] { rms_norm(args); }, words) : first;
  }
};

TEST_F(RefusedNorm, TheUnchangedCallIsTaken) {
  EXPECT_TRUE(supports(good));
  EXPECT_NO_THROW(rms_norm(good));
}

TEST_F(RefusedNorm, WrongTypes) {
  EXPECT_TRUE(refused_with([&](auto& a) { a.x.dtype = DType::i32; },
                           {"norm: x is i32[4, 16]", "f32, f16, bf16"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.weight.dtype = DType::f16; },
                           {"norm: weight is f16", "x is bf16", "one type"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.out.dtype = DType::f16; },
                           {"norm: out is f16[4, 16]", "bf16, e4m3, i8"}));
  EXPECT_TRUE(refused_with(
      [&](auto& a) {
        a.residual = residual;
        a.residual->dtype = DType::f16;
      },
      {"norm: residual is f16", "x is bf16"}));
}

TEST_F(RefusedNorm, WrongShapesAndStrides) {
  const Tensor short_weight(DType::bf16, {15}), short_out(DType::bf16, {4, 15});
  EXPECT_TRUE(refused_with([&](auto& a) { a.weight = short_weight; },
                           {"norm: weight is bf16[15]", "15 elements", "must have 16"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.out = short_out; },
                           {"norm: out is bf16[4, 15]", "x is bf16[4, 16]", "one shape"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.x = x.view().slice(1, 0, 8).transposed(0, 1); },
                           {"norm: x is bf16[8, 4] strides [1, 16]", "contiguous"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.out = with_stride(a.out, 0, 0); },
                           {"norm: out", "written", "axis 0 may not have stride 0"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.weight = with_stride(a.weight, 0, 2); },
                           {"norm: weight", "strides [2]", "contiguous"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.x = imagined(DType::bf16, {}, x.view().data); },
                           {"norm: x is bf16[]", "at least one axis"}));
  EXPECT_TRUE(refused_with(
      [&](auto& a) {
        a.x = imagined(DType::bf16, {4, 0}, nullptr);
      },
      {"norm: x is bf16[4, 0]", "empty"}));
  EXPECT_TRUE(refused_with(
      [&](auto& a) {
        a.x = imagined(DType::bf16, {1, ops::kMaxCols + 2}, x.view().data);
      },
      {"norm: x", "1073741826", "at most 1073741824"}));
}

TEST_F(RefusedNorm, MixedDevicesAndMissingMemory) {
  EXPECT_TRUE(refused_with([&](auto& a) { a.weight = on_gpu(a.weight); },
                           {"norm: weight is on cuda:3", "x on cpu", "one device"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.out = on_gpu(a.out); },
                           {"norm: out is on cuda:3", "x on cpu"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.x.data = nullptr; }, {"norm: x", "null"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.x.rank = 7; }, {"norm: x has rank 7", "at most 6"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.x.shape[0] = -1; }, {"norm: x has size -1", "axis 0"}));
}

TEST_F(RefusedNorm, ScalesThatDoNotFitTheOutput) {
  EXPECT_TRUE(refused_with([&](auto& a) { a.out = codes; },
                           {"norm: out is e4m3", "0 scales", "static_scale or token_scale"}));
  EXPECT_TRUE(refused_with(
      [&](auto& a) {
        a.out = codes;
        a.static_scale = one;
        a.token_scale = four;
      },
      {"norm: out is e4m3", "2 scales", "either"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.static_scale = one; },
                           {"norm: out is bf16", "1 scales", "leave them out"}));
  EXPECT_TRUE(refused_with(
      [&](auto& a) {
        a.out = codes;
        a.token_scale = one;
      },
      {"norm: token_scale is f32[1]", "must have 4", "row of x"}));
  EXPECT_TRUE(refused_with(
      [&](auto& a) {
        a.out = codes;
        a.static_scale = four;
      },
      {"norm: static_scale is f32[4]", "must have 1"}));
  EXPECT_TRUE(refused_with(
      [&](auto& a) {
        a.out = codes;
        a.static_scale = residual.view().slice(0, 0, 1).slice(1, 0, 1);
      },
      {"norm: static_scale is bf16", "f32"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.eps = -1.0f; }, {"norm: eps is -1", "not negative"}));
}

TEST_F(RefusedNorm, SharedMemory) {
  EXPECT_TRUE(refused_with([&](auto& a) { a.residual = x; },
                           {"norm: residual", "shares memory with", "norm: x"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.residual = out; },
                           {"norm: out", "shares memory with", "norm: residual"}));
  EXPECT_TRUE(refused_with(
      [&](auto& a) {
        a.out = imagined(DType::i8, {4, 16}, x.view().data);
        a.static_scale = one;
      },
      {"norm: out is i8[4, 16]", "shares part of the memory of", "norm: x"}));
}

TEST(RefusedLayerNorm, ABiasOfAnotherWidth) {
  const Tensor x(DType::f32, {2, 8}), weight(DType::f32, {8}), bias(DType::f32, {7});
  EXPECT_TRUE(refused([&] { layer_norm({.x = x, .weight = weight, .bias = bias, .out = x}); },
                      {"layer_norm: bias is f32[7]", "must have 8"}));
}

class RefusedRope : public ::testing::Test {
 protected:
  Tensor q{DType::f16, {3, 4, 8}}, k{DType::f16, {3, 2, 8}}, positions{DType::i32, {3}};
  Tensor table = make_rope_table(10, 8, 10000.0);
  RopeArgs good{.q = q, .k = k, .positions = positions, .table = table};

  void SetUp() override {
    for (int i = 0; i < 3; ++i) positions.view().as<int32_t>()[i] = i;
  }
  ::testing::AssertionResult refused_with(const std::function<void(RopeArgs&)>& change,
                                          std::initializer_list<std::string_view> words) {
    RopeArgs args = good;
    change(args);
    if (supports(args)) return ::testing::AssertionFailure() << "supports() says yes";
    return refused([&] { rope(args); }, words);
  }
};

TEST_F(RefusedRope, TheUnchangedCallIsTaken) {
  EXPECT_TRUE(supports(good));
  EXPECT_NO_THROW(rope(good));
}

TEST_F(RefusedRope, WrongTensors) {
  const Tensor odd(DType::f32, {10, 7}), wide(DType::f32, {10, 10}), two(DType::i32, {2});
  const Tensor k_tokens(DType::f16, {2, 2, 8}), k_bf16(DType::bf16, {3, 2, 8});
  EXPECT_TRUE(refused_with([&](auto& a) { a.q = two; }, {"rope: q is i32[2]", "f32, f16, bf16"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.q = a.q.slice(0, 0, 1), a.q.rank = 2; },
                           {"rope: q", "rank 2", "must be 3"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.q = with_stride(a.q, 2, 2); },
                           {"rope: q", "elements of a head must be contiguous"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.table = odd; }, {"rope: table is f32[10, 7]", "even"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.table = wide; },
                           {"rope: q has head_dim 8", "rotates 10", "at most head_dim"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.table = a.table.slice(1, 0, 4); },
                           {"rope: table", "strides [8, 1]", "contiguous"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.k = k_tokens; },
                           {"rope: k is f16[2, 2, 8]", "q is f16[3, 4, 8]", "tokens"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.k = k_bf16; }, {"rope: k is bf16", "q is f16"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.k = a.q; }, {"rope: k", "shares memory with"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.positions = two; },
                           {"rope: positions is i32[2]", "must have 3", "token of q"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.positions.dtype = DType::f32; },
                           {"rope: positions is f32[3]", "i32, i64"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.table = on_gpu(a.table); },
                           {"rope: table is on cuda:3", "q on cpu"}));
}

TEST_F(RefusedRope, APositionOutsideTheTableChangesNothing) {
  q.view().as<F16>()[0] = {0x1234};
  for (int32_t position : {10, -1}) {
    positions.view().as<int32_t>()[2] = position;
    EXPECT_TRUE(refused([&] { rope(good); },
                        {"rope: positions[2] is " + std::to_string(position), "0 to 9"}));
    EXPECT_EQ(q.view().as<F16>()[0].bits, 0x1234);
  }
}

TEST(RefusedActivation, WrongTensors) {
  const Tensor x(DType::f32, {4, 6}), up(DType::f32, {4, 5}), half(DType::f16, {4, 6});
  const Tensor out(DType::f32, {4, 6});
  const ActivationArgs good{.x = x, .up = {}, .out = out};
  EXPECT_TRUE(supports(good));
  const auto refused_with = [&](const std::function<void(ActivationArgs&)>& change,
                                std::initializer_list<std::string_view> words) {
    ActivationArgs args = good;
    change(args);
    EXPECT_FALSE(supports(args));
    return refused([&] { activation(args); }, words);
  };
  EXPECT_TRUE(refused_with([&](auto& a) { a.up = up; },
                           {"activation: up is f32[4, 5]", "x is f32[4, 6]", "one shape"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.up = half; }, {"activation: up is f16", "x is f32"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.out = half; }, {"activation: out is f16", "x is f32"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.x.dtype = DType::e4m3; },
                           {"activation: x is e4m3[4, 6]", "f32, f16, bf16"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.up = on_gpu(x); }, {"activation: up is on cuda:3"}));
  EXPECT_TRUE(refused_with(
      [&](auto& a) { a.out = x, a.out.data = x.view().as<float>() + 3, a.out.shape[0] = 4; },
      {"activation: out", "shares part of the memory of", "activation: x"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.kind = static_cast<Activation>(9); },
                           {"activation: kind", "gelu_tanh"}));
}

TEST(RefusedSoftmax, WrongTensors) {
  const Tensor x(DType::f32, {4, 6}), out(DType::f32, {4, 6}), half(DType::f16, {4, 6});
  const Tensor mask(DType::u8, {2, 6}), narrow_mask(DType::u8, {2, 5}), none(DType::u8, {0, 6});
  const SoftmaxArgs good{.x = x, .out = out, .mask = mask};
  EXPECT_TRUE(supports(good));
  const auto refused_with = [&](const std::function<void(SoftmaxArgs&)>& change,
                                std::initializer_list<std::string_view> words) {
    SoftmaxArgs args = good;
    change(args);
    EXPECT_FALSE(supports(args));
    return refused([&] { softmax(args); }, words);
  };
  EXPECT_TRUE(refused_with([&](auto& a) { a.out = half; }, {"softmax: out is f16", "x is f32"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.mask = half; }, {"softmax: mask is f16", "f32, u8"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.mask = narrow_mask; },
                           {"softmax: mask is u8[2, 5]", "x is f32[4, 6]", "6 columns"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.mask = none; },
                           {"softmax: mask is u8[0, 6]", "at least one row"}));
  EXPECT_TRUE(refused_with([&](auto& a) { a.mask = a.out; }, {"softmax: out", "shares memory"}));
  EXPECT_TRUE(
      refused_with([&](auto& a) { a.mask = on_gpu(mask); }, {"softmax: mask is on cuda:3"}));
}

}  // namespace
}  // namespace tessera::testing
