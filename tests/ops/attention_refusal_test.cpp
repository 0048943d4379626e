// Arguments attention_prefill and attention_decode refuse.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "tessera/ops/attention.h"
#include "tests/ops/refusal.h"

namespace tessera::testing {
namespace {

// Two sequences, of 20 and 5 tokens, with 3 and 2 queries; pages of 8 tokens.
class RefusedAttention : public ::testing::Test {
 protected:
  const Tensor q_{DType::bf16, {5, 6, 16}}, out_{DType::bf16, {5, 6, 16}};
  const Tensor k_pages_{DType::bf16, {7, 8, 2, 16}}, v_pages_{DType::bf16, {7, 8, 2, 16}};
  const Tensor table_ = ints({2, 3}, {4, 1, 6, 0, -1, 99}), lens_ = ints({2}, {20, 5});
  const Tensor v_table_ = ints({2, 3}, {4, 1, 6, 0, -1, 99}), starts_ = ints({3}, {0, 3, 5});
  // The same sequences one after the other, and two of 4 queries and 20 keys side by side.
  const Tensor k_rows_{DType::bf16, {25, 2, 16}}, v_rows_{DType::bf16, {25, 2, 16}};
  const Tensor kv_starts_ = ints({3}, {0, 20, 25});
  const Tensor q_batch_{DType::bf16, {2, 4, 6, 16}}, out_batch_{DType::bf16, {2, 4, 6, 16}};
  const Tensor k_batch_{DType::bf16, {2, 20, 2, 16}}, v_batch_{DType::bf16, {2, 20, 2, 16}};

  AttentionArgs paged() const {
    return {.q = q_,
            .k = k_pages_,
            .v = v_pages_,
            .out = out_,
            .mask = kCausalMask,
            .q_starts = starts_,
            .kv_lens = lens_,
            .k_page_table = table_};
  }
  AttentionArgs ragged() const {
    return {.q = q_,
            .k = k_rows_,
            .v = v_rows_,
            .out = out_,
            .q_starts = starts_,
            .kv_starts = kv_starts_};
  }
  AttentionArgs batched() const {
    return {.q = q_batch_, .k = k_batch_, .v = v_batch_, .out = out_batch_};
  }
  DecodeAttentionArgs decode() const {
    return {.q = q_.view().slice(0, 0, 2),
            .kv = {k_pages_, v_pages_, table_, lens_},
            .out = out_.view().slice(0, 0, 2)};
  }

  // A change to good arguments, and what the refusal must say.
  template <class Args>
  struct Wrong {
    std::function<void(Args&)> change;
    std::vector<std::string_view> words;
  };
  template <class Args>
  static void expect_refused(const Args& good, void (*call)(const Args&, const Context&),
                             const std::vector<Wrong<Args>>& cases) {
    for (const auto& [change, words] : cases) {
      EXPECT_TRUE(refused_with<Args>(good, call, change, words)) << words[0];
    }
  }
  static void expect_refused(const AttentionArgs& good,
                             const std::vector<Wrong<AttentionArgs>>& cases) {
    expect_refused<AttentionArgs>(good, &attention_prefill, cases);
  }
  // Values inside tensors are seen by the call, not by supports(); a refused call writes nothing.
  static ::testing::AssertionResult refuses_value(const AttentionArgs& args, const Tensor& tensor,
                                                  int64_t i, int32_t value, Words words) {
    int32_t& element = tensor.view().as<int32_t>()[i];
    const int32_t before = element;
    element = value;
    uint16_t* out = args.out.as<uint16_t>();
    std::fill_n(out, args.out.num_elements(), uint16_t{17});
    const ::testing::AssertionResult result = refused([&] { attention_prefill(args); }, words);
    element = before;
    const bool is_whole =
        std::all_of(out, out + args.out.num_elements(), [](uint16_t bits) { return bits == 17; });
    return is_whole ? result : ::testing::AssertionFailure() << "out was written";
  }
};

TEST_F(RefusedAttention, WrongQueriesAndOutputs) {
  const Tensor five_heads(DType::bf16, {5, 5, 16}), narrow(DType::bf16, {5, 6, 8});
  const Tensor half(DType::f16, {5, 6, 16}), many(DType::bf16, {5, 6, 32});
  const Tensor empty(DType::bf16, {5, 6, 0});
  expect_refused(
      paged(),
      {{[&](auto& a) { a.q.dtype = DType::i32; },
        {"attention_prefill: q is i32", "one of f32, f16, bf16, e4m3"}},
       {[&](auto& a) { a.q = q_.view().slice(0, 0, 4); },
        {"out is bf16[5, 6, 16]", "q of bf16[4, 6, 16]", "same axes but the last"}},
       {[&](auto& a) { a.q = a.out = five_heads; }, {"q has 5 heads and k has 2", "multiple"}},
       {[&](auto& a) { a.q = a.out = narrow; }, {"k has head_dim 16 and q has 8"}},
       {[&](auto& a) { a.q = empty; }, {"q is bf16[5, 6, 0]", "at least 1 element"}},
       {[&](auto& a) { a.q.shape[0] = (int64_t{1} << 30) + 1; }, {"q is", "axis may have at most"}},
       {[&](auto& a) { a.q.rank = 2; }, {"q is", "rank 2", "4, or 3", "q_starts"}},
       {[&](auto& a) { a.q = q_.view().transposed(1, 2); },
        {"attention_prefill: q", "elements of a head must be contiguous"}},
       {[&](auto& a) { a.out = half; }, {"out is f16", "q is bf16", "one type"}},
       {[&](auto& a) { a.out = many; }, {"out is bf16[5, 6, 32]", "which is 16 as v's"}},
       {[&](auto& a) { a.out.strides[0] = 0; }, {"out", "stride 0"}},
       {[&](auto& a) {
          a.q = many.view().slice(2, 0, 16);
          a.out = many.view().slice(2, 8, 24);
        },
        {"out", "shares part of the memory of", "attention_prefill: q"}},
       {[&](auto& a) { a.out.data = k_pages_.view().data; },
        {"out", "shares memory with", "attention_prefill: k"}},
       {[&](auto& a) { a.out.data = v_pages_.view().data; },
        {"out", "shares memory with", "attention_prefill: v"}},
       {[&](auto& a) { a.out = on_gpu(out_); }, {"out is on cuda:3"}}});
}

TEST_F(RefusedAttention, WrongPagesAndTables) {
  const Tensor other(DType::bf16, {7, 8, 3, 16}), half(DType::f16, {7, 8, 2, 16});
  const Tensor flat(DType::bf16, {7, 0, 2, 16}), three = ints({3}, {1, 1, 1});
  const Tensor more(DType::bf16, {9, 8, 2, 16}), wide = ints({2, 4}, {0, 0, 0, 0, 0, 0, 0, 0});
  expect_refused(
      paged(),
      {{[&](auto& a) { a.k = half; }, {"k is f16", "q is bf16"}},
       {[&](auto& a) { a.v = other; }, {"v is bf16[7, 8, 3, 16]", "k is bf16[7, 8, 2, 16]"}},
       {[&](auto& a) { a.v = more; }, {"v is bf16[9, 8, 2, 16]", "all but the last", "v_page_tab"}},
       {[&](auto& a) { a.k = k_rows_; }, {"k is bf16[25, 2, 16]", "rank must be 4"}},
       {[&](auto& a) { a.k = a.v = flat; },
        {"k is bf16[7, 0, 2, 16]", "page_size must be at least 1"}},
       {[&](auto& a) { a.k = on_gpu(k_pages_); }, {"k is on cuda:3"}},
       {[&](auto& a) { a.k_page_table = table_.view().transposed(0, 1); },
        {"k_page_table is i32[3, 2]", "for 2 sequences", "one row each"}},
       {[&](auto& a) { a.k_page_table.strides[1] = 2; },
        {"k_page_table", "pages of a sequence must be contiguous"}},
       {[&](auto& a) { a.k_page_table.dtype = DType::i64; }, {"k_page_table is i64", "one of i32"}},
       {[&](auto& a) { a.v_page_table = wide; },
        {"v_page_table is i32[2, 4]", "k_page_table is i32[2, 3]", "one shape"}},
       {[&](auto& a) { a.kv_lens.dtype = DType::i64; }, {"kv_lens is i64", "one of i32"}},
       {[&](auto& a) { a.kv_lens = three; }, {"kv_lens is i32[3]", "for 2 sequences"}},
       {[&](auto& a) { a.kv_lens = {}; }, {"k_page_table is", "kv_lens is missing"}},
       {[&](auto& a) { a.kv_starts = kv_starts_; }, {"kv_starts is", "pages", "leave it out"}},
       {[&](auto& a) { a.k_page_table = {}; },
        {"k is bf16[7, 8, 2, 16]", "rank 3, or be pages with k_page_table"}}});
  AttentionArgs apart = paged();
  apart.v = more;
  apart.v_page_table = v_table_;
  EXPECT_TRUE(supports(apart));
}

TEST_F(RefusedAttention, WrongRaggedAndBatchedSequences) {
  const Tensor three(DType::bf16, {3, 20, 2, 16}), short_v(DType::bf16, {2, 19, 2, 16});
  expect_refused(
      ragged(),
      {{[&](auto& a) { a.q_starts = {}; }, {"q is bf16[5, 6, 16]", "q_starts is missing"}},
       {[&](auto& a) { a.q_starts.shape[0] = 0; }, {"q_starts is i32[0]", "one element more"}},
       {[&](auto& a) { a.q_starts.rank = 2; }, {"q_starts is", "rank must be 1"}},
       {[&](auto& a) { a.q_starts.strides[0] = 2; }, {"q_starts is", "contiguous"}},
       {[&](auto& a) { a.q_starts = on_gpu(starts_); }, {"q_starts is on cuda:3"}},
       {[&](auto& a) { a.kv_starts = {}; }, {"k is bf16[25, 2, 16]", "kv_starts is missing"}},
       {[&](auto& a) { a.kv_starts = lens_; }, {"kv_starts is i32[2]", "q_starts is i32[3]"}},
       {[&](auto& a) { a.kv_lens = lens_; }, {"kv_lens is", "kv_starts says", "leave it out"}},
       {[&](auto& a) { a.v_page_table = table_; }, {"v_page_table is", "there is no k_page_table"}},
       {[&](auto& a) { a.v = v_rows_.view().slice(0, 0, 24); }, {"v is bf16[24, 2, 16]"}}});
  expect_refused(
      batched(),
      {{[&](auto& a) { a.q_starts = starts_; }, {"q_starts is", "q of rank 4", "leave it out"}},
       {[&](auto& a) { a.kv_starts = starts_; }, {"kv_starts is", "k of rank 4", "leave it out"}},
       {[&](auto& a) { a.k = a.v = three; }, {"k is bf16[3, 20, 2, 16]", "number of sequences"}},
       {[&](auto& a) { a.v = short_v; }, {"v is bf16[2, 19, 2, 16]", "k is bf16[2, 20, 2, 16]"}},
       {[&](auto& a) { a.k = k_rows_; }, {"k is bf16[25, 2, 16]", "rank must be 4"}},
       {[&](auto& a) { a.kv_lens = starts_; }, {"kv_lens is i32[3]", "for 2 sequences"}}});
}

TEST_F(RefusedAttention, WrongScoresAndMasks) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor intervals(DType::i32, {2, 4, 2, 2}), three(DType::i32, {2, 4, 3, 2});
  const Tensor sinks(DType::f32, {6}), five(DType::f32, {5}), lse(DType::f32, {2, 6, 4});
  const Tensor scale(DType::f32, {2, 2});
  AttentionArgs good = batched();
  good.mask.intervals = intervals;
  good.sinks = good.alibi_slopes = sinks;
  good.lse = lse;
  expect_refused(
      good,
      {{[&](auto& a) { a.scale = nan; }, {"attention_prefill: scale is nan", "finite"}},
       {[&](auto& a) { a.scale = -0.5f; }, {"scale is -0.5", "positive, or 0 for 1 / sqrt"}},
       {[&](auto& a) { a.softcap = -2.0f; }, {"softcap is -2", "positive, or 0 for none"}},
       {[&](auto& a) { a.softcap = nan; }, {"softcap is nan"}},
       {[&](auto& a) { a.dropout.rate = 1.0f; }, {"dropout.rate is 1", "0 to below 1"}},
       {[&](auto& a) { a.dropout.rate = -0.1f; }, {"dropout.rate is -0.1"}},
       {[&](auto& a) { a.dropout.rate = nan; }, {"dropout.rate is nan"}},
       {[&](auto& a) { a.mask.intervals.rank = 3; }, {"mask.intervals is", "rank must be 4"}},
       {[&](auto& a) { a.mask.intervals = three; },
        {"mask.intervals is i32[2, 4, 3, 2]", "[batch, q_len, n, 2]", "1 or 2"}},
       {[&](auto& a) { a.mask.intervals = intervals.view().slice(1, 0, 3); },
        {"mask.intervals is i32[2, 3, 2, 2]", "q of bf16[2, 4, 6, 16]"}},
       {[&](auto& a) { a.mask.intervals = three.view().transposed(2, 3).slice(3, 0, 2); },
        {"mask.intervals is", "intervals of a query must be contiguous"}},
       {[&](auto& a) { a.mask.intervals.dtype = DType::i64; }, {"mask.intervals is i64"}},
       {[&](auto& a) { a.sinks = five; }, {"sinks is f32[5]", "must have 6", "head of q"}},
       {[&](auto& a) { a.alibi_slopes = five; }, {"alibi_slopes is f32[5]", "must have 6"}},
       {[&](auto& a) { a.sinks.dtype = DType::bf16; }, {"sinks is bf16", "one of f32"}},
       {[&](auto& a) { a.lse = lse.view().transposed(1, 2); },
        {"lse is f32[2, 4, 6]", "[batch, num_heads, q_len]"}},
       {[&](auto& a) { a.lse.dtype = DType::bf16; }, {"lse is bf16", "one of f32"}},
       {[&](auto& a) { a.lse.strides[1] = 0; }, {"lse", "stride 0"}},
       {[&](auto& a) { a.lse.data = a.out.data; }, {"lse", "shares memory with", "out"}},
       {[&](auto& a) { a.q_scale = scale; }, {"q_scale is given and q is bf16", "for e4m3"}}});
}

TEST_F(RefusedAttention, WrongTypesAndScalesOfCodes) {
  const Tensor q(DType::e4m3, {2, 4, 6, 16}), k(DType::e4m3, {2, 20, 2, 16});
  const Tensor scale(DType::f32, {2, 2}), per_head(DType::f32, {2, 6}), flat(DType::f32, {4});
  AttentionArgs good = batched();
  good.q = q;
  good.k = good.v = k;
  good.q_scale = good.k_scale = good.v_scale = scale;
  expect_refused(
      good,
      {{[&](auto& a) { a.out = a.q; }, {"out is e4m3", "one of f16, bf16"}},
       {[&](auto& a) { a.v = v_batch_; }, {"v is bf16", "q is e4m3", "one type"}},
       {[&](auto& a) { a.q_scale = per_head; }, {"q_scale is f32[2, 6]", "[2, 2]", "KV head"}},
       {[&](auto& a) { a.k_scale = flat; }, {"k_scale is f32[4]", "rank must be 2"}},
       {[&](auto& a) { a.v_scale = scale.view().transposed(0, 1); }, {"v_scale", "contiguous"}},
       {[&](auto& a) { a.v_scale.dtype = DType::f16; }, {"v_scale is f16", "one of f32"}}});
}

TEST_F(RefusedAttention, WrongDecodes) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor wide(DType::bf16, {7, 8, 2, 32});
  expect_refused<DecodeAttentionArgs>(
      decode(), &attention_decode,
      {{[&](auto& a) { a.q = q_, a.out = out_; },
        {"attention_decode: q is bf16[5, 6, 16]", "seq_lens is i32[2]", "use attention_prefill"}},
       {[&](auto& a) { a.q.dtype = DType::e4m3; }, {"q is e4m3", "one of f32, f16, bf16"}},
       {[&](auto& a) { a.kv.k_pages = k_pages_.view().transposed(2, 3); },
        {"attention_decode: k_pages", "elements of a head must be contiguous"}},
       {[&](auto& a) { a.kv.k_pages.dtype = a.kv.v_pages.dtype = DType::f16; },
        {"k_pages is f16", "q is bf16"}},
       {[&](auto& a) { a.kv.v_pages = wide; }, {"v_pages is bf16[7, 8, 2, 32]", "one shape"}},
       {[&](auto& a) { a.kv.page_table = table_.view().slice(0, 0, 1); },
        {"page_table is i32[1, 3]", "must have 2 rows"}},
       {[&](auto& a) { a.kv.page_table = {}; }, {"k_pages is bf16[7, 8, 2, 16]", "has a page"}},
       {[&](auto& a) { a.out.data = k_pages_.view().data; }, {"out", "shares memory", "k_pages"}},
       {[&](auto& a) { a.out = on_gpu(a.out); }, {"out is on cuda:3"}},
       {[&](auto& a) { a.scale = nan; }, {"attention_decode: scale is nan"}},
       {[&](auto& a) { a.scale = -1.0f; }, {"scale is -1", "positive"}},
       {[&](auto& a) { a.window = -1; }, {"window is -1", "0 for all"}},
       {[&](auto& a) { a.softcap = -2.0f; }, {"softcap is -2"}}});
  lens_.view().as<int32_t>()[1] = 25;
  EXPECT_TRUE(refused([&] { attention_decode(decode()); },
                      {"attention_decode: seq_lens[1] is 25", "a row of page_table", "0 to 24"}));
  lens_.view().as<int32_t>()[1] = 9;
  EXPECT_TRUE(refused([&] { attention_decode(decode()); },
                      {"page_table[1, 1] is -1", "k_pages has 7 pages", "seq_lens[1] of 9"}));
}

TEST_F(RefusedAttention, WrongDecodesOfSeveralTokens) {
  const Tensor many(DType::bf16, {2, 17, 6, 16}), lse(DType::f32, {2, 6, 4}),
      two = ints({2}, {1, 1});
  const Tensor blocks = ints({2, 2}, {0, 2, 0, 0}),
               keys = ints({2, 4, 1}, {0, 1, 2, 3, 4, 0, 1, 2});
  const Tensor num_keys = ints({2, 4}, {1, 1, 1, 1, 1, 1, 1, 1}),
               tree = ints({2, 4}, {1, 3, 7, 15});
  DecodeAttentionArgs good = decode();
  good.q = q_batch_, good.out = out_batch_, good.lse = lse, good.tree = tree;
  good.blocks = blocks, good.num_blocks = two, good.keys = keys, good.num_keys = num_keys;
  attention_decode(good);
  expect_refused<DecodeAttentionArgs>(
      good, &attention_decode,
      {{[&](auto& a) { a.q = a.out = many; }, {"q is bf16[2, 17, 6, 16]", "1 to 16", "prefill"}},
       {[&](auto& a) { a.lse = lse.view().slice(2, 0, 3); }, {"lse is f32[2, 6, 3]", "q_len"}},
       {[&](auto& a) { a.sinks = lse; }, {"sinks", "of rank 3", "must be 1"}},
       {[&](auto& a) { a.tree = two; }, {"tree is i32[2]", "must have 8", "token of q"}},
       {[&](auto& a) { a.num_blocks = {}; }, {"num_blocks"}},
       {[&](auto& a) { a.blocks = keys; }, {"blocks", "of rank 3", "must be 2"}},
       {[&](auto& a) { a.keys = keys.view().slice(1, 0, 3); },
        {"keys is i32[2, 3, 1]", "each sequence and token"}}});
  const auto refuses = [&](const Tensor& tensor, int64_t at, int32_t value, Words words) {
    int32_t& entry = tensor.view().as<int32_t>()[at];
    const int32_t before = entry;
    entry = value;
    const auto result = refused([&] { attention_decode(good); }, words);
    entry = before;
    return result;
  };
  EXPECT_TRUE(refuses(two, 1, 3, {"num_blocks[1] is 3", "0 to 2"}));
  EXPECT_TRUE(refuses(blocks, 2, 1, {"blocks[1, 0] is 1", "5 tokens in blocks of 8"}));
  EXPECT_TRUE(refuses(num_keys, 3, -1, {"num_keys[3] is -1", "0 to 1"}));
  EXPECT_TRUE(refuses(keys, 4, 5, {"keys[1, 0, 0] is 5", "has 5 tokens"}));
  EXPECT_TRUE(refuses(lens_, 1, 3, {"seq_lens[1] is 3", "q has 4 tokens"}));
  attention_decode(good);
}

TEST_F(RefusedAttention, ValuesOutOfRange) {
  const AttentionArgs pages = paged(), rows = ragged();
  AttentionArgs two_tables = paged(), lens = batched();
  two_tables.v_page_table = v_table_;
  lens.kv_lens = lens_;
  for (const AttentionArgs& good : {pages, rows, two_tables, lens}) attention_prefill(good);
  const Tensor& table = table_;
  EXPECT_TRUE(
      refuses_value(pages, lens_, 1, -1, {"attention_prefill: kv_lens[1] is -1", "0 to 24"}));
  EXPECT_TRUE(
      refuses_value(pages, lens_, 0, 25, {"kv_lens[0] is 25", "3 pages of 8 tokens", "0 to 24"}));
  EXPECT_TRUE(refuses_value(pages, table, 2, 7, {"k_page_table[0, 2] is 7", "7 pages", "of 20"}));
  EXPECT_TRUE(refuses_value(pages, table, 3, -1, {"k_page_table[1, 0] is -1"}));
  EXPECT_TRUE(refuses_value(two_tables, v_table_, 2, 7, {"v_page_table[0, 2] is 7", "v has 7"}));
  EXPECT_TRUE(refuses_value(pages, starts_, 0, 1, {"q_starts[0] is 1", "must be 0"}));
  EXPECT_TRUE(refuses_value(pages, starts_, 1, 6, {"q_starts[2] is 5 after 6", "ascend"}));
  EXPECT_TRUE(refuses_value(pages, starts_, 2, 4, {"q_starts[2] is 4", "q has 5 tokens"}));
  EXPECT_TRUE(refuses_value(rows, starts_, 2, 4, {"q_starts[2] is 4", "q has 5 tokens"}));
  EXPECT_TRUE(refuses_value(rows, kv_starts_, 0, 1, {"kv_starts[0] is 1", "must be 0"}));
  EXPECT_TRUE(refuses_value(rows, kv_starts_, 1, 26, {"kv_starts[2] is 25 after 26", "ascend"}));
  EXPECT_TRUE(refuses_value(rows, kv_starts_, 2, 24, {"kv_starts[2] is 24", "k has 25 tokens"}));
  EXPECT_TRUE(refuses_value(lens, lens_, 0, 21, {"kv_lens[0] is 21", "k has 20", "0 to 20"}));
  EXPECT_TRUE(refuses_value(lens, lens_, 1, -1, {"kv_lens[1] is -1"}));
}

// Entries that no key in sight needs may hold anything: those beyond the sequence and, with a
// window or intervals, those outside it.
TEST_F(RefusedAttention, UnusedEntriesAreNotLookedAt) {
  AttentionArgs args = paged();
  const Tensor table = ints({2, 3}, {-5, -5, 6, 0, -1, 99});
  args.k_page_table = table;
  args.mask.left = 1;
  attention_prefill(args);
  args.mask.left = 2;  // the first query, at position 17, sees key 15: the second page
  EXPECT_TRUE(refused([&] { attention_prefill(args); }, {"k_page_table[0, 1] is -5"}));
  // Each query sees keys 0 to 4 and from 16 on; one of the second sequence's sees beyond its end.
  const Tensor intervals = ints({5, 2, 2}, {0, 5, 16, 99, 3, -1, 16, 20, 0, 1, 18, 20,  //
                                            0, 5, 7,  99, 0, 99, 4,  2});
  const Tensor holed = ints({2, 3}, {4, -5, 6, 0, -1, 99});
  args.k_page_table = holed;
  args.mask = {.intervals = intervals};
  attention_prefill(args);
  intervals.view().as<int32_t>()[9] = 9;
  EXPECT_TRUE(refused([&] { attention_prefill(args); }, {"k_page_table[0, 1] is -5"}));
}

}  // namespace
}  // namespace tessera::testing
