// What attention's problems promise: costs as the field counts them, weights of integers that are 0
// or equal, and samples of large ones that agree with the whole.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "bench/instance.h"
#include "bench/problem.h"
#include "bench/verify.h"
#include "tests/bench/attention_operands.h"

namespace tessera::bench {
namespace {

constexpr RowKey kBf16{DType::bf16, DType::bf16};
constexpr RowKey kF32{DType::f32, DType::f32};
constexpr int64_t kSmallBytes = 200 * 1000;  // keeps this to seconds

const ProblemMaker& maker() { return *find_maker("attention_prefill"); }

Problem sizes_of(const Shape& shape) { return maker().make(kBf16, shape, Fill::none, 0); }

TEST(AttentionProblem, CountsPairsThatAreSeenAndACausalSquareAsHalf) {
  const Shape full{{"batch", 2}, {"q_len", 100}, {"heads", 4}, {"kv_heads", 2}, {"d", 64}};
  const double square = 2 * 100 * 100, per_pair = 4.0 * 4 * 64;
  EXPECT_EQ(sizes_of(full).flops, per_pair * square);
  EXPECT_EQ(sizes_of(with_value(full, "causal", 1)).flops, per_pair * square / 2);
  EXPECT_EQ(sizes_of(with_value(full, "intervals", 1)).flops, per_pair * square / 2);
  const Shape window = with_value(with_value(full, "causal", 1), "left", 9);
  EXPECT_EQ(sizes_of(window).flops, per_pair * 2 * (100 * 10 - 45));
  const Shape chunk = with_value(with_value(full, "causal", 1), "kv_len", 300);
  EXPECT_EQ(sizes_of(chunk).flops, per_pair * 2 * (100 * 201 + 4950));
  const Shape narrow = with_value(full, "dv", 32);
  EXPECT_EQ(sizes_of(narrow).flops, per_pair * square * 0.75);
}

TEST(AttentionProblem, CountsQueriesKeysValuesAndOutOnce) {
  const Shape shape{{"batch", 2},    {"q_len", 10}, {"kv_len", 20}, {"heads", 4},
                    {"kv_heads", 2}, {"d", 64},     {"dv", 32}};
  const double q = 2 * 10 * 4, k = 2 * 20 * 2;
  const double bytes = 2 * (q * (64 + 32) + k * (64 + 32));
  EXPECT_EQ(sizes_of(shape).bytes, bytes);
  EXPECT_EQ(sizes_of(with_value(shape, "page", 16)).bytes, bytes);  // not the pool's spare pages
}

TEST(AttentionProblem, OfIntegersLeavesNothingToRound) {
  int num_checked = 0;
  for (const Shape& shape : maker().test_shapes) {
    if (!maker().fits(kF32, shape) || value_of(shape, "lse") == 0) continue;
    if (value_of(shape, "alibi") != 0 || sizes_of(shape).storage_bytes > kSmallBytes) continue;
    SCOPED_TRACE(to_string(shape));
    const Problem problem = maker().make(kF32, shape, Fill::integers, 7);
    expect_powers_of_two(problem, num_checked);
  }
  EXPECT_GT(num_checked, 1000);
}

// Both edges of what a query sees are chosen by some, and the means of several keys occur.
TEST(AttentionProblem, OfIntegersChoosesEdgesAndSeveralKeys) {
  const Shape shape{{"batch", 1}, {"q_len", 128}, {"heads", 8}, {"d", 64}, {"lse", 1}};
  const Problem problem = maker().make(kF32, shape, Fill::integers, 7);
  const std::vector<Tensor> result = run_on_cpu(problem);
  const TensorView lse = result.back();
  int num_single = 0, num_all = 0;
  for (int64_t i = 0; i < lse.num_elements(); ++i) {
    const float value = lse.as<float>()[i];
    if (std::abs(value) < 1e-5f) ++num_single;
    if (std::abs(value - std::log(128.0f)) < 1e-5f) ++num_all;
  }
  EXPECT_GT(num_single, 512);
  EXPECT_GT(num_all, 64);
}

// A sample computes its queries alone, with the mask spelt out, and must find what the whole has.
TEST(AttentionProblem, IsSampledByQueriesThatAgreeWithTheWhole) {
  int num_sampled = 0;
  for (const Shape& shape : maker().test_shapes) {
    for (const RowKey key : {kBf16, RowKey{DType::e4m3, DType::bf16}}) {
      if (!maker().fits(key, shape)) continue;
      if (maker().make(key, shape, Fill::none, 0).storage_bytes > kSmallBytes) continue;
      for (const Fill fill : {Fill::integers, Fill::normal}) {
        const Problem problem = maker().make(key, shape, fill, 7);
        if (!problem.sample) continue;
        SCOPED_TRACE(std::string(name(key.in)) + " " + to_string(shape));
        Instance instance(problem, cpu_device());
        instance.reset();
        instance.run(0, {});
        EXPECT_EQ(Reference(maker(), key, problem, 0).check(instance), "");
        ++num_sampled;
      }
    }
  }
  EXPECT_GT(num_sampled, 100);
}

TEST(AttentionProblem, IsFoundWrongByASample) {
  const Shape shape{{"batch", 2}, {"q_len", 40}, {"heads", 2}, {"d", 32}, {"causal", 1}};
  const Problem problem = maker().make(kF32, shape, Fill::normal, 7);
  ASSERT_TRUE(problem.sample);
  Instance instance(problem, cpu_device());
  instance.reset();
  EXPECT_NE(Reference(maker(), kF32, problem, 0).check(instance), "");  // nothing was computed
}

// Pages that belong to nobody, tails of pages, and pages before every query's window hold NaN.
TEST(AttentionProblem, PoisonsWhatNoQuerySees) {
  const Shape shape{{"batch", 1}, {"q_len", 16}, {"kv_len", 100}, {"heads", 1},
                    {"d", 32},    {"causal", 1}, {"left", 7},     {"page", 16}};
  const Problem problem = maker().make(kF32, shape, Fill::normal, 7);
  const Operand* k = find(problem, "k");
  const Operand* table = find(problem, "k_page_table");
  ASSERT_TRUE(k != nullptr && table != nullptr);
  const auto is_poisoned = [&](int64_t token) {
    const int32_t page = table->host.view().as<int32_t>()[token / 16];
    return std::isnan(k->host.view().as<float>()[(page * 16 + token % 16) * 32]);
  };
  EXPECT_TRUE(is_poisoned(63));  // the first query stands at 84 and sees 77 on, of page 4
  EXPECT_FALSE(is_poisoned(64));
  EXPECT_FALSE(is_poisoned(99));
  EXPECT_TRUE(is_poisoned(100));
}

}  // namespace
}  // namespace tessera::bench
