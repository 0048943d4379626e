// attention_merge and attention_cascade on the CPU: against sums by hand, against decode attention
// over all keys at once, and the arguments they refuse.
// SPDX-License-Identifier: MIT
#include "tessera/ops/attention.h"
#include "tests/cpu/tensors.h"
#include "tests/ops/refusal.h"

namespace tessera::testing {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

TEST(AttentionMerge, WeighsPartsByTheirLogarithms) {
  const Tensor parts = tensor_of(DType::f32, {3, 1, 2, 2}, {4, 8, 1, 2, -2, 6, 3, 4, 0, 1, 5, 6});
  const Tensor lses =
      tensor_of(DType::f32, {3, 1, 2}, {0, 1, std::log(3.0), kNothing, kNothing, 1});
  const Tensor out(DType::f32, {1, 2, 2}), lse(DType::f32, {1, 2});
  attention_merge({.parts = parts, .part_lses = lses, .out = out, .lse = lse});
  EXPECT_TRUE(all_close(values_of(out), {-0.5, 6.5, 3, 4}, Values(4, 1e-6)));
  EXPECT_TRUE(all_close(values_of(lse), {std::log(4.0), 1 + std::log(2.0)}, Values(2, 1e-6)));
}

TEST(AttentionMerge, WhatHasSeenNothingCountsForNothing) {
  const Tensor parts = tensor_of(DType::f16, {2, 1, 2, 2}, {kNan, kNan, 1, 2, 3, 4, kNan, kNan});
  const Tensor lses = tensor_of(DType::f32, {2, 1, 2}, {kNothing, 5, 7, kNothing});
  const Tensor out(DType::f16, {1, 2, 2}), lse(DType::f32, {1, 2});
  attention_merge({.parts = parts, .part_lses = lses, .out = out, .lse = lse});
  EXPECT_TRUE(all_equal(values_of(out), {3, 4, 1, 2}));
  EXPECT_TRUE(all_equal(values_of(lse), {7, 5}));
  fill(lses, [] { return -kInfinity; });
  attention_merge({.parts = parts, .part_lses = lses, .out = out, .lse = lse});
  EXPECT_TRUE(all_equal(values_of(out), {0, 0, 0, 0}));
  EXPECT_TRUE(all_equal(values_of(lse), {-kInfinity, -kInfinity}));
}

// NaN in either part shows in the result.
TEST(AttentionMerge, KeepsNan) {
  const Tensor parts = tensor_of(DType::f32, {2, 1, 1, 1}, {1, 2});
  const Tensor out(DType::f32, {1, 1, 1});
  for (const Values& of_parts : {Values{kNan, 0}, Values{0, kNan}, Values{kNan, -kInfinity}}) {
    const Tensor lses = tensor_of(DType::f32, {2, 1, 1}, of_parts);
    attention_merge({.parts = parts, .part_lses = lses, .out = out});
    EXPECT_TRUE(std::isnan(values_of(out)[0]));
  }
}

// Five sequences of 48 shared tokens and up to 20 of their own, in pages of 16. The shared tokens
// are three pages of the same pool, or two pieces of 30 and 18 tokens in memory of their own.
class Cascade {
 public:
  static constexpr int64_t kBatch = 5, kHeads = 6, kKvHeads = 2, kDim = 16, kShared = 48;

  explicit Cascade(int64_t q_len)
      : q_len_(q_len),
        own_lens_(ints({kBatch}, {20, 16, 17, static_cast<int>(q_len), 4})),
        all_lens_(ints({kBatch}, {68, 64, 65, 48 + static_cast<int>(q_len), 52})) {
    fill_normal(q_, 1);
    fill_normal(k_pages_, 2);
    fill_normal(v_pages_, 3);
    fill_normal(sinks_, 4);
    for (int64_t s = 0; s < kBatch; ++s) {
      for (int64_t n = 0; n < 5; ++n) {
        table_.view().as<int32_t>()[s * 5 + n] = static_cast<int>(n < 3 ? n : 3 + 2 * s + n - 3);
      }
    }
    copy_pieces(k_pages_, k_pieces_);
    copy_pieces(v_pages_, v_pieces_);
  }

  DecodeAttentionArgs whole(const Tensor& out, const Tensor& lse) const {
    return {.q = with_q_len(q_),
            .kv = {k_pages_, v_pages_, table_, all_lens_},
            .out = with_q_len(out),
            .softcap = 20.0f,
            .lse = lse,
            .sinks = sinks_};
  }
  CascadeAttentionArgs cascade(const Tensor& out, const Tensor& lse) const {
    DecodeAttentionArgs own = whole(out, lse);
    own.kv.page_table = table_.view().slice(1, 3, 5);
    own.kv.seq_lens = own_lens_;
    return {.own = own,
            .k_pages = k_pages_,
            .v_pages = v_pages_,
            .page_table = table_.view().slice(0, 0, 1).slice(1, 0, 3),
            .piece_lens = one_len_,
            .parts = two_parts_.view(),
            .part_lses = two_lses_.view()};
  }
  CascadeAttentionArgs in_pieces(const Tensor& out, const Tensor& lse) const {
    CascadeAttentionArgs args = cascade(out, lse);
    args.k_pages = k_pieces_;
    args.v_pages = v_pieces_;
    args.page_table = {};
    args.piece_lens = two_lens_;
    args.parts = three_parts_;
    args.part_lses = three_lses_;
    return args;
  }
  Tensor make_out() const { return Tensor(DType::f32, {kBatch * q_len_, kHeads, kDim}); }
  Tensor make_lse() const {
    return q_len_ == 1 ? Tensor(DType::f32, {kBatch, kHeads})
                       : Tensor(DType::f32, {kBatch, kHeads, q_len_});
  }

 private:
  TensorView with_q_len(const Tensor& rows) const {
    if (q_len_ == 1) return rows;
    return TensorView::contiguous(rows.view().data, DType::f32, {kBatch, q_len_, kHeads, kDim});
  }
  static void copy_pieces(const Tensor& pages, const Tensor& pieces) {
    fill(pieces, [] { return kNan; });
    constexpr int64_t kRow = kKvHeads * kDim;
    for (int64_t t = 0; t < kShared; ++t) {
      const int64_t piece = t < 30 ? 0 : 1;
      std::copy_n(pages.view().as<float>() + t * kRow, kRow,
                  pieces.view().as<float>() + (piece * 40 + t - piece * 30) * kRow);
    }
  }

  int64_t q_len_;
  Tensor q_{DType::f32, {kBatch * q_len_, kHeads, kDim}};
  Tensor k_pages_{DType::f32, {13, 16, kKvHeads, kDim}},
      v_pages_{DType::f32, {13, 16, kKvHeads, kDim}};
  Tensor k_pieces_{DType::f32, {2, 40, kKvHeads, kDim}},
      v_pieces_{DType::f32, {2, 40, kKvHeads, kDim}};
  Tensor sinks_{DType::f32, {kHeads}}, table_{DType::i32, {kBatch, 5}};
  Tensor own_lens_, all_lens_, one_len_ = ints({1}, {48}), two_lens_ = ints({2}, {30, 18});
  Tensor two_parts_{DType::f32, {2, kBatch* q_len_, kHeads, kDim}};
  Tensor two_lses_{DType::f32, {2, kBatch* q_len_, kHeads}};
  Tensor three_parts_{DType::f32, {3, kBatch* q_len_, kHeads, kDim}};
  Tensor three_lses_{DType::f32, {3, kBatch* q_len_, kHeads}};
};

TEST(AttentionCascade, IsDecodeAttentionOverAllKeys) {
  for (const int64_t q_len : {1, 3}) {
    const Cascade c(q_len);
    const Tensor want = c.make_out(), want_lse = c.make_lse();
    attention_decode(c.whole(want, want_lse));
    const Tensor out = c.make_out(), lse = c.make_lse();
    for (const CascadeAttentionArgs& args : {c.cascade(out, lse), c.in_pieces(out, lse)}) {
      fill(out, [] { return kNan; });
      attention_cascade(args);
      const Values bound(values_of(want).size(), 4e-6);
      EXPECT_TRUE(all_close(values_of(out), values_of(want), bound)) << q_len;
      EXPECT_TRUE(
          all_close(values_of(lse), values_of(want_lse), Values(values_of(want_lse).size(), 4e-6)))
          << q_len;
    }
  }
}

// The own keys may be in another format than the shared ones.
TEST(AttentionCascade, OwnKeysInEightBits) {
  const Cascade c(1);
  const Tensor out = c.make_out(), lse = c.make_lse();
  CascadeAttentionArgs args = c.cascade(out, lse);
  const Tensor codes(DType::i8, {13, 16, 2, 16}), scales(DType::f16, {13, 16, 2, 1});
  const Tensor plain(DType::f32, {13, 16, 2, 16});
  fill_integers(codes, 7, -127, 127);
  fill(scales, [] { return 0x1p-6; });
  const Values values = values_of(codes);
  size_t i = 0;
  fill(plain, [&] { return values[i++] * 0x1p-6; });
  args.own.kv.k_pages = args.own.kv.v_pages = plain;
  attention_cascade(args);
  const Values want = values_of(out);
  args.own.kv.k_pages = args.own.kv.v_pages = codes;
  args.own.kv.k_scales = args.own.kv.v_scales = scales;
  attention_cascade(args);
  EXPECT_TRUE(all_close(values_of(out), want, Values(want.size(), 4e-6)));
}

TEST(AttentionMerge, RefusesWhatDoesNotFit) {
  const Tensor parts(DType::bf16, {3, 2, 4, 8}), lses(DType::f32, {3, 2, 4});
  const Tensor out(DType::bf16, {2, 4, 8}), lse(DType::f32, {2, 4});
  const Tensor half(DType::f16, {2, 4, 8}), wide(DType::bf16, {2, 4, 16});
  const Tensor few(DType::f32, {2, 2, 4}), turned(DType::f32, {4, 2});
  const MergeAttentionArgs good{.parts = parts, .part_lses = lses, .out = out, .lse = lse};
  const auto wrong = [&](const std::function<void(MergeAttentionArgs&)>& change, Words words) {
    EXPECT_TRUE(refused_with<MergeAttentionArgs>(good, &attention_merge, change, words))
        << words[0];
  };
  wrong([&](auto& a) { a.parts.dtype = DType::i32; }, {"attention_merge: parts is i32"});
  wrong([&](auto& a) { a.parts.rank = 3; }, {"parts is", "rank 3", "4, or 5"});
  wrong([&](auto& a) { a.part_lses = few; },
        {"part_lses is f32[2, 2, 4]", "bf16[3, 2, 4, 8]", "[num_parts, batch, num_heads]"});
  wrong([&](auto& a) { a.out = half; }, {"out is f16", "parts is bf16"});
  wrong([&](auto& a) { a.out = wide; }, {"out is bf16[2, 4, 16]", "shape of one of them"});
  wrong([&](auto& a) { a.out.data = parts.view().data; }, {"out", "parts"});
  wrong([&](auto& a) { a.lse = turned; }, {"lse is f32[4, 2]", "[batch, num_heads]"});
  wrong([&](auto& a) { a.out.strides[0] = 0; }, {"out", "stride 0"});
  wrong([&](auto& a) { a.parts = parts.view().transposed(2, 3); }, {"parts", "contiguous"});
  wrong([&](auto& a) { a.lse = on_gpu(lse); }, {"lse", "cuda:3"});
}

TEST(AttentionCascade, RefusesWhatDoesNotFit) {
  const Cascade c(1);
  const Tensor out = c.make_out(), lse = c.make_lse();
  const Tensor slopes(DType::f32, {Cascade::kHeads}), four(DType::i32, {4}), two(DType::i32, {2});
  const Tensor small(DType::f32, {2, 4, 6, 16}), half(DType::f16, {2, 5, 6, 16});
  const auto wrong = [&](const std::function<void(CascadeAttentionArgs&)>& change, Words words) {
    EXPECT_TRUE(
        refused_with<CascadeAttentionArgs>(c.cascade(out, lse), &attention_cascade, change, words))
        << words[0];
  };
  wrong([&](auto& a) { a.own.window = 9; }, {"own.window is 9", "use attention_decode"});
  wrong([&](auto& a) { a.own.alibi_slopes = slopes; }, {"own.alibi_slopes is f32[6]"});
  wrong([&](auto& a) { a.piece_lens = two; }, {"page_table is i32[1, 3]", "piece_lens is i32[2]"});
  wrong([&](auto& a) { a.own.kv.seq_lens = four; },
        {"attention_decode: page_table is i32[5, 2]", "4 rows"});
  wrong([&](auto& a) { a.parts = small; }, {"parts is f32[2, 4, 6, 16]", "960 elements"});
  wrong([&](auto& a) { a.parts = half; }, {"parts is f16", "must be f32"});
  wrong([&](auto& a) { a.part_lses = small; }, {"part_lses", "60 elements"});
  wrong([&](auto& a) { a.k_pages = half; }, {"attention_prefill: k is f16", "q is f32"});
  wrong([&](auto& a) { a.piece_lens = on_gpu(two); }, {"piece_lens", "cuda:3"});
  const Cascade three(3);
  const Tensor outs = three.make_out(), lses = three.make_lse();
  CascadeAttentionArgs apart = three.cascade(outs, lses);
  const Tensor room(DType::f32, {Cascade::kBatch, 4, Cascade::kHeads, Cascade::kDim});
  apart.own.q = room.view().slice(1, 0, 3);
  EXPECT_TRUE(refused([&] { attention_cascade(apart); }, {"own.q", "evenly apart"}));
}

}  // namespace
}  // namespace tessera::testing
