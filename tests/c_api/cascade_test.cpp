// attention_merge and attention_cascade through the C ABI, on numbers small enough to check by
// hand.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/c_api/dl_tensor.h"
#include "tests/c_api/expect.h"

namespace tessera::testing {
namespace {

using Floats = std::vector<float>;

constexpr float kNothing = -std::numeric_limits<float>::infinity();

void expect_near(const Array<float>& got, const Floats& want) {
  ASSERT_EQ(got.values.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got.values[i], want[i], 1e-5) << i;
}

// Two parts of two heads. For head 0 the second part weighs three times as much as the first; for
// head 1 it weighs nothing.
struct MergeCase {
  Array<float> parts{{2, 1, 2, 2}, {4, 8, 1, 2, -4, 4, 5, 6}};
  Array<float> part_lses{{2, 1, 2}, {0, 1, std::log(3.0f), kNothing}};
  Array<float> out{{1, 2, 2}};
  TesseraMergeAttentionArgs args{};

  MergeCase() {
    args.struct_size = sizeof args;
    args.parts = parts;
    args.part_lses = part_lses;
    args.out = out;
  }
  TesseraStatus run(const TesseraContext* ctx = nullptr) {
    return tessera_attention_merge(&args, ctx);
  }
};

TEST(CApiMerge, WeighsPartsByTheirLogarithms) {
  MergeCase c;
  expect_ok(c.run());
  expect_near(c.out, {-2, 5, 1, 2});
  Array<float> lse({1, 2});
  c.args.lse = lse;
  expect_ok(c.run());
  expect_near(lse, {std::log(4.0f), 1});
}

TEST(CApiMerge, RefusesWhatIsMissingOrWrong) {
  expect_refused(tessera_attention_merge(nullptr, nullptr), "attention_merge: args is NULL");
  MergeCase c;
  c.args.part_lses = nullptr;
  expect_refused(c.run(), "attention_merge: part_lses is NULL");
  c.args.part_lses = c.out;
  expect_refused(c.run(), "attention_merge: part_lses is f32[1, 2, 2]");
  c.args.part_lses = c.part_lses;
  c.args.out = c.parts;
  expect_refused(c.run(), "attention_merge: out is f32[2, 1, 2, 2]");
  c.args.struct_size = 24;
  expect_refused(c.run(), "TesseraMergeAttentionArgs.struct_size is 24; set it to sizeof, 40");
}

// Two sequences, one head of size 2, all scores 0: a query returns the mean of the values it sees.
// Both sequences begin with the 3 tokens of pages 2 and 0. The first has one token of its own, in
// page 1; the second has none.
struct CascadeCase {
  Array<float> q{{2, 1, 2}};
  Array<float> k{{3, 2, 1, 2}};
  Array<float> v{{3, 2, 1, 2}, {30, 3, -1, -1, 60, 6, -1, -1, 12, 1, 18, 2}};
  Array<float> out{{2, 1, 2}};
  Array<int32_t> lens{{2}, {1, 0}};
  Array<int32_t> table{{2, 1}, {1, -1}};
  Array<int32_t> shared_table{{1, 2}, {2, 0}};
  Array<int32_t> piece_lens{{1}, {3}};
  Array<float> parts{{2, 2, 1, 2}};
  Array<float> part_lses{{2, 2, 1}};
  TesseraCascadeAttentionArgs args{};

  CascadeCase() {
    args.struct_size = sizeof args;
    args.q = q;
    args.k_pages = args.shared_k_pages = k;
    args.v_pages = args.shared_v_pages = v;
    args.out = out;
    args.seq_lens = lens;
    args.page_table = table;
    args.shared_page_table = shared_table;
    args.piece_lens = piece_lens;
    args.parts = parts;
    args.part_lses = part_lses;
  }
  TesseraStatus run(const TesseraContext* ctx = nullptr) {
    return tessera_attention_cascade(&args, ctx);
  }
};

TEST(CApiCascade, AttendsToSharedAndOwnTokens) {
  CascadeCase c;
  Array<float> lse({2, 1});
  c.args.lse = lse;
  c.args.longest = 1;
  expect_ok(c.run());
  expect_near(c.out, {30, 3, 20, 2});
  expect_near(lse, {std::log(4.0f), std::log(3.0f)});
  c.args.out = c.q;
  expect_ok(c.run());
  EXPECT_EQ(c.q.values, c.out.values);
}

// Without a page table, piece n is page n. Here there are two pieces, of 2 tokens and 1.
TEST(CApiCascade, TakesSharedTokensInPieces) {
  CascadeCase c;
  Array<int32_t> piece_lens({2}, {2, 1});
  Array<float> k({2, 2, 1, 2}), v({2, 2, 1, 2}, {12, 1, 18, 2, 30, 3, -1, -1});
  Array<float> parts({3, 2, 1, 2}), part_lses({3, 2, 1});
  c.args.shared_k_pages = k;
  c.args.shared_v_pages = v;
  c.args.shared_page_table = nullptr;
  c.args.piece_lens = piece_lens;
  c.args.parts = parts;
  c.args.part_lses = part_lses;
  expect_ok(c.run());
  expect_near(c.out, {30, 3, 20, 2});
  EXPECT_EQ(parts.values[0], 15);  // of the first piece
}

TEST(CApiCascade, TakesSinksScalesAndLists) {
  CascadeCase c;
  Array<float> sinks({1}, {std::log(4.0f)});  // weighs as much as the four keys
  c.args.sinks = sinks;
  expect_ok(c.run());
  expect_near(c.out, {15, 1.5, 60 / 7.0f, 6 / 7.0f});
  // First the sequence's own values, 8 and 6, quantised with a scale of 2 per row; then a list of
  // keys that leaves them out.
  Array<int8_t> codes({3, 2, 1, 2}, std::vector<int8_t>{0, 0, 0, 0, 4, 3});
  Array<uint16_t> scales({3, 2, 1, 1}, std::vector<uint16_t>(6, 0x4000));
  scales.dl.dtype = {kDLFloat, 16, 1};
  c.args.sinks = nullptr;
  c.args.v_pages = codes;
  c.args.v_scales = scales;
  expect_ok(c.run());
  expect_near(c.out, {17, 3, 20, 2});
  Array<int32_t> keys({2, 1, 1}), num_keys({2, 1});
  c.args.keys = keys;
  c.args.num_keys = num_keys;
  expect_ok(c.run());
  expect_near(c.out, {20, 2, 20, 2});
}

TEST(CApiCascade, RefusesWhatIsMissingOrWrong) {
  expect_refused(tessera_attention_cascade(nullptr, nullptr), "attention_cascade: args is NULL");
  CascadeCase c;
  const std::pair<const char*, const DLTensor**> fields[] = {
      {"q", &c.args.q},
      {"shared_k_pages", &c.args.shared_k_pages},
      {"shared_v_pages", &c.args.shared_v_pages},
      {"piece_lens", &c.args.piece_lens},
      {"parts", &c.args.parts},
      {"part_lses", &c.args.part_lses}};
  for (const auto& [name, field] : fields) {
    const DLTensor* given = std::exchange(*field, nullptr);
    expect_refused(c.run(), std::string("attention_cascade: ") + name + " is NULL");
    *field = given;
  }
  c.args.parts = c.q;
  expect_refused(c.run(), "on cpu; it must have 8 elements: a part for each piece");
  c.args.parts = c.parts;
  c.args.piece_lens = c.lens;
  expect_refused(c.run(),
                 "attention_cascade: page_table is i32[1, 2] on cpu and piece_lens is i32[2]");
  c.args.struct_size = 8;
  expect_refused(c.run(), "TesseraCascadeAttentionArgs.struct_size is 8; set it to sizeof");
  EXPECT_EQ(c.out.values, Floats(4));
}

TEST(CApiCascade, AnswersWithoutRunning) {
  CascadeCase c;
  TesseraContext ctx{};
  ctx.struct_size = sizeof ctx;
  ctx.check_only = 1;
  expect_ok(c.run(&ctx));
  EXPECT_EQ(c.out.values, Floats(4));
  c.args.shared_v_pages = c.lens;
  EXPECT_EQ(c.run(&ctx), TESSERA_NOT_SUPPORTED);
  MergeCase merge;
  merge.args.out = merge.part_lses;
  EXPECT_EQ(merge.run(&ctx), TESSERA_NOT_SUPPORTED);
}

}  // namespace
}  // namespace tessera::testing
