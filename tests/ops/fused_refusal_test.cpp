// Arguments that norm_gemm and attention_append refuse beyond what their parts refuse, and what
// they compute on the CPU: the same as the two calls.
// SPDX-License-Identifier: MIT
#include <cstring>
#include <vector>

#include "tessera/core/convert.h"
#include "tessera/ops/attention_append.h"
#include "tessera/ops/norm_gemm.h"
#include "tests/ops/refusal.h"

namespace tessera::testing {
namespace {

Tensor counted(std::initializer_list<int64_t> shape) {
  Tensor tensor(DType::f32, shape);
  for (int64_t i = 0; i < tensor.view().num_elements(); ++i) {
    tensor.view().as<float>()[i] = static_cast<float>(i % 7) - 2.5f;
  }
  return tensor;
}

std::vector<float> values_of(const Tensor& tensor) {
  const TensorView view = tensor.view();
  return {view.as<float>(), view.as<float>() + view.num_elements()};
}

class RefusedNormGemm : public ::testing::Test {
 protected:
  Tensor x = counted({2, 16}), weight = counted({16}), b = counted({8, 16});
  Tensor a{DType::f32, {2, 16}}, out{DType::f32, {2, 8}}, scale{DType::f32, {2}};
  NormGemmArgs good{.norm = {.x = x, .weight = weight, .out = a},
                    .gemm = {.a = a, .b = b.view(), .out = out}};

  ::testing::AssertionResult refused_after(const std::function<void(NormGemmArgs&)>& change,
                                           const Words& words) {
    NormGemmArgs args = good;
    change(args);
    if (supports(args)) return ::testing::AssertionFailure() << "supports() says yes";
    return refused([&] { norm_gemm(args); }, words);
  }
};

TEST_F(RefusedNormGemm, TheUnchangedCallComputesBoth) {
  ASSERT_TRUE(supports(good));
  norm_gemm(good);
  const std::vector<float> fused = values_of(out);
  rms_norm(good.norm);
  gemm(good.gemm);
  EXPECT_EQ(fused, values_of(out));
}

TEST_F(RefusedNormGemm, AnythingBetweenTheTwo) {
  const Tensor other(DType::f32, {2, 16});
  EXPECT_TRUE(refused_after([&](auto& g) { g.gemm.a = other; },
                            {"norm_gemm: norm.out is f32[2, 16]", "gemm.a", "the same tensor"}));
  EXPECT_TRUE(refused_after([&](auto& g) { g.norm.residual = other; },
                            {"norm_gemm: norm.residual is given", "product before"}));
}

TEST_F(RefusedNormGemm, AnOutThatOverwritesWhatIsRead) {
  const Tensor square = counted({16, 16});
  const TensorView rows = x.view();
  EXPECT_TRUE(refused_after(
      [&](auto& g) {
        g.gemm.b = square.view();
        g.gemm.out = rows;
      },
      {"norm_gemm: gemm.out", "norm.x"}));
}

TEST_F(RefusedNormGemm, TheRulesOfItsParts) {
  EXPECT_TRUE(refused_after([&](auto& g) { g.norm.eps = -1; }, {"rms_norm: eps is -1"}));
  EXPECT_TRUE(refused_after([&](auto& g) { g.gemm.out.shape[1] = 7; }, {"gemm: out is"}));
}

// Two sequences of three and no tokens, with pages of two.
class RefusedAppendAttention : public ::testing::Test {
 protected:
  Tensor k_pages = counted({3, 2, 1, 4}), v_pages = counted({3, 2, 1, 4});
  Tensor q = counted({2, 2, 4}), k = counted({2, 1, 4}), v = counted({2, 1, 4});
  Tensor out{DType::f32, {2, 2, 4}};
  Tensor table = ints({2, 2}, {0, 1, 2, 2}), lens = ints({2}, {3, 0}), slots = ints({2}, {2, -1});
  AppendAttentionArgs good{
      .append = {.k = k, .v = v, .slots = slots, .k_pages = k_pages, .v_pages = v_pages},
      .decode = {
          .q = q,
          .kv = {.k_pages = k_pages, .v_pages = v_pages, .page_table = table, .seq_lens = lens},
          .out = out}};

  ::testing::AssertionResult refused_after(const std::function<void(AppendAttentionArgs&)>& change,
                                           const Words& words) {
    AppendAttentionArgs args = good;
    change(args);
    if (supports(args)) return ::testing::AssertionFailure() << "supports() says yes";
    return refused([&] { attention_append(args); }, words);
  }
};

TEST_F(RefusedAppendAttention, TheUnchangedCallComputesBoth) {
  ASSERT_TRUE(supports(good));
  attention_append(good);
  const std::vector<float> fused = values_of(out);
  EXPECT_EQ(k_pages.view().as<float>()[2 * 4], k.view().as<float>()[0]) << "it is stored";
  kv_append(good.append);
  attention_decode(good.decode);
  EXPECT_EQ(fused, values_of(out));
}

TEST_F(RefusedAppendAttention, AnotherCacheOrOtherQueries) {
  const Tensor others = counted({3, 2, 1, 4});
  EXPECT_TRUE(refused_after(
      [&](auto& g) { g.append.v_pages = others; },
      {"attention_append: append.v_pages is f32[3, 2, 1, 4]", "decode.kv.v_pages", "same tensor"}));
  const Tensor queries = counted({2, 2, 4}), angles = counted({4, 4});
  EXPECT_TRUE(refused_after(
      [&](auto& g) { g.append.rope = KvRope{.q = queries, .positions = lens, .table = angles}; },
      {"attention_append: append.rope.q", "decode.q"}));
}

TEST_F(RefusedAppendAttention, AnotherNumberOfTokens) {
  const Tensor one = counted({1, 1, 4});
  const Tensor slot = ints({1}, {2});
  EXPECT_TRUE(refused_after(
      [&](auto& g) {
        g.append.k = g.append.v = one;
        g.append.slots = slot;
      },
      {"attention_append: append.k is f32[1, 1, 4]", "one new token for each sequence"}));
}

}  // namespace
}  // namespace tessera::testing
