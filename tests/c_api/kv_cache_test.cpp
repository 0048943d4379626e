// The KV cache through the C ABI, on numbers small enough to check by hand.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <vector>

#include "tests/c_api/dl_tensor.h"
#include "tests/c_api/expect.h"

namespace tessera::testing {
namespace {

using Bytes = std::vector<uint8_t>;
using Floats = std::vector<float>;
using Halves = std::vector<uint16_t>;  // f16 as bits: 1 is 0x3c00, 2 is 0x4000, 5 is 0x4500

Array<uint16_t>& as_f16(Array<uint16_t>& halves) {
  halves.dl.dtype = {kDLFloat, 16, 1};
  return halves;
}

TesseraKvAppendArgs append_args(const DLTensor* k, const DLTensor* v, const DLTensor* slots,
                                const DLTensor* k_pages, const DLTensor* v_pages) {
  TesseraKvAppendArgs args{};
  args.struct_size = sizeof args;
  args.k = k;
  args.v = v;
  args.slots = slots;
  args.k_pages = k_pages;
  args.v_pages = v_pages;
  return args;
}

TesseraKvGatherArgs gather_args(const DLTensor* k_pages, const DLTensor* v_pages,
                                const DLTensor* seq_lens, const DLTensor* starts, const DLTensor* k,
                                const DLTensor* v, const DLTensor* page_table) {
  TesseraKvGatherArgs args{};
  args.struct_size = sizeof args;
  args.k_pages = k_pages;
  args.v_pages = v_pages;
  args.seq_lens = seq_lens;
  args.starts = starts;
  args.k = k;
  args.v = v;
  args.page_table = page_table;
  return args;
}

// Two tokens of one head of 2 for a cache of 3 pages of 2 tokens. The first goes to row 1 of page
// 2, the second to row 0 of page 0.
struct AppendCase {
  Array<float> k{{2, 1, 2}, {1, 2, 3, 4}};
  Array<float> v{{2, 1, 2}, {5, 6, 7, 8}};
  Array<int32_t> slots{{2}, {5, 0}};
  Array<float> k_pages{{3, 2, 1, 2}};
  Array<float> v_pages{{3, 2, 1, 2}};
  TesseraKvAppendArgs args = append_args(k, v, slots, k_pages, v_pages);

  TesseraStatus run(const TesseraContext* ctx = nullptr) { return tessera_kv_append(&args, ctx); }
};

TEST(CApiKvAppend, WritesTokensToTheirSlots) {
  AppendCase c;
  expect_ok(c.run());
  EXPECT_EQ(c.k_pages.values, (Floats{3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2}));
  EXPECT_EQ(c.v_pages.values, (Floats{7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 5, 6}));
  EXPECT_EQ(c.k.values, (Floats{1, 2, 3, 4}));
}

TEST(CApiKvAppend, RotatesByATableIfOneIsGiven) {
  AppendCase c;
  // Position 0 rotates by 90 degrees, (a, b) to (-b, a); position 1 by 0.
  Array<float> q({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), table({2, 2}, {0, 1, 1, 0});
  Array<int64_t> positions({2}, {0, 1});
  c.args.rope_q = q;
  c.args.rope_positions = positions;
  c.args.rope_table = table;
  expect_ok(c.run());
  EXPECT_EQ(q.values, (Floats{-2, 1, -4, 3, 5, 6, 7, 8}));
  EXPECT_EQ(c.k.values, (Floats{-2, 1, 3, 4}));
  EXPECT_EQ(c.k_pages.values, (Floats{3, 4, 0, 0, 0, 0, 0, 0, 0, 0, -2, 1}));
  EXPECT_EQ(c.v_pages.values, (Floats{7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 5, 6}));
}

TEST(CApiKvAppend, TakesTheStyleOfTheRotation) {
  // Heads of 4: half-split pairs are (0, 2) and (1, 3), interleaved ones (0, 1) and (2, 3).
  Array<float> k({1, 1, 4}), v({1, 1, 4}), q({1, 1, 4}), table({1, 4}, {0, 0, 1, 1});
  Array<float> k_pages({1, 1, 1, 4}), v_pages({1, 1, 1, 4});
  Array<int32_t> slots({1}, {0}), positions({1}, {0});
  TesseraKvAppendArgs args = append_args(k, v, slots, k_pages, v_pages);
  args.rope_q = q;
  args.rope_positions = positions;
  args.rope_table = table;
  k.values = {1, 2, 3, 4};
  expect_ok(tessera_kv_append(&args, nullptr));
  EXPECT_EQ(k_pages.values, (Floats{-3, -4, 1, 2}));
  k.values = {1, 2, 3, 4};
  args.rope_style = TESSERA_ROPE_INTERLEAVED;
  expect_ok(tessera_kv_append(&args, nullptr));
  EXPECT_EQ(k_pages.values, (Floats{-2, 1, -4, 3}));
}

TEST(CApiKvAppend, QuantisesToBytesWithTheirScales) {
  AppendCase c;
  c.k.values = {2, 6, -4, 0};  // at a scale of 2: 1, 3, -2 and 0 as e4m3
  c.v.values = {5, 35, 9, 9};  // scale 2, low 5; then a row whose elements are equal
  c.slots.values = {5, -1};    // the second token is skipped
  Array<uint8_t> k_codes({3, 2, 1, 2}), v_codes({3, 2, 1, 1});
  Array<float> k_scales({1}, {2});
  Array<uint16_t> v_scales({3, 2, 1, 2});
  c.args.k_pages = k_codes;
  c.args.v_pages = v_codes;
  c.args.k_scales = k_scales;
  c.args.v_scales = as_f16(v_scales);
  c.args.k_format = TESSERA_E4M3;
  c.args.v_format = TESSERA_I4;
  expect_ok(c.run());
  EXPECT_EQ(k_codes.values, (Bytes{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x38, 0x44}));
  EXPECT_EQ(v_codes.values, (Bytes{0, 0, 0, 0, 0, 0xf0}));
  EXPECT_EQ(v_scales.values, (Halves{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x4000, 0x4500}));
  EXPECT_EQ(k_scales.values, Floats{2});
  c.slots.values = {-1, 0};
  expect_ok(c.run());
  EXPECT_EQ(k_codes.values[0], 0xc0);
  EXPECT_EQ(v_scales.values[0], 0x3c00);  // a row of equal elements has scale 1
}

// One sequence of 33 tokens in pages of 32, keys in 4 bits by column. Token t has key 2 (t % 16):
// the 32 of the first page have codes t % 16 at a scale of 2, and the last is in the tail alone.
TEST(CApiKvCache, KeepsTheNewestKeysOfColumnsInATail) {
  constexpr int64_t kTokens = 33;
  Array<float> k({kTokens, 1, 2}), v({kTokens, 1, 2}), tail({2, 32, 1, 2});
  Array<int32_t> slots({kTokens}), tail_slots({kTokens}), lens({1}, {kTokens}), tails({1}, {1});
  for (size_t t = 0; t < kTokens; ++t) {
    k.values[2 * t] = k.values[2 * t + 1] = 2.0f * static_cast<float>(t % 16);
    v.values[2 * t] = static_cast<float>(t);
    slots.values[t] = static_cast<int32_t>(t < 32 ? 64 + t : t - 32);  // page 2, then page 0
    tail_slots.values[t] = static_cast<int32_t>(32 + t % 32);
  }
  Array<uint8_t> k_pages({3, 32, 1, 1});
  Array<float> v_pages({3, 32, 1, 2});
  Array<uint16_t> k_scales({3, 1, 1, 2, 2});
  TesseraKvAppendArgs append = append_args(k, v, slots, k_pages, v_pages);
  append.k_scales = as_f16(k_scales);
  append.k_tail = tail;
  append.tail_slots = tail_slots;
  append.k_format = TESSERA_I4;
  expect_ok(tessera_kv_append(&append, nullptr));
  EXPECT_EQ(k_scales.values, (Halves{0, 0, 0, 0, 0, 0, 0, 0, 0x4000, 0, 0x4000, 0}));
  for (size_t t = 0; t < 32; ++t) EXPECT_EQ(k_pages.values[64 + t], 0x11 * (t % 16)) << t;

  tail.values[2 * 32] = 100;  // row 0 of tail 1, where token 32 lies
  Array<int32_t> table({1, 2}, {2, 0}), starts({1}, {1});
  Array<float> k_out({kTokens + 1, 1, 2}), v_out({kTokens + 1, 1, 2});
  TesseraKvGatherArgs gather = gather_args(k_pages, v_pages, lens, starts, k_out, v_out, table);
  gather.k_scales = k_scales;
  gather.k_tail = tail;
  gather.tails = tails;
  gather.k_format = TESSERA_I4;
  expect_ok(tessera_kv_gather(&gather, nullptr));
  k.values[2 * 32] = 100;
  k.values.insert(k.values.begin(), {0, 0});  // the row before starts[0] is left alone
  v.values.insert(v.values.begin(), {0, 0});
  EXPECT_EQ(k_out.values, k.values);
  EXPECT_EQ(v_out.values, v.values);
}

TEST(CApiKvGather, ReadsSequencesFromPagesInAnyOrder) {
  Array<float> k_pages({3, 2, 1, 1}, {1, 2, 3, 4, 5, 6}), k({5, 1, 1}, Floats(5, -1));
  Array<int8_t> v_pages({3, 2, 1, 1}, {1, 2, 3, 4, 5, 6});
  Array<uint16_t> v_scales({3, 2, 1, 1}, Halves(6, 0x4000));
  Array<float> v({5, 1, 1}, Floats(5, -1));
  Array<int32_t> lens({2}, {3, 1}), table({2, 2}, {1, 0, 2, -1}), starts({2}, {2, 0});
  TesseraKvGatherArgs args = gather_args(k_pages, v_pages, lens, starts, k, v, table);
  args.v_scales = as_f16(v_scales);
  expect_ok(tessera_kv_gather(&args, nullptr));
  EXPECT_EQ(k.values, (Floats{5, -1, 3, 4, 1}));
  EXPECT_EQ(v.values, (Floats{10, -1, 6, 8, 2}));
  starts.values = {3, 0};
  expect_refused(tessera_kv_gather(&args, nullptr),
                 "kv_gather: starts[0] is 3 and seq_lens[0] is 3; k has 5 tokens");
}

TEST(CApiKvCopyPages, CopiesKeysAndValuesWithTheirScales) {
  // Keys as nibbles and values as bytes, which have as many elements: 2 a head.
  Array<uint8_t> k({3, 1, 1, 1}, {0x21, 0x43, 0x65});
  Array<int8_t> v({3, 1, 1, 2}, {1, 2, 3, 4, 5, 6});
  Array<uint16_t> k_scales({3, 1, 1, 2}, {1, 2, 3, 4, 5, 6}), v_scales({3, 1, 1, 1}, {7, 8, 9});
  Array<int32_t> sources({2}, {2, 2}), targets({2}, {0, 1});
  as_f16(k_scales), as_f16(v_scales);
  const auto copy = [&](int32_t k_format) {
    return tessera_kv_copy_pages(k, v, sources, targets, k_scales, v_scales, k_format,
                                 TESSERA_DTYPE_AUTO, nullptr);
  };
  expect_refused(copy(TESSERA_DTYPE_AUTO), "kv_copy_pages: v_pages is i8[3, 1, 1, 2]");
  expect_ok(copy(TESSERA_I4));
  EXPECT_EQ(k.values, Bytes(3, 0x65));
  EXPECT_EQ(v.values, (std::vector<int8_t>{5, 6, 5, 6, 5, 6}));
  EXPECT_EQ(k_scales.values, (Halves{5, 6, 5, 6, 5, 6}));
  EXPECT_EQ(v_scales.values, Halves(3, 9));
  targets.values = {0, 2};
  expect_refused(copy(TESSERA_I4), "kv_copy_pages: targets[1] is 2, which is also a source");
}

TEST(CApiKvAppend, RefusesWhatIsMissingOrWrong) {
  expect_refused(tessera_kv_append(nullptr, nullptr), "kv_append: args is NULL");
  AppendCase c;
  c.args.slots = nullptr;
  expect_refused(c.run(), "kv_append: slots is NULL");
  c.args.slots = c.slots;
  c.slots.values = {6, 0};
  expect_refused(c.run(), "kv_append: slots[0] is 6; k_pages has 3 pages of 2 tokens");
  c.args.rope_q = c.k;
  expect_refused(
      c.run(), "kv_append: rope_positions is NULL; rope_q, rope_positions, rope_table go together");
  c.args.rope_positions = c.slots;
  expect_refused(c.run(), "kv_append: rope_table is NULL");
  c.args.rope_table = c.k;
  c.args.rope_style = 2;
  expect_refused(c.run(), "kv_append: rope_style is 2; want 0 to 1");
  c.args.struct_size = 16;
  expect_refused(c.run(), "TesseraKvAppendArgs.struct_size is 16; set it to sizeof");
  EXPECT_EQ(c.k_pages.values, Floats(12));
}

TEST(CApiKvCache, RefusesWhatIsMissing) {
  expect_refused(tessera_kv_gather(nullptr, nullptr), "kv_gather: args is NULL");
  TesseraKvGatherArgs args{};
  expect_refused(tessera_kv_gather(&args, nullptr), "TesseraKvGatherArgs.struct_size is 0");
  args.struct_size = sizeof args;
  expect_refused(tessera_kv_gather(&args, nullptr), "kv_gather: k_pages is NULL");
  AppendCase c;
  expect_refused(tessera_kv_copy_pages(c.k_pages, c.v_pages, c.slots, nullptr, nullptr, nullptr, 0,
                                       0, nullptr),
                 "kv_copy_pages: targets is NULL");
}

TEST(CApiKvCache, AnswersWithoutRunning) {
  AppendCase c;
  TesseraContext ctx{};
  ctx.struct_size = sizeof ctx;
  ctx.check_only = 1;
  expect_ok(c.run(&ctx));
  EXPECT_EQ(c.k_pages.values, Floats(12));
  c.args.v = c.k_pages;
  EXPECT_EQ(c.run(&ctx), TESSERA_NOT_SUPPORTED);
}

}  // namespace
}  // namespace tessera::testing
