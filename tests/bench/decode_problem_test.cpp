// What decode problems rest on: every number they read is there, integers leave no room for
// rounding, and samples agree with the whole.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "bench/instance.h"
#include "bench/problem.h"
#include "bench/problems/decode_layout.h"
#include "bench/verify.h"
#include "tessera/core/convert.h"
#include "tests/bench/attention_operands.h"

namespace tessera::bench {
namespace {

constexpr int64_t kDecodeBytes = 1200 * 1000;
constexpr RowKey kF32Decode{DType::f32, DType::f32};
constexpr RowKey kBf16Decode{DType::bf16, DType::bf16};

const ProblemMaker& decode_maker() { return *find_maker("attention_decode"); }

Problem sizes_of(RowKey key, const Shape& shape) {
  return decode_maker().make(key, shape, Fill::none, 0);
}

template <class Test>
void for_each_small_shape(RowKey key, const Test& test) {
  for (const Shape& shape : decode_maker().test_shapes) {
    if (!decode_maker().fits(key, shape) || sizes_of(key, shape).storage_bytes > kDecodeBytes)
      continue;
    SCOPED_TRACE(to_string(shape));
    test(shape);
  }
}

// Poison is NaN, or a scale that is: it would show in whatever has met it.
TEST(DecodeProblem, ReadsNothingThatIsPoisoned) {
  int num_checked = 0;
  for_each_small_shape(kF32Decode, [&](const Shape& shape) {
    for (const Fill fill : {Fill::integers, Fill::normal}) {
      const Problem problem = decode_maker().make(kF32Decode, shape, fill, 7);
      const std::vector<Tensor> result = run_on_cpu(problem);
      for (size_t i = 0; i < result.size(); ++i) {
        if (problem.operands[i].role == Role::input) continue;
        const TensorView out = result[i];
        for (int64_t j = 0; j < out.num_elements(); ++j) {
          ASSERT_FALSE(std::isnan(out.as<float>()[j])) << problem.operands[i].name << " " << j;
        }
        ++num_checked;
      }
    }
  });
  EXPECT_GT(num_checked, 200);
}

TEST(DecodeProblem, OfIntegersLeavesNothingToRound) {
  int num_checked = 0;
  for_each_small_shape(kF32Decode, [&](const Shape& shape) {
    if (value_of(shape, "lse") == 0 || value_of(shape, "alibi") != 0) return;
    const Problem problem = decode_maker().make(kF32Decode, shape, Fill::integers, 7);
    expect_powers_of_two(problem, num_checked);
  });
  EXPECT_GT(num_checked, 500);
}

TEST(DecodeProblem, IsSampledBySequencesThatAgreeWithTheWhole) {
  int num_sampled = 0;
  for_each_small_shape(kBf16Decode, [&](const Shape& shape) {
    const Problem problem = decode_maker().make(kBf16Decode, shape, Fill::normal, 7);
    if (!problem.sample) return;
    Instance instance(problem, cpu_device());
    instance.reset();
    EXPECT_NE(Reference(decode_maker(), kBf16Decode, problem, 0).check(instance),
              "");  // nothing computed yet
    instance.run(0, {});
    EXPECT_EQ(Reference(decode_maker(), kBf16Decode, problem, 0).check(instance), "");
    ++num_sampled;
  });
  EXPECT_GT(num_sampled, 20);
}

// Rows beyond a length, pages before a window, and keys that lie in their tail instead.
TEST(DecodeProblem, PoisonsWhatNoQuerySees) {
  const Shape shape{{"batch", 1}, {"kv_len", 100}, {"heads", 1},
                    {"d", 32},    {"window", 30},  {"page", 32}};
  const Problem plain = decode_maker().make(kF32Decode, shape, Fill::normal, 7);
  const auto is_poisoned = [&](int64_t token) {
    const int32_t page = find(plain, "page_table")->host.view().as<int32_t>()[token / 32];
    return std::isnan(
        find(plain, "k_pages")->host.view().as<float>()[(page * 32 + token % 32) * 32]);
  };
  EXPECT_TRUE(is_poisoned(63));  // the query stands at 99 and sees 70 on, of page 2
  EXPECT_FALSE(is_poisoned(64));
  EXPECT_FALSE(is_poisoned(99));
  EXPECT_TRUE(is_poisoned(100));
  const Problem kivi = decode_maker().make(
      kF32Decode, with_value(shape, "k_format", option(KvFormat::int4)), Fill::normal, 7);
  const auto first_scale = [&](int64_t token) {
    const int32_t page = find(kivi, "page_table")->host.view().as<int32_t>()[token / 32];
    return to_float(find(kivi, "k_scales")->host.view().as<F16>()[page * 64]);
  };
  EXPECT_FALSE(std::isnan(first_scale(64)));
  EXPECT_TRUE(std::isnan(first_scale(96)));
}

TEST(DecodeProblem, CountsQueriesAndTheRowsThatAreRead) {
  const Shape shape{{"batch", 8}, {"kv_len", 4096}, {"heads", 32}, {"kv_heads", 8}, {"d", 128}};
  const double queries = 2 * 8 * 32 * 128 * 2, rows = 2.0 * 8 * 4096 * 8;
  EXPECT_EQ(sizes_of(kBf16Decode, shape).bytes, queries + rows * 256);
  EXPECT_EQ(sizes_of(kBf16Decode, with_value(shape, "page", 16)).bytes, queries + rows * 256);
  EXPECT_EQ(sizes_of(kBf16Decode, with_value(shape, "k_format", option(KvFormat::e4m3))).bytes,
            queries + rows * 128);
  EXPECT_EQ(sizes_of(kBf16Decode, with_value(shape, "k_format", option(KvFormat::int8))).bytes,
            queries + rows * 130);
  EXPECT_EQ(
      sizes_of(kBf16Decode, with_value(shape, "k_format", option(KvFormat::int4_token))).bytes,
      queries + rows * 68);
  EXPECT_EQ(sizes_of(kBf16Decode, shape).flops, 4.0 * 8 * 4096 * 32 * 128);
  EXPECT_EQ(sizes_of(kBf16Decode, with_value(shape, "window", 100)).flops,
            4.0 * 8 * 100 * 32 * 128);
}

// Lists are in disorder, and what they hold is what a query sees, as far as it lies behind it.
TEST(DecodeLayout, SeesWhatIsListed) {
  const Shape shape{{"batch", 2}, {"q_len", 2},  {"kv_len", 100}, {"heads", 1},
                    {"d", 32},    {"keys", 100}, {"page", 16}};
  const DecodeOptions o = decode_options(shape, Fill::normal);
  const DecodeLayout layout(o, 7);
  int num_keys = 0;
  for (int64_t s = 0; s < 2; ++s) {
    for (int64_t i = 0; i < 2; ++i) {
      std::vector<int64_t> listed(layout.keys(s, i).begin(), layout.keys(s, i).end());
      std::ranges::sort(listed);
      std::erase_if(listed, [&](int64_t key) { return key > 98 + i; });
      EXPECT_EQ(layout.seen_by(s, i), listed);
      num_keys += static_cast<int>(listed.size());
    }
  }
  EXPECT_GT(num_keys, 10);
}

}  // namespace
}  // namespace tessera::bench
