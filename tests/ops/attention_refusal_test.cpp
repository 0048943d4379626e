// Arguments attention_prefill, attention_decode, kv_append and kv_copy_pages refuse.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "tessera/ops/attention.h"
#include "tessera/ops/kv_cache.h"
#include "tests/ops/refusal.h"

namespace tessera::testing {
namespace {

using Words = std::initializer_list<std::string_view>;

Tensor ints(std::initializer_list<int64_t> shape, const std::vector<int32_t>& values) {
  Tensor tensor(DType::i32, shape);
  std::copy(values.begin(), values.end(), tensor.view().as<int32_t>());
  return tensor;
}

// Whether the good call is taken and the changed one refused, by the call and by supports().
template <class Args>
::testing::AssertionResult refused_with(const Args& good, void (*call)(const Args&, const Context&),
                                        const std::function<void(Args&)>& change, Words words) {
  if (!supports(good)) return ::testing::AssertionFailure() << "the unchanged call is refused";
  Args args = good;
  change(args);
  if (supports(args)) return ::testing::AssertionFailure() << "supports() says yes";
  return refused([&] { call(args, {}); }, words);
}

// Two sequences, of 20 and 5 tokens, with 3 and 2 queries; pages of 8 tokens.
class RefusedAttention : public ::testing::Test {
 protected:
  const Tensor q_{DType::bf16, {5, 6, 16}}, out_{DType::bf16, {5, 6, 16}};
  const Tensor k_pages_{DType::bf16, {7, 8, 2, 16}}, v_pages_{DType::bf16, {7, 8, 2, 16}};
  const Tensor table_ = ints({2, 3}, {4, 1, 6, 0, -1, 99}), lens_ = ints({2}, {20, 5});
  const Tensor starts_ = ints({3}, {0, 3, 5});

  PrefillAttentionArgs prefill() const {
    return {.q = q_, .kv = kv(), .query_starts = starts_, .out = out_};
  }
  DecodeAttentionArgs decode() const {
    return {.q = q_.view().slice(0, 0, 2), .kv = kv(), .out = out_.view().slice(0, 0, 2)};
  }
  PagedKv kv() const { return {k_pages_, v_pages_, table_, lens_}; }

  using Change = std::function<void(PrefillAttentionArgs&)>;
  ::testing::AssertionResult refuses(const Change& change, Words words) const {
    return refused_with<PrefillAttentionArgs>(prefill(), &attention_prefill, change, words);
  }
  // Values inside tensors are seen by the call, not by supports(); a refused call writes nothing.
  ::testing::AssertionResult refuses_value(const Tensor& tensor, int64_t i, int32_t value,
                                           Words words) const {
    int32_t& element = tensor.view().as<int32_t>()[i];
    const int32_t before = element;
    element = value;
    std::fill_n(out_.view().as<uint16_t>(), 5 * 6 * 16, uint16_t{17});
    const ::testing::AssertionResult result = refused([&] { attention_prefill(prefill()); }, words);
    element = before;
    if (out_.view().as<uint16_t>()[0] != 17) {
      return ::testing::AssertionFailure() << "out was written";
    }
    return result;
  }
};

TEST_F(RefusedAttention, WrongQueriesAndOutputs) {
  const Tensor five_heads(DType::bf16, {5, 5, 16}), narrow(DType::bf16, {5, 6, 8});
  const Tensor half(DType::f16, {5, 6, 16}), many(DType::bf16, {5, 6, 32});
  EXPECT_TRUE(refuses([&](auto& a) { a.q.dtype = DType::i32; },
                      {"attention_prefill: q is i32", "one of f32, f16, bf16"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.q = q_.view().slice(0, 0, 4); },
                      {"out is bf16[5, 6, 16]", "q is bf16[4, 6, 16]", "one shape"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.q = a.out = five_heads; },
                      {"q has 5 heads and k_pages 2", "multiple"}));
  EXPECT_TRUE(
      refuses([&](auto& a) { a.q = a.out = narrow; }, {"k_pages has head_dim 16 and q has 8"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.q.rank = 2; }, {"attention_prefill: q", "must be 3"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.q = q_.view().transposed(1, 2); },
                      {"attention_prefill: q", "elements of a head must be contiguous"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.out = half; }, {"out is f16", "q is bf16"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.out.strides[0] = 0; }, {"out", "stride 0"}));
  EXPECT_TRUE(refuses(
      [&](auto& a) {
        a.q = many.view().slice(2, 0, 16);
        a.out = many.view().slice(2, 8, 24);
      },
      {"out", "shares part of the memory of", "attention_prefill: q"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.out.data = k_pages_.view().data; },
                      {"out", "shares memory with", "attention_prefill: k_pages"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.out = on_gpu(out_); }, {"out is on cuda:3"}));
}

TEST_F(RefusedAttention, WrongPagesTablesAndStarts) {
  const Tensor other(DType::bf16, {7, 8, 2, 8}), half(DType::f16, {7, 8, 2, 16});
  const Tensor flat(DType::bf16, {7, 0, 2, 16}), three = ints({3}, {1, 1, 1});
  EXPECT_TRUE(refuses([&](auto& a) { a.kv.k_pages = half; }, {"k_pages is f16", "q is bf16"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.kv.v_pages = other; },
                      {"v_pages is bf16[7, 8, 2, 8]", "k_pages is bf16[7, 8, 2, 16]"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.kv.k_pages = a.kv.v_pages = flat; },
                      {"k_pages is bf16[7, 0, 2, 16]", "page_size must be at least 1"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.kv.k_pages = k_pages_.view().slice(1, 0, 4); },
                      {"k_pages", "must be contiguous"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.kv.k_pages = on_gpu(k_pages_); }, {"k_pages is on cuda:3"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.kv.page_table = table_.view().transposed(0, 1); },
                      {"page_table is i32[3, 2]", "seq_lens is i32[2]"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.kv.page_table.strides[1] = 2; },
                      {"page_table", "pages of a sequence must be contiguous"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.kv.seq_lens.dtype = DType::i64; },
                      {"seq_lens is i64", "one of i32"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.kv.seq_lens = three; }, {"seq_lens is i32[3]"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.query_starts = lens_; },
                      {"query_starts is i32[2]", "2 sequences", "3 elements"}));
}

TEST_F(RefusedAttention, WrongScores) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(refuses([&](auto& a) { a.scores.scale = nan; }, {"scale is nan", "finite"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.scores.window = -1; }, {"window is -1"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.scores.softcap = -2.0f; }, {"softcap is -2"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.scores.softcap = nan; }, {"softcap is nan"}));
}

TEST_F(RefusedAttention, ADecodeOfMoreTokensThanSequences) {
  const auto change = [&](DecodeAttentionArgs& a) { a.q = q_, a.out = out_; };
  EXPECT_TRUE(refused_with<DecodeAttentionArgs>(
      decode(), &attention_decode, change,
      {"attention_decode: q is bf16[5, 6, 16]", "seq_lens is i32[2]", "use attention_prefill"}));
}

TEST_F(RefusedAttention, ValuesOutOfRange) {
  attention_prefill(prefill());
  EXPECT_TRUE(refuses_value(lens_, 1, -1, {"attention_prefill: seq_lens[1] is -1", "0 to 24"}));
  EXPECT_TRUE(refuses_value(lens_, 0, 25, {"seq_lens[0] is 25", "3 pages of 8 tokens", "0 to 24"}));
  EXPECT_TRUE(refuses_value(
      lens_, 0, 2, {"sequence 0 has 3 query tokens and seq_lens[0] is 2", "append their keys"}));
  EXPECT_TRUE(refuses_value(table_, 2, 7, {"page_table[0, 2] is 7", "7 pages", "of 20"}));
  EXPECT_TRUE(refuses_value(table_, 3, -1, {"page_table[1, 0] is -1"}));
  EXPECT_TRUE(refuses_value(starts_, 0, 1, {"query_starts[0] is 1", "must be 0"}));
  EXPECT_TRUE(refuses_value(starts_, 1, 6, {"query_starts[2] is 5 after 6", "ascend"}));
  EXPECT_TRUE(refuses_value(starts_, 2, 4, {"query_starts[2] is 4", "q has 5 tokens"}));
}

// Entries that no key in sight needs may hold anything: those beyond the sequence and, with a
// window, those before it.
TEST_F(RefusedAttention, UnusedEntriesAreNotLookedAt) {
  PrefillAttentionArgs args = prefill();
  args.scores.window = 2;
  const Tensor table = ints({2, 3}, {-5, -5, 6, 0, -1, 99});
  args.kv.page_table = table;
  attention_prefill(args);
  args.scores.window = 3;  // the first query, at position 17, sees key 15: the second page
  EXPECT_TRUE(refused([&] { attention_prefill(args); }, {"page_table[0, 1] is -5"}));
}

TEST(RefusedKvAppend, WrongTensors) {
  const Tensor k(DType::f16, {3, 2, 8}), v(DType::f16, {3, 2, 8}), slots(DType::i64, {3});
  const Tensor k_pages(DType::f16, {4, 5, 2, 8}), v_pages(DType::f16, {4, 5, 2, 8});
  const Tensor wide(DType::f16, {4, 5, 2, 16}), full(DType::f32, {4, 5, 2, 8});
  const KvAppendArgs good{.k = k, .v = v, .slots = slots, .k_pages = k_pages, .v_pages = v_pages};
  const auto refuses = [&](const std::function<void(KvAppendArgs&)>& change, Words words) {
    return refused_with<KvAppendArgs>(good, &kv_append, change, words);
  };
  EXPECT_TRUE(refuses([&](auto& a) { a.k = slots; }, {"kv_append: k is i64[3]", "bf16"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.v = v.view().slice(0, 0, 2); },
                      {"kv_append: v is f16[2, 2, 8]", "k is f16[3, 2, 8]"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.k = k.view().transposed(1, 2); },
                      {"kv_append: k", "elements of a head must be contiguous"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.k_pages = a.v_pages = full; },
                      {"kv_append: v_pages", "shares memory"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.v_pages = full; }, {"v_pages is f32", "k_pages is f16"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.v_pages = wide; },
                      {"v_pages is f16[4, 5, 2, 16]", "k_pages is f16[4, 5, 2, 8]"}));
  EXPECT_TRUE(
      refuses([&](auto& a) { a.k = k.view().slice(1, 0, 1), a.v = v.view().slice(1, 0, 1); },
              {"k is f16[3, 1, 8]", "num_kv_heads and head_dim"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.slots = slots.view().slice(0, 0, 2); },
                      {"slots is i64[2]", "must have 3", "token of k"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.v.data = k_pages.view().data; },
                      {"k_pages", "shares memory with", "kv_append: v"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.slots = on_gpu(slots); }, {"slots is on cuda:3"}));
}

TEST(RefusedKvAppend, ASlotBeyondThePagesChangesNothing) {
  const Tensor k(DType::f32, {2, 1, 1}), slots(DType::i64, {2});
  const Tensor k_pages(DType::f32, {4, 5, 1, 1}), v_pages(DType::f32, {4, 5, 1, 1});
  k.view().as<float>()[0] = 3.0f;
  k_pages.view().as<float>()[1] = 5.0f;
  slots.view().as<int64_t>()[0] = 1;
  for (int64_t slot : {int64_t{20}, int64_t{1} << 40}) {
    slots.view().as<int64_t>()[1] = slot;
    const KvAppendArgs args{.k = k, .v = k, .slots = slots, .k_pages = k_pages, .v_pages = v_pages};
    EXPECT_TRUE(refused([&] { kv_append(args); }, {"kv_append: slots[1] is " + std::to_string(slot),
                                                   "4 pages of 5 tokens", "run to 19"}));
    EXPECT_EQ(k_pages.view().as<float>()[1], 5.0f);
  }
}

TEST(RefusedKvCopyPages, WrongTensorsAndPages) {
  const Tensor k_pages(DType::i8, {4, 5, 2, 8}), v_pages(DType::i8, {4, 5, 2, 8});
  const Tensor other(DType::u8, {4, 5, 2, 8}), one = ints({1}, {0});
  const Tensor sources = ints({2}, {0, 1}), targets = ints({2}, {2, 3});
  const KvCopyPagesArgs good{
      .k_pages = k_pages, .v_pages = v_pages, .sources = sources, .targets = targets};
  const auto refuses = [&](const std::function<void(KvCopyPagesArgs&)>& change, Words words) {
    return refused_with<KvCopyPagesArgs>(good, &kv_copy_pages, change, words);
  };
  EXPECT_TRUE(refuses([&](auto& a) { a.v_pages = other; }, {"v_pages is u8", "k_pages is i8"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.v_pages = k_pages; }, {"v_pages", "shares memory with"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.k_pages.rank = 3; }, {"k_pages", "must be 4"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.targets = one; }, {"targets is i32[1]", "must have 2"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.sources.dtype = DType::f32; }, {"sources", "one of i32"}));
  const auto refuses_pages = [&](std::vector<int32_t> from, std::vector<int32_t> to, Words words) {
    const Tensor bad_from = ints({2}, from), bad_to = ints({2}, to);
    KvCopyPagesArgs args = good;
    args.sources = bad_from;
    args.targets = bad_to;
    return refused([&] { kv_copy_pages(args); }, words);
  };
  EXPECT_TRUE(refuses_pages({0, -1}, {2, 3}, {"sources[1] is -1", "not a page", "0 to 3"}));
  EXPECT_TRUE(refuses_pages({0, 1}, {4, 3}, {"targets[0] is 4", "not a page"}));
  EXPECT_TRUE(refuses_pages({0, 1}, {2, 0}, {"targets[1] is 0", "also a source"}));
  EXPECT_TRUE(refuses_pages({0, 1}, {2, 2}, {"targets[1] is 2", "written twice"}));
  kv_copy_pages(good);  // the refusals left nothing behind
}

}  // namespace
}  // namespace tessera::testing
