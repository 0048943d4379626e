// Arguments that pruning and its product refuse, and the words they are refused with.
// SPDX-License-Identifier: MIT
#include <functional>

#include "tessera/ops/sparse.h"
#include "tests/ops/refusal.h"

namespace tessera::testing {
namespace {

class RefusedSparse : public ::testing::Test {
 protected:
  Tensor w{DType::bf16, {40, 64}}, values{DType::bf16, {40, 32}}, meta{DType::i32, {2, 2, 32}};
  Tensor a{DType::bf16, {4, 64}}, out{DType::bf16, {4, 40}};
  Prune24Args prune{.w = w, .out_values = values, .out_meta = meta};
  Gemm24Args good{.a = a, .values = values, .meta = meta, .out = out};

  ::testing::AssertionResult refused_with(const std::function<void(Gemm24Args&)>& change,
                                          std::initializer_list<std::string_view> words) {
    Gemm24Args args = good;
    change(args);
    if (supports(args)) return ::testing::AssertionFailure() << "supports() says yes";
    return refused([&] { gemm_2_4(args); }, words);
  }
};

TEST_F(RefusedSparse, TheUnchangedCallsAreTaken) {
  EXPECT_NO_THROW(prune_2_4(prune));
  EXPECT_TRUE(supports(good));
  EXPECT_NO_THROW(gemm_2_4(good));
  EXPECT_NO_THROW(expand_2_4({.values = values, .meta = meta, .out = w}));
}

TEST_F(RefusedSparse, WrongTypes) {
  EXPECT_TRUE(refused_with([](auto& g) { g.a.dtype = DType::f32; }, {"gemm_2_4: a is f32[4, 64]"}));
  EXPECT_TRUE(refused_with([](auto& g) { g.values.dtype = DType::f16; }, {"gemm_2_4: values"}));
  EXPECT_TRUE(refused_with([](auto& g) { g.out.dtype = DType::f16; }, {"gemm_2_4: out"}));
}

TEST_F(RefusedSparse, WrongShapes) {
  const Tensor odd(DType::bf16, {4, 48});
  EXPECT_TRUE(refused_with([&](auto& g) { g.a = odd; },
                           {"gemm_2_4: a is bf16[4, 48]", "multiple of 32", "pad"}));
  const Tensor short_values(DType::bf16, {40, 16});
  EXPECT_TRUE(refused_with([&](auto& g) { g.values = short_values; },
                           {"gemm_2_4: values is bf16[40, 16]", "must be [40, 32]"}));
  const Tensor short_meta(DType::i32, {1, 2, 32});
  EXPECT_TRUE(refused_with([&](auto& g) { g.meta = short_meta; },
                           {"gemm_2_4: meta is i32[1, 2, 32]", "must be [2, 2, 32]"}));
  const Tensor wide(DType::bf16, {4, 48});
  EXPECT_TRUE(refused_with([&](auto& g) { g.out = wide; },
                           {"gemm_2_4: out is bf16[4, 48]", "must be [4, 40]"}));
}

TEST_F(RefusedSparse, AnOutputThatIsAnInput) {
  const Tensor square(DType::bf16, {40, 64});
  good.out = square.view().slice(0, 0, 4).slice(1, 0, 40);
  EXPECT_TRUE(
      refused_with([&](auto& g) { g.a = square.view().slice(0, 0, 4); }, {"gemm_2_4: out"}));
}

TEST_F(RefusedSparse, PruningOnAGpu) {
  prune.w.device = cuda_device();
  EXPECT_TRUE(refused([&] { prune_2_4(prune); }, {"prune_2_4: w", "offline step on the cpu"}));
}

}  // namespace
}  // namespace tessera::testing
