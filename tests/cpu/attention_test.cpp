// Attention on the CPU against its definition: exactly where numbers allow, else against float64.
// SPDX-License-Identifier: MIT
#include "cpu/attention_rows.h"
#include "tests/cpu/attention_bound.h"

namespace tessera::testing {
namespace {

Expected expect_all(const PagedCase& c, const Scores& scores) {
  Expected expected;
  for (const Part& part : c.parts()) {
    for (int64_t token = 0; token < part.num_queries; ++token) {
      for (int64_t head = 0; head < c.shape().num_heads; ++head) {
        expect_query(c.shape(), part, token, head, scores, expected);
      }
    }
  }
  return expected;
}

// At every level of instructions this CPU has.
void expect_close(const PagedCase& c, const Scores& scores = {}) {
  const Expected expected = expect_all(c, scores);
  for (SimdLevel level : cpu::simd_levels()) {
    SCOPED_TRACE(::testing::Message() << name(level));
    fill(c.out, [] { return kNan; });
    cpu::attention_prefill(c.prefill(scores), level);
    EXPECT_TRUE(all_close(values_of(c.out), expected.want, expected.bound));
  }
}

class CpuAttention : public ::testing::TestWithParam<DType> {
 protected:
  HeadShape shape(int64_t num_heads, int64_t num_kv_heads, int64_t head_dim) const {
    return {GetParam(), num_heads, num_kv_heads, head_dim};
  }
};

TEST_P(CpuAttention, IsCloseForRaggedChunksOfEveryLength) {
  const HeadShape heads = shape(6, 2, 64);
  const Sequence tokens(heads, 130, 1);
  std::vector<Part> parts;
  for (int64_t length : {1, 15, 16, 17, 63, 64, 65, 130}) {
    parts.push_back({&tokens, length, (length + 1) / 2});
  }
  parts.push_back({&tokens, 130, 130});
  parts.push_back({&tokens, 64, 0});
  expect_close(PagedCase(heads, parts, 16));
}

TEST_P(CpuAttention, IsCloseForEveryHeadDimAndGrouping) {
  for (const HeadShape& heads :
       {shape(2, 2, 64), shape(4, 1, 96), shape(6, 3, 128), shape(2, 1, 256), shape(3, 3, 8),
        shape(8, 1, 40), shape(2, 2, 80), shape(2, 1, 5), shape(7, 1, 1)}) {
    SCOPED_TRACE(::testing::Message()
                 << heads.num_heads << " " << heads.num_kv_heads << " " << heads.head_dim);
    const Sequence a(heads, 70, 1), b(heads, 9, 2);
    expect_close(PagedCase(heads, {{&a, 70, 12}, {&b, 9, 9}}, 8));
  }
}

TEST_P(CpuAttention, IsCloseUnderWindowsCapsAndScales) {
  const HeadShape heads = shape(4, 2, 64);
  const Sequence a(heads, 140, 1, 2.0), b(heads, 30, 2, 2.0);
  const PagedCase c(heads, {{&a, 140, 90}, {&b, 30, 30}}, 8);
  for (int64_t window : {2, 16, 63, 64, 65, 100, 1000}) {
    SCOPED_TRACE(::testing::Message() << "window " << window);
    expect_close(c, {.window = window});
  }
  expect_close(c, {.softcap = 5.0f});
  expect_close(c, {.scale = 0.3f, .window = 33, .softcap = 50.0f});
  expect_close(c, {.scale = 0.2f});
}

// Equal weights are 1 each, so the output is a sum of integers over their number, rounded twice: to
// float and to the dtype.
TEST_P(CpuAttention, AQueryOfZerosGivesTheMeanOfTheValues) {
  const HeadShape heads = shape(4, 2, 24);
  const Sequence tokens(heads, 100, 1);
  fill(tokens.q, [] { return 0.0; });
  fill_integers(tokens.v, 2, -9, 9);
  const PagedCase c(heads, {{&tokens, 100, 40}}, 16);
  Tensor want(GetParam(), {40, 4, 24});
  for_each_index(want, [&](const Index& i) {
    const int64_t num_keys = 61 + i[0];
    double sum = 0.0;
    for (int64_t key = 0; key < num_keys; ++key) sum += value_at(tokens.v, key, i[1] / 2, i[2]);
    store_from_float(want, i, static_cast<float>(sum) / static_cast<float>(num_keys));
  });
  for (SimdLevel level : cpu::simd_levels()) {
    cpu::attention_prefill(c.prefill(), level);
    EXPECT_TRUE(same_bytes(c.out, want)) << name(level);
  }
}

// With a scale of ln 2 the factor from products to base 2 is exactly 1. Products lie in [-4, 4], so
// weights are powers of two from 2^-8 to 1, and sums of 150 of them times at most 4 fit in 24 bits.
TEST_P(CpuAttention, IsExactWhereWeightsArePowersOfTwo) {
  const HeadShape heads = shape(4, 2, 16);
  const Sequence tokens(heads, 150, 1);
  fill(tokens.q, [] { return 0.0; });
  fill_integers(tokens.q.view().slice(2, 0, 4), 1, 0, 1);
  fill_integers(tokens.k, 2, -1, 1);
  fill_integers(tokens.v, 3, -4, 4);
  const PagedCase c(heads, {{&tokens, 150, 150}}, 8);
  const Scores scores{.scale = 0.6931471805599453f};
  Tensor want(GetParam(), {150, 4, 16});
  for_each_index(want, [&](const Index& i) {
    double sum = 0.0, total = 0.0;
    for (int64_t key = 0; key <= i[0]; ++key) {
      double x = 0.0;
      for (int64_t d = 0; d < 16; ++d)
        x += value_at(tokens.q, i[0], i[1], d) * value_at(tokens.k, key, i[1] / 2, d);
      sum += std::exp2(x);
      total += std::exp2(x) * value_at(tokens.v, key, i[1] / 2, i[2]);
    }
    store_from_float(want, i, static_cast<float>(total) / static_cast<float>(sum));
  });
  for (SimdLevel level : cpu::simd_levels()) {
    cpu::attention_prefill(c.prefill(scores), level);
    EXPECT_TRUE(same_bytes(c.out, want)) << name(level);
  }
}

TEST_P(CpuAttention, AWindowOfOneGivesTheTokensOwnValue) {
  const HeadShape heads = shape(6, 2, 40);
  const Sequence tokens(heads, 90, 1);
  const PagedCase c(heads, {{&tokens, 90, 90}}, 16);
  cpu::attention_prefill(c.prefill({.window = 1}));
  for_each_index(c.out, [&](const Index& i) {
    ASSERT_EQ(load_as_float(c.out, i), value_at(tokens.v, i[0], i[1] / 3, i[2]));
  });
}

// The other scores lie more than 126 below, where 2^x is 0.
TEST_P(CpuAttention, AKeyFarAboveTheRestGivesItsValue) {
  const HeadShape heads = shape(2, 1, 16);
  const Sequence tokens(heads, 100, 1);
  fill(tokens.q, [] { return 16.0; });
  for (int64_t chosen : {0, 3, 63, 64, 99}) {
    fill(tokens.k, [] { return 0.0; });
    fill(tokens.k.view().slice(0, chosen, chosen + 1), [] { return 16.0; });
    const PagedCase c(heads, {{&tokens, 100, 1}}, 16);
    cpu::attention_decode(c.decode());
    for_each_index(c.out, [&](const Index& i) {
      ASSERT_EQ(load_as_float(c.out, i), value_at(tokens.v, chosen, 0, i[2])) << chosen;
    });
  }
}

TEST_P(CpuAttention, AnIdleSlotGivesZerosAndNoTokensAreFine) {
  const HeadShape heads = shape(6, 2, 64);
  const Sequence tokens(heads, 20, 1);
  const PagedCase idle(heads, {{&tokens, 20, 1}, {&tokens, 0, 0}, {&tokens, 20, 1}}, 16);
  // The middle sequence is idle and has the second row of q; as a chunk of one token it is the
  // same.
  Tensor lens = tensor_of(DType::i32, {3}, {20, 0, 20});
  Tensor q(GetParam(), {3, 6, 64}), out(GetParam(), {3, 6, 64});
  fill_normal(q, 1);
  PagedKv kv = idle.kv();
  kv.seq_lens = lens;
  fill(out, [] { return kNan; });
  cpu::attention_decode({.q = q, .kv = kv, .out = out});
  const Values got = values_of(out.view().slice(0, 1, 2));
  EXPECT_TRUE(all_equal(got, Values(got.size(), 0.0)));
  EXPECT_NE(values_of(out)[0], 0.0);
  Tensor chunked(GetParam(), {3, 6, 64});
  const Tensor starts = tensor_of(DType::i32, {4}, {0, 1, 2, 3});
  AttentionArgs chunks = idle.prefill();
  chunks.q = q;
  chunks.out = chunked;
  chunks.q_starts = starts;
  chunks.kv_lens = lens;
  cpu::attention_prefill(chunks);
  EXPECT_TRUE(same_bytes(out, chunked));
  const PagedCase none(heads, {}, 16);
  cpu::attention_prefill(none.prefill());
  cpu::attention_decode(none.decode());
}

INSTANTIATE_TEST_SUITE_P(EveryFloatType, CpuAttention, ::testing::ValuesIn(kFloatTypes),
                         dtype_name);

TEST(CpuAttentionExp2, IsWithinOneAndAHalfUlp) {
  for (SimdLevel level : cpu::simd_levels()) {
    double worst = 0.0;
    std::vector<float> x, y;
    for (float value = -126.0f; value < -0x1p-30f; value *= 0.999993f) x.push_back(value);
    for (int i = 0; i <= 252; ++i) x.push_back(-0.5f * static_cast<float>(i));
    y = x;
    cpu::exp2_builds().at(level)(y.data(), static_cast<int64_t>(y.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = std::exp2(static_cast<double>(x[i]));
      worst = std::max(worst, std::fabs(y[i] - want) / spacing(DType::f32, want));
    }
    EXPECT_LE(worst, 1.5) << name(level);
    std::vector<float> ends = {
        0.0f, -0.0f, -1.0f, -126.0f, -126.01f, -1e9f, -std::numeric_limits<float>::infinity(), NAN};
    cpu::exp2_builds().at(level)(ends.data(), 8);
    const Values got(ends.begin(), ends.end());
    EXPECT_TRUE(all_equal(got, {1.0, 1.0, 0.5, 0x1p-126, 0.0, 0.0, 0.0, kNan})) << name(level);
  }
}

}  // namespace
}  // namespace tessera::testing
