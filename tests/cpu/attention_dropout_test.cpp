// Dropout of attention on the CPU: how much is dropped, and what the choice depends on.
// SPDX-License-Identifier: MIT
#include "tests/core/threads.h"
#include "tests/cpu/attention_layout.h"

namespace tessera::testing {
namespace {

// With V the identity, element j of an output is the weight of key j: 0 exactly where dropped.
AttentionProblem identity_problem(float rate, uint64_t seed) {
  return {.num_heads = 4,
          .num_kv_heads = 1,
          .d_v = 64,
          .lengths = {{64, 64}, {64, 64}},
          .dropout = {.rate = rate, .seed = seed}};
}

Values weights_of(const AttentionProblem& problem, const Layout& layout = kLayouts[0]) {
  const AttentionData data(problem);
  for (const Tensor& v : data.v) {
    for_each_index(v, [&](const Index& i) { store_from_float(v, i, i[0] == i[2] ? 1.0f : 0.0f); });
  }
  const LaidOutAttention laid_out(problem, data, layout);
  cpu::attention_prefill(laid_out.args());
  return laid_out.out();
}

double dropped_ratio(const Values& weights) {
  return static_cast<double>(std::count(weights.begin(), weights.end(), 0.0)) /
         static_cast<double>(weights.size());
}

TEST(CpuAttentionDropout, DropsItsRateAndScalesTheRest) {
  const Values whole = weights_of(identity_problem(0.0f, 0));
  EXPECT_EQ(dropped_ratio(whole), 0.0);
  for (float rate : {0.01f, 0.1f, 0.5f, 0.9f}) {
    const Values weights = weights_of(identity_problem(rate, 7));
    const double sigma = std::sqrt(rate * (1.0 - rate) / static_cast<double>(weights.size()));
    EXPECT_NEAR(dropped_ratio(weights), rate, 5.0 * sigma);
    for (size_t i = 0; i < weights.size(); ++i) {
      if (weights[i] == 0.0) continue;
      ASSERT_NEAR(weights[i], whole[i] / (1.0 - rate), 1e-6 * weights[i]);
    }
  }
}

// The share of weights that are dropped in both or kept in both: 1/2 for independent choices.
TEST(CpuAttentionDropout, SeedHeadSequencePositionAndKeyDecide) {
  const Values weights = weights_of(identity_problem(0.5f, 7));
  EXPECT_EQ(weights, weights_of(identity_problem(0.5f, 7)));
  EXPECT_EQ(weights, weights_of(identity_problem(0.5f, 7), kLayouts[1]));
  const auto agreement = [&](const Values& other, size_t shift) {
    size_t same = 0;
    const size_t count = weights.size() - shift;
    for (size_t i = 0; i < count; ++i) same += (weights[i + shift] == 0.0) == (other[i] == 0.0);
    return static_cast<double>(same) / static_cast<double>(count);
  };
  for (uint64_t seed : {uint64_t{8}, uint64_t{7} | uint64_t{1} << 63}) {
    EXPECT_NEAR(agreement(weights_of(identity_problem(0.5f, seed)), 0), 0.5, 0.02);
  }
  for (size_t shift : {1, 4, 64, 4 * 64, 64 * 4 * 64}) {  // key, block, head, query, sequence
    EXPECT_NEAR(agreement(weights, shift), 0.5, 0.02) << shift;
  }
}

// The last queries of a sequence, the first sequences of a batch, any number of threads: same bits.
TEST(CpuAttentionDropout, ChunksBatchMatesAndThreadsDoNotMatter) {
  AttentionProblem problem{.num_heads = 6,
                           .lengths = {{140, 140}, {70, 200}},
                           .mask = mask_case("prefix"),
                           .softcap = 20.0f,
                           .has_sinks = true,
                           .has_slopes = true,
                           .dropout = {.rate = 0.2f, .seed = 5}};
  const AttentionData data(problem);
  const auto run = [&](const Layout& layout, int num_threads) {
    const Threads threads(num_threads);
    const LaidOutAttention laid_out(problem, data, layout);
    cpu::attention_prefill(laid_out.args());
    return std::pair(laid_out.out(), laid_out.lse());
  };
  const auto all = run(kLayouts[1], 1);
  EXPECT_EQ(run(kLayouts[3], 2), all);
  EXPECT_EQ(run(kLayouts[4], 7), all);
  const Values& whole = all.first;
  const AttentionProblem long_problem = problem;
  for (int64_t chunk : {1, 33, 64}) {
    problem.lengths = {{chunk, 140}};
    AttentionData last(long_problem);
    const Tensor& q = last.q[0];
    set_values(q.view().slice(0, 0, chunk), values_of(data.q[0].view().slice(0, 140 - chunk, 140)));
    const LaidOutAttention laid_out(problem, last, kLayouts[0]);
    cpu::attention_prefill(laid_out.args());
    const size_t end = 140 * 6 * 16, begin = end - static_cast<size_t>(chunk) * 6 * 16;
    const auto at = [&](size_t i) { return whole.begin() + static_cast<std::ptrdiff_t>(i); };
    EXPECT_EQ(laid_out.out(), Values(at(begin), at(end))) << chunk;
  }
}

}  // namespace
}  // namespace tessera::testing
