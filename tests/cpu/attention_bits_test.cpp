// On the CPU a query's output has the same bits in any chunk, batch, page size, memory layout and
// number of threads, and does not depend on keys that it does not see.
// SPDX-License-Identifier: MIT
#include "tests/core/threads.h"
#include "tests/cpu/attention_case.h"

namespace tessera::testing {
namespace {

bool same_bytes_of(const TensorView& a, const TensorView& b) {
  return a.num_elements() == b.num_elements() &&
         std::memcmp(a.data, b.data,
                     static_cast<size_t>(storage_bytes(a.dtype, a.num_elements()))) == 0;
}

// Every position of a sequence by attention_decode: a batch whose s-th member has s + 1 tokens.
Tensor decode_all(const HeadShape& shape, const Sequence& tokens, const Scores& scores,
                  SimdLevel level = cpu::simd_levels().back()) {
  std::vector<Part> parts;
  for (int64_t p = 0; p < tokens.q.view().size(0); ++p) parts.push_back({&tokens, p + 1, 1});
  PagedCase c(shape, parts, 16);
  cpu::attention_decode(c.decode(scores), level);
  return std::move(c.out);
}

struct Setting {
  HeadShape shape;
  Scores scores;
};

std::vector<Setting> settings(DType dtype) {
  return {{{dtype, 6, 2, 64}, {}},
          {{dtype, 4, 4, 96}, {.window = 20}},
          {{dtype, 5, 1, 40}, {.softcap = 10.0f}},
          {{dtype, 2, 1, 128}, {.window = 65, .softcap = 30.0f}},
          {{dtype, 100, 1, 16}, {.window = 70}},  // a task ends between heads of a token
          {{dtype, 2, 2, 256}, {}}};
}

class CpuAttentionBits : public ::testing::TestWithParam<DType> {
 protected:
  static constexpr int64_t kLength = 130;
};

TEST_P(CpuAttentionBits, AChunkGivesWhatDecodeGives) {
  for (const auto& [shape, scores] : settings(GetParam())) {
    SCOPED_TRACE(::testing::Message() << shape.num_heads << " heads of " << shape.head_dim);
    const Sequence tokens(shape, kLength, 1, 2.0), mate(shape, 77, 2, 3.0);
    const Tensor want = decode_all(shape, tokens, scores);
    std::mt19937_64 random(5);
    for (int64_t page_size : {1, 8, 16, 64, 200}) {
      for (int64_t begin = 0, end; begin < kLength; begin = end) {
        end = std::min<int64_t>(kLength, begin + 1 + static_cast<int64_t>(random() % 60));
        const PagedCase c(shape, {{&mate, 77, 31}, {&tokens, end, end - begin}, {&mate, 5, 1}},
                          page_size, random());
        cpu::attention_prefill(c.prefill(scores));
        EXPECT_TRUE(same_bytes_of(c.out.view().slice(0, 31, 31 + end - begin),
                                  want.view().slice(0, begin, end)))
            << "tokens " << begin << " to " << end << ", page size " << page_size;
      }
    }
  }
}

TEST_P(CpuAttentionBits, AWholePromptGivesWhatDecodeGivesAtEveryLevel) {
  for (const auto& [shape, scores] : settings(GetParam())) {
    const Sequence tokens(shape, kLength, 1, 2.0);
    const PagedCase c(shape, {{&tokens, kLength, kLength}}, 16);
    for (SimdLevel level : cpu::simd_levels()) {
      cpu::attention_prefill(c.prefill(scores), level);
      EXPECT_TRUE(same_bytes(c.out, decode_all(shape, tokens, scores, level)))
          << name(level) << ", " << shape.num_heads << " heads of " << shape.head_dim;
    }
  }
}

// Results do not depend on the vector width; only levels without fused multiply-add differ.
TEST_P(CpuAttentionBits, Avx2AndAvx512Agree) {
  if (cpu::simd_levels().size() < 3) GTEST_SKIP() << "this CPU has no AVX-512";
  for (const auto& [shape, scores] : settings(GetParam())) {
    const Sequence tokens(shape, kLength, 1, 2.0);
    EXPECT_TRUE(same_bytes(decode_all(shape, tokens, scores, SimdLevel::avx2),
                           decode_all(shape, tokens, scores, SimdLevel::avx512)));
  }
}

TEST_P(CpuAttentionBits, ThreadsAndBatchMatesDoNotMatter) {
  const HeadShape shape{GetParam(), 6, 2, 64};
  const Sequence a(shape, 300, 1), b(shape, 200, 2);
  PagedCase whole(shape, {{&b, 200, 200}, {&a, 300, 300}, {&b, 150, 3}}, 16);
  {
    const Threads one(1);
    cpu::attention_prefill(whole.prefill());
  }
  const Tensor want = std::move(whole.out);
  for (int num_threads : {2, 3, 7}) {
    const Threads threads(num_threads);
    PagedCase c(shape, {{&b, 200, 200}, {&a, 300, 300}, {&b, 150, 3}}, 8, 9);
    cpu::attention_prefill(c.prefill());
    EXPECT_TRUE(same_bytes(c.out, want)) << num_threads;
    PagedCase alone(shape, {{&a, 300, 1}}, 16, 3);
    cpu::attention_decode(alone.decode());
    EXPECT_TRUE(same_bytes_of(alone.out, want.view().slice(0, 499, 500))) << num_threads;
  }
}

TEST_P(CpuAttentionBits, TheOutputMayBeTheQuery) {
  const HeadShape shape{GetParam(), 6, 2, 64};
  const Sequence tokens(shape, 130, 1);
  const PagedCase c(shape, {{&tokens, 130, 130}}, 16);
  cpu::attention_prefill(c.prefill());
  AttentionArgs in_place = c.prefill();
  in_place.out = in_place.q;
  cpu::attention_prefill(in_place);
  EXPECT_TRUE(all_equal(values_of(in_place.q), values_of(c.out)));
}

// NaN in the key and value of token 71 reaches that token and later ones, and none before it,
// although token 70 shares its tile.
TEST_P(CpuAttentionBits, NoTokenSeesTheFuture) {
  const HeadShape shape{GetParam(), 6, 2, 64};
  const Sequence clean(shape, 130, 1), spoilt(shape, 130, 1);
  for (const Tensor* tensor : {&spoilt.k, &spoilt.v}) {
    fill(tensor->view().slice(0, 71, 72), [] { return kNan; });
  }
  const PagedCase a(shape, {{&clean, 130, 130}}, 16), b(shape, {{&spoilt, 130, 130}}, 16);
  for (SimdLevel level : cpu::simd_levels()) {
    cpu::attention_prefill(a.prefill(), level);
    cpu::attention_prefill(b.prefill(), level);
    EXPECT_TRUE(same_bytes_of(a.out.view().slice(0, 0, 71), b.out.view().slice(0, 0, 71)));
    const Values after = values_of(b.out.view().slice(0, 71, 130));
    EXPECT_TRUE(all_equal(after, Values(after.size(), kNan)));
    // With a window, tokens that no longer see token 71 are unaffected as well.
    const Scores scores{.window = 10};
    cpu::attention_prefill(a.prefill(scores), level);
    cpu::attention_prefill(b.prefill(scores), level);
    EXPECT_TRUE(same_bytes_of(a.out.view().slice(0, 81, 130), b.out.view().slice(0, 81, 130)));
  }
}

TEST_P(CpuAttentionBits, InfiniteKeysAndQueriesOfNanStayVisible) {
  const HeadShape shape{GetParam(), 2, 1, 16};
  const Sequence tokens(shape, 40, 1);
  fill(tokens.q.view().slice(0, 39, 40).slice(1, 1, 2), [] { return kNan; });
  fill(tokens.q.view().slice(0, 39, 40).slice(1, 0, 1), [] { return 1.0; });
  // In the first head all scores are minus infinity except the last.
  fill(tokens.k.view().slice(0, 0, 39), [] { return -kInfinity; });
  const PagedCase c(shape, {{&tokens, 40, 1}}, 8);
  for (SimdLevel level : cpu::simd_levels()) {
    cpu::attention_decode(c.decode(), level);
    EXPECT_TRUE(all_equal(values_of(c.out.view().slice(1, 0, 1)),
                          values_of(tokens.v.view().slice(0, 39, 40))))
        << name(level);
    EXPECT_TRUE(all_equal(values_of(c.out.view().slice(1, 1, 2)), Values(16, kNan))) << name(level);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryFloatType, CpuAttentionBits, ::testing::ValuesIn(kFloatTypes),
                         dtype_name);

}  // namespace
}  // namespace tessera::testing
