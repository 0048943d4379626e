// Costs of calls against sums done by hand, and what a log of calls holds.
// SPDX-License-Identifier: MIT
#include "ops/cost.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/launch_log.h"
#include "tessera/core/error.h"

namespace tessera::testing {
namespace {

Tensor int_vector(std::initializer_list<int32_t> values) {
  Tensor tensor(DType::i32, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), tensor.view().as<int32_t>());
  return tensor;
}

template <class Args>
OpCost cost(const Args& args) {
  return cost_of(args, nullptr);
}

TEST(Cost, OfAProductIsItsFactorsAndItsResult) {
  const Tensor a(DType::bf16, {16, 4096}), b(DType::bf16, {6144, 4096});
  const Tensor out(DType::bf16, {16, 6144}), bias(DType::bf16, {6144});
  const OpCost plain = cost(GemmArgs{.a = a, .b = b.view(), .out = out});
  EXPECT_EQ(plain.read_bytes, 2.0 * (16 * 4096 + 6144 * 4096));
  EXPECT_EQ(plain.written_bytes, 2.0 * 16 * 6144);
  EXPECT_EQ(plain.flops, 2.0 * 16 * 6144 * 4096);
  EXPECT_EQ(plain.shape, "16x6144x4096");
  const OpCost added = cost(
      GemmArgs{.a = a, .b = b.view(), .bias = bias.view(), .out = out, .residual = out.view()});
  EXPECT_EQ(added.read_bytes, plain.read_bytes + 2.0 * 6144 + 2.0 * 16 * 6144);
  EXPECT_NE(added.shape, plain.shape);  // rows of a table that must not be joined
}

TEST(Cost, OfAQuantisedProductCountsCodesAndScales) {
  const Tensor a(DType::bf16, {2, 256}), b(DType::i8, {512, 256}), scale(DType::f32, {512});
  const Tensor out(DType::bf16, {2, 512});
  const OpCost found =
      cost(GemmArgs{.a = a, .b = Weight{.values = b, .scale = scale.view()}, .out = out});
  EXPECT_EQ(found.read_bytes, 2.0 * 2 * 256 + 512 * 256 + 4.0 * 512);
}

TEST(Cost, OfANormThatAddsReadsAndWritesTheResidual) {
  const Tensor x(DType::bf16, {16, 4096}), weight(DType::bf16, {4096}),
      out(DType::bf16, {16, 4096});
  const Tensor residual(DType::bf16, {16, 4096});
  const double rows = 2.0 * 16 * 4096;
  const OpCost plain = cost(RmsNormArgs{.x = x, .weight = weight, .out = out});
  EXPECT_EQ(plain.read_bytes, rows + 2.0 * 4096);
  EXPECT_EQ(plain.written_bytes, rows);
  const OpCost added =
      cost(RmsNormArgs{.x = x, .weight = weight, .out = out, .residual = residual.view()});
  EXPECT_EQ(added.bytes(), plain.bytes() + 2 * rows);
}

// Three sequences of 5, 0 and 40 tokens: their own keys and values, not the room they have.
TEST(Cost, OfDecodeAttentionFollowsTheLengthsOfTheSequences) {
  const Tensor q(DType::bf16, {3, 8, 64}), out(DType::bf16, {3, 8, 64});
  const Tensor k(DType::bf16, {12, 16, 2, 64}), v(DType::bf16, {12, 16, 2, 64});
  const Tensor table(DType::i32, {3, 4}), lengths = int_vector({5, 0, 40});
  DecodeAttentionArgs args{
      .q = q,
      .kv = {.k_pages = k, .v_pages = v, .page_table = table, .seq_lens = lengths},
      .out = out};
  const double queries = 2.0 * 3 * 8 * 64, token = 2 * 2.0 * 2 * 64;
  EXPECT_EQ(cost(args).read_bytes, queries + 45 * token);
  EXPECT_EQ(cost(args).written_bytes, queries);
  EXPECT_EQ(cost(args).flops, 4.0 * 45 * 8 * 64);
  EXPECT_EQ(cost(args).shape, "3x0..40");
  args.window = 8;
  EXPECT_EQ(cost(args).read_bytes, queries + (5 + 8) * token);
  // Codes of a byte, with an f16 scale for each token and head.
  const Tensor codes(DType::i8, {12, 16, 2, 64}), values(DType::i8, {12, 16, 2, 64});
  const Tensor k_scales(DType::f16, {12, 16, 2, 1}), v_scales(DType::f16, {12, 16, 2, 1});
  args.window = 0;
  args.kv.k_pages = codes, args.kv.v_pages = values;
  args.kv.k_scales = k_scales, args.kv.v_scales = v_scales;
  EXPECT_EQ(cost(args).read_bytes, queries + 45 * 2.0 * 2 * (64 + 2));
}

// A chunk of 3 tokens after 5, causal: 6 + 7 + 8 pairs.
TEST(Cost, OfPrefillCountsEveryPairThatIsSeen) {
  const Tensor q(DType::bf16, {3, 4, 64}), out(DType::bf16, {3, 4, 64});
  const Tensor k(DType::bf16, {2, 16, 2, 64}), v(DType::bf16, {2, 16, 2, 64});
  const Tensor starts = int_vector({0, 3}), lengths = int_vector({8}), table(DType::i32, {1, 2});
  AttentionArgs args{.q = q,
                     .k = k,
                     .v = v,
                     .out = out,
                     .mask = kCausalMask,
                     .q_starts = starts,
                     .kv_lens = lengths,
                     .k_page_table = table};
  EXPECT_EQ(cost(args).flops, 4.0 * (6 + 7 + 8) * 4 * 64);
  EXPECT_EQ(cost(args).read_bytes, 2.0 * 3 * 4 * 64 + 2 * 2.0 * 8 * 2 * 64);
  args.mask.left = 1;
  EXPECT_EQ(cost(args).flops, 4.0 * (2 + 2 + 2) * 4 * 64);
}

TEST(OpLog, HoldsTheCallsOfItsThreadInOrderWhileItIsOpen) {
  const Tensor x = Tensor::zeros(DType::f32, {4, 8}), out(DType::f32, {4, 8});
  const Tensor weight = Tensor::zeros(DType::f32, {8});
  OpLog log;
  copy({.x = x, .out = out});
  {
    const OpLogScope scope(log);
    EXPECT_EQ(current_op_log(), &log);
    EXPECT_THROW(OpLogScope{log}, Error);
    copy({.x = x, .out = out});
    rms_norm({.x = x, .weight = weight, .out = out});
    EXPECT_THROW(rms_norm({.x = x, .weight = x, .out = out}), Error);  // not a call
  }
  EXPECT_EQ(current_op_log(), nullptr);
  copy({.x = x, .out = out});
  ASSERT_EQ(log.calls.size(), 2u);
  EXPECT_EQ(log.calls[0].op, "copy");
  EXPECT_EQ(log.calls[1].op, "rms_norm");
  EXPECT_EQ(log.calls[1].row, "cpu");
  EXPECT_EQ(log.calls[1].cost.bytes(), 4.0 * (2 * 4 * 8 + 8));
  EXPECT_LE(log.calls[0].begin_ns, log.calls[0].end_ns);
  EXPECT_LE(log.calls[0].end_ns, log.calls[1].begin_ns);
  EXPECT_TRUE(log.calls[0].kernels.empty());
}

TEST(LaunchLog, TellsTheLaunchesSinceANumber) {
  const uint64_t first = num_launches();
  EXPECT_TRUE(launches_since(first).empty());
  log_launch("one");
  log_launch("two");
  EXPECT_EQ(num_launches(), first + 2);
  const std::vector<const char*> found = launches_since(first);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_STREQ(found[0], "one");
  EXPECT_STREQ(found[1], "two");
  EXPECT_EQ(short_kernel_name("_ZN7tessera1kILi4EEEvPf"), "k");
}

}  // namespace
}  // namespace tessera::testing
