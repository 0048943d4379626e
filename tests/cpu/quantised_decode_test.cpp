// Vectors over quantised caches: the elements of every format are those that are read row by row,
// and decode attention has the bits of one over a plain cache of these elements.
// SPDX-License-Identifier: MIT
#include "tests/core/threads.h"
#include "tests/cpu/attention_bound.h"
#include "tests/cpu/quantised_case.h"
#include "tests/ops/refusal.h"

namespace tessera::testing {
namespace {

// Around the ends of groups of 32, of blocks of 64 and of pages.
const std::vector<int64_t> kLengths = {1, 31, 32, 33, 0, 64, 65, 96, 127, 130, 200};

std::vector<Sequence> make_sequences(const HeadShape& shape) {
  std::vector<Sequence> sequences;
  for (const int64_t length : kLengths) {
    sequences.emplace_back(shape, length, static_cast<uint64_t>(length + 1), 1.5);
  }
  return sequences;
}

std::vector<Part> parts_of(const std::vector<Sequence>& sequences) {
  std::vector<Part> parts;
  for (const Sequence& sequence : sequences) {
    const int64_t length = sequence.k.view().size(0);
    parts.push_back({&sequence, length, length > 0 ? 1 : 0});
  }
  return parts;
}

Tensor tensor_of_part(DType dtype, const Index& shape, const Tensor& values) {
  return values.size_bytes() == 0 ? Tensor(dtype, shape)
                                  : tensor_of(dtype, shape, values_of(values));
}

Values out_of(const DecodeAttentionArgs& args, SimdLevel level) {
  fill(args.out, [] { return kNan; });
  cpu::attention_decode(args, level);
  return values_of(args.out);
}

class CpuQuantisedDecode : public ::testing::TestWithParam<CacheFormat> {
 protected:
  const CacheFormat& format() const { return GetParam(); }
};

// Exact: a bit that differs is an element that was read wrongly.
TEST_P(CpuQuantisedDecode, GivesTheBitsOfAPlainCacheOfTheSameElements) {
  for (const int64_t head_dim : {64, 40, 14}) {
    const HeadShape shape{DType::f32, 6, 2, head_dim};
    const std::vector<Sequence> sequences = make_sequences(shape);
    for (const CacheOptions& options :
         {CacheOptions{.page_size = 32}, CacheOptions{.page_size = 64, .is_head_first = true},
          CacheOptions{.page_size = 96, .seed = 3}}) {
      QuantisedCase c(format(), shape, parts_of(sequences), options);
      const std::vector<Sequence> elements = c.read_back();
      for (const Scores& scores : {Scores{}, Scores{.window = 20}, Scores{.window = 65},
                                   Scores{.scale = 0.3f, .softcap = 5.0f}}) {
        for (const SimdLevel level : cpu::simd_levels()) {
          const Values got = out_of(c.decode(scores), level);
          for (size_t s = 0; s < elements.size(); ++s) {
            const size_t count = static_cast<size_t>(6 * head_dim);
            const Values part(got.begin() + static_cast<ptrdiff_t>(s * count),
                              got.begin() + static_cast<ptrdiff_t>((s + 1) * count));
            Values want(count, 0.0);
            if (kLengths[s] > 0) {
              PagedCase plain(shape, {{&elements[s], kLengths[s], 1}}, 16);
              want = out_of(plain.decode(scores), level);
            }
            ASSERT_TRUE(all_equal(part, want))
                << name(level) << ", " << kLengths[s] << " keys, head_dim " << head_dim
                << ", page size " << options.page_size << ", window " << scores.window;
          }
        }
      }
    }
  }
}

TEST_P(CpuQuantisedDecode, GatherGivesTheSameElements) {
  for (const int64_t head_dim : {64, 40, 14}) {
    const HeadShape shape{DType::f32, 2, 2, head_dim};
    const std::vector<Sequence> sequences = make_sequences(shape);
    const QuantisedCase c(format(), shape, parts_of(sequences), {.page_size = 32, .seed = 4});
    const std::vector<Sequence> elements = c.read_back();
    Values starts;
    int64_t num_tokens = 0;
    for (const int64_t length : kLengths) {
      starts.push_back(static_cast<double>(num_tokens));
      num_tokens += length;
    }
    const auto batch = static_cast<int64_t>(kLengths.size());
    for (const DType dtype : kFloatTypes) {
      const Tensor k(dtype, {num_tokens, 2, head_dim}), v(dtype, {num_tokens, 2, head_dim});
      const Tensor at = tensor_of(DType::i32, {batch}, starts);
      cpu::kv_gather({.kv = c.kv(), .starts = at, .k = k, .v = v});
      for (size_t s = 0; s < elements.size(); ++s) {
        const auto begin = static_cast<int64_t>(starts[s]), end = begin + kLengths[s];
        const Index part = {kLengths[s], 2, head_dim};
        const Tensor want_k = tensor_of_part(dtype, part, elements[s].k);
        const Tensor want_v = tensor_of_part(dtype, part, elements[s].v);
        EXPECT_TRUE(all_equal(values_of(k.view().slice(0, begin, end)), values_of(want_k)));
        EXPECT_TRUE(all_equal(values_of(v.view().slice(0, begin, end)), values_of(want_v)));
      }
    }
  }
}

TEST_P(CpuQuantisedDecode, GatherNeedsNoTableWhereASequenceHasOnePage) {
  const HeadShape shape{DType::f32, 2, 2, 40};
  const Sequence tokens(shape, 70, 1);
  const QuantisedCase c(format(), shape, {{&tokens, 70, 1}}, {.page_size = 96, .seed = 4});
  const std::vector<Sequence> elements = c.read_back();
  PagedKv kv = c.kv();
  const int64_t page = kv.page_table.as<int32_t>()[0];
  for (TensorView* view : {&kv.k_pages, &kv.v_pages, &kv.k_scales, &kv.v_scales}) {
    if (view->rank >= 4) *view = view->slice(0, page, page + 1);
  }
  kv.page_table = {};
  const Tensor k(DType::f32, {70, 2, 40}), v(DType::f32, {70, 2, 40});
  cpu::kv_gather({.kv = kv, .starts = tensor_of(DType::i32, {1}, {0}), .k = k, .v = v});
  EXPECT_TRUE(all_equal(values_of(k), values_of(elements[0].k)));
  EXPECT_TRUE(all_equal(values_of(v), values_of(elements[0].v)));
}

TEST_P(CpuQuantisedDecode, IsCloseToItsDefinitionAndSoIsTheWayInDouble) {
  for (const DType dtype : kFloatTypes) {
    const HeadShape shape{dtype, 6, 2, 64};
    const std::vector<Sequence> sequences = make_sequences(shape);
    QuantisedCase c(format(), shape, parts_of(sequences));
    const std::vector<Sequence> elements = c.read_back();
    for (const Scores& scores : {Scores{}, Scores{.window = 40, .softcap = 8.0f}}) {
      Expected expected;
      for (size_t s = 0; s < elements.size(); ++s) {
        for (int64_t head = 0; head < shape.num_heads; ++head) {
          expect_query(shape, {&elements[s], kLengths[s], 1}, 0, head, scores, expected);
        }
      }
      ASSERT_TRUE(cpu::runs_by_vectors(c.decode(scores)));
      for (const SimdLevel level : cpu::simd_levels()) {
        EXPECT_TRUE(all_close(out_of(c.decode(scores), level), expected.want, expected.bound))
            << name(dtype) << ", " << name(level);
      }
      fill(c.out, [] { return kNan; });
      cpu::decode_in_double(c.decode(scores));
      EXPECT_TRUE(all_close(values_of(c.out), expected.want, expected.bound)) << name(dtype);
    }
  }
}

// Keys of zeros weigh the same, and a power of two of them sums integers exactly.
TEST_P(CpuQuantisedDecode, IsExactOnSmallIntegers) {
  const HeadShape shape{DType::f32, 6, 2, 64};
  if (format().num_head_scales > 0) GTEST_SKIP() << "its scale is not a power of two";
  Sequence tokens(shape, 128, 1);
  fill(tokens.k, [] { return 0.0; });
  // With 0 and the highest code in a row, its scale is 1. FP8 has every integer to 8.
  const int highest = format().v == KvFormat::uint8        ? 255
                      : format().v == KvFormat::int8       ? 127
                      : format().v == KvFormat::int4_token ? 15
                                                           : 8;
  fill_integers(tokens.v, 7, 0, highest);
  for (int64_t row = 0; row < tokens.v.view().num_elements(); row += shape.head_dim) {
    tokens.v.view().as<float>()[row] = 0.0f;
    tokens.v.view().as<float>()[row + 1] = static_cast<float>(highest);
  }
  for (const int64_t length : {1, 2, 32, 64, 128}) {
    QuantisedCase c(format(), shape, {{&tokens, length, 1}});
    cpu::attention_decode(c.decode());
    for (int64_t head = 0; head < shape.num_heads; ++head) {
      for (int64_t i = 0; i < shape.head_dim; ++i) {
        double sum = 0.0;
        for (int64_t t = 0; t < length; ++t) sum += value_at(tokens.v, t, head / 3, i);
        ASSERT_EQ(value_at(c.out, 0, head, i), sum / static_cast<double>(length))
            << length << " keys, head " << head << ", element " << i;
      }
    }
  }
}

// A key far above the rest takes all the weight, wherever it lies.
TEST_P(CpuQuantisedDecode, FindsTheKeyThatMatches) {
  const HeadShape shape{DType::bf16, 6, 2, 64};
  for (const int64_t chosen : {0, 31, 32, 63, 64, 99, 100, 127, 129}) {
    Sequence tokens(shape, 130, 1);
    fill(tokens.k, [] { return 0.0; });
    fill(tokens.q, [] { return 64.0; });
    fill(tokens.k.view().slice(0, chosen, chosen + 1).slice(2, 5, 9), [] { return 8.0; });
    QuantisedCase c(format(), shape, {{&tokens, 130, 1}}, {.page_size = 32});
    const std::vector<Sequence> elements = c.read_back();
    cpu::attention_decode(c.decode());
    for (int64_t head = 0; head < shape.num_heads; ++head) {
      for (int64_t i = 0; i < shape.head_dim; ++i) {
        const double v = value_at(elements[0].v, chosen, head / 3, i);
        ASSERT_EQ(value_at(c.out, 0, head, i), to_float(from_float<Bf16>(static_cast<float>(v))));
      }
    }
  }
}

// Every byte as a code: with a window of one, a token's output is its own value.
TEST_P(CpuQuantisedDecode, ReadsEveryCode) {
  const HeadShape shape{DType::f32, 2, 1, 64};
  if (format().num_head_scales == 2) GTEST_SKIP() << "for more than one head";
  const Sequence tokens(shape, 64, 1);
  for (int64_t length = 1; length <= 64; ++length) {
    QuantisedCase c(format(), shape, {{&tokens, length, 1}}, {.page_size = 64});
    const TensorView pages = c.kv().v_pages;
    const int64_t num_bytes = storage_bytes(pages.dtype, pages.num_elements());
    for (int64_t i = 0; i < num_bytes; ++i) pages.as<uint8_t>()[i] = static_cast<uint8_t>(i);
    const std::vector<Sequence> elements = c.read_back();
    for (const SimdLevel level : cpu::simd_levels()) {
      const Values got = out_of(c.decode({.window = 1}), level);
      Values want = values_of(elements[0].v.view().slice(0, length - 1, length));
      want.insert(want.end(), want.begin(), want.end());  // two heads share it
      ASSERT_TRUE(all_equal(got, want)) << name(level) << ", " << length << " keys";
    }
  }
}

TEST_P(CpuQuantisedDecode, BatchMatesPagesAndThreadsDoNotMatter) {
  const HeadShape shape{DType::bf16, 6, 2, 64};
  const Sequence a(shape, 300, 1), b(shape, 170, 2);
  QuantisedCase alone(format(), shape, {{&a, 300, 1}}, {.page_size = 32});
  {
    const Threads one(1);
    cpu::attention_decode(alone.decode());
  }
  const Values want = values_of(alone.out);
  for (const int num_threads : {1, 2, 3, 7}) {
    const Threads threads(num_threads);
    QuantisedCase c(format(), shape, {{&b, 170, 1}, {&b, 0, 0}, {&a, 300, 1}, {&b, 33, 1}},
                    {.page_size = 96, .is_head_first = true, .seed = 9});
    cpu::attention_decode(c.decode());
    EXPECT_TRUE(all_equal(values_of(c.out.view().slice(0, 2, 3)), want)) << num_threads;
    EXPECT_TRUE(all_equal(values_of(c.out.view().slice(0, 1, 2)), Values(want.size(), 0.0)));
  }
}

TEST_P(CpuQuantisedDecode, Avx2AndAvx512Agree) {
  if (cpu::simd_levels().size() < 3) GTEST_SKIP() << "this CPU has no AVX-512";
  const HeadShape shape{DType::f32, 6, 2, 40};
  const std::vector<Sequence> sequences = make_sequences(shape);
  QuantisedCase c(format(), shape, parts_of(sequences));
  const Values want = out_of(c.decode(), SimdLevel::avx512);
  EXPECT_TRUE(all_equal(out_of(c.decode(), SimdLevel::avx2), want));
}

TEST_P(CpuQuantisedDecode, PagesAndTailsOutOfRangeAreRefused) {
  const HeadShape shape{DType::f32, 6, 2, 64};
  const Sequence tokens(shape, 100, 1);
  const QuantisedCase c(format(), shape, {{&tokens, 0, 0}, {&tokens, 100, 1}});
  const PagedKv kv = c.kv();
  kv.page_table.as<int32_t>()[kv.page_table.stride(0) + 1] = 77;
  EXPECT_TRUE(refused([&] { cpu::attention_decode(c.decode()); },
                      {"page_table[1, 1] is 77", "k_pages has 5 pages"}));
  if (kv.tails.rank == 0) return;
  const QuantisedCase other(format(), shape, {{&tokens, 0, 0}, {&tokens, 100, 1}});
  other.kv().tails.as<int32_t>()[0] = 50;  // of an idle slot, and not read
  cpu::attention_decode(other.decode());
  other.kv().tails.as<int32_t>()[1] = 3;
  EXPECT_TRUE(refused([&] { cpu::attention_decode(other.decode()); },
                      {"attention_decode", "tails[1] is 3", "tails 0 to 2"}));
}

INSTANTIATE_TEST_SUITE_P(EveryFormat, CpuQuantisedDecode, ::testing::ValuesIn(kCacheFormats),
                         cache_format_name);

TEST(CpuQuantisedDecodeByVectors, IsLeftForWhatItCannotDo) {
  const HeadShape shape{DType::f32, 6, 2, 64};
  const Sequence tokens(shape, 40, 1);
  const QuantisedCase c(kCacheFormats[6], shape, {{&tokens, 40, 1}});
  const TensorView some = c.q;
  const std::vector<std::function<void(DecodeAttentionArgs&)>> changes = {
      [&](DecodeAttentionArgs& a) { a.lse = some; },
      [&](DecodeAttentionArgs& a) { a.sinks = some; },
      [&](DecodeAttentionArgs& a) { a.alibi_slopes = some; },
      [&](DecodeAttentionArgs& a) { a.tree = some; },
      [&](DecodeAttentionArgs& a) { a.blocks.rank = 2; },
      [&](DecodeAttentionArgs& a) { a.keys.rank = 3; },
      [&](DecodeAttentionArgs& a) { a.q.rank = 4; },
      [&](DecodeAttentionArgs& a) { a.kv.page_table = {}; }};
  EXPECT_TRUE(cpu::runs_by_vectors(c.decode()));
  for (size_t i = 0; i < changes.size(); ++i) {
    DecodeAttentionArgs changed = c.decode();
    changes[i](changed);
    EXPECT_FALSE(cpu::runs_by_vectors(changed)) << i;
  }
}

}  // namespace
}  // namespace tessera::testing
