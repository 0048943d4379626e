// Which scratch pages a chunk over a quantised cache reads, and how chunks share passes.
// SPDX-License-Identifier: MIT
#include "model/chunk_plan.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace tessera::model {
namespace {

using List = std::vector<int32_t>;

BatchLimits limits_of(KvFormat type) {
  return {.tokens = 96,
          .batch = 4,
          .max_pages = 16,
          .logits = 4,
          .max_positions = 256,
          .kv_type = type};
}

// Sequences of {tokens before the step, tokens in it}; the first num_decodes are decodes.
HostBatch batch_of(const std::vector<std::pair<int32_t, int32_t>>& sequences, int64_t num_decodes) {
  HostBatch host;
  host.query_starts.push_back(0);
  for (const auto& [before, count] : sequences) {
    for (int32_t i = 0; i < count; ++i) {
      host.tokens.push_back(0);
      host.positions.push_back(before + i);
    }
    host.seq_lens.push_back(before + count);
    host.query_starts.push_back(static_cast<int32_t>(host.tokens.size()));
  }
  host.num_decodes = num_decodes;
  return host;
}

TEST(ChunkPlan, APlainCacheNeedsNone) {
  EXPECT_EQ(scratch_sizes(limits_of(KvFormat::plain)).num_rows(), 0);
  EXPECT_EQ(chunk_plan_capacity(limits_of(KvFormat::plain), 16), 0);
}

TEST(ChunkPlan, WithScalesByRowAChunkIsOnePart) {
  ChunkPlan plan;
  plan_chunks(batch_of({{9, 1}, {130, 20}, {0, 40}}, 1), limits_of(KvFormat::int8), plan);
  ASSERT_EQ(plan.num_passes, 1);
  const ChunkPlan::Pass& pass = plan.passes[0];
  EXPECT_EQ(pass.counts.first_sequence, 1);
  EXPECT_EQ(pass.counts.num_sequences, 2);
  EXPECT_EQ(pass.counts.first_token, 1);
  EXPECT_EQ(pass.counts.num_tokens, 60);
  EXPECT_EQ(pass.gather_starts, (List{0, 256}));
  EXPECT_EQ(pass.q_starts, (List{0, 20, 60}));
  EXPECT_EQ(pass.kv_lens, (List{150, 40}));
  EXPECT_EQ(pass.width, 2);
  EXPECT_EQ(pass.k_table, (List{0, 1, 2, 0}));
  EXPECT_EQ(pass.v_table, pass.k_table);
}

// 60 tokens after 50: the end of group 1, all of group 2, and the beginning of group 3.
TEST(ChunkPlan, WithScalesByColumnEveryGroupIsAPart) {
  const BatchLimits limits = limits_of(KvFormat::int4);
  const ScratchSizes sizes = scratch_sizes(limits);
  EXPECT_EQ(sizes.page_size, 32);
  ChunkPlan plan;
  plan_chunks(batch_of({{200, 1}, {50, 60}}, 1), limits, plan);
  ASSERT_EQ(plan.num_passes, 1);
  const ChunkPlan::Pass& pass = plan.passes[0];
  EXPECT_EQ(pass.q_starts, (List{0, 14, 46, 60}));
  EXPECT_EQ(pass.kv_lens, (List{64, 96, 110}));
  EXPECT_EQ(pass.width, 4);
  const auto exact = static_cast<int32_t>(sizes.num_gathered);
  EXPECT_EQ(pass.k_table, (List{0, exact, 0, 0, 0, 1, exact + 1, 0, 0, 1, 2, exact + 2}));
  EXPECT_EQ(pass.v_table, (List{0, 1, 0, 0, 0, 1, 2, 0, 0, 1, 2, 3}));
  EXPECT_EQ(plan.tail_lens, (List{18}));
  EXPECT_EQ(plan.exact_starts, (List{exact * 32}));
  List slots(61);
  std::iota(slots.begin(), slots.end(), exact * 32 + 17);
  slots[0] = -1;  // the decode keeps none
  EXPECT_EQ(plan.exact_slots, slots);
}

TEST(ChunkPlan, WhatTheScratchDoesNotHoldAtOnceTakesAnotherPass) {
  const BatchLimits limits = limits_of(KvFormat::int8);
  ASSERT_EQ(scratch_sizes(limits).num_gathered, 3);
  ChunkPlan plan;
  plan_chunks(batch_of({{236, 20}, {100, 20}, {0, 20}, {240, 16}}, 0), limits, plan);
  ASSERT_EQ(plan.num_passes, 2);
  EXPECT_EQ(plan.passes[0].counts.num_sequences, 2);
  EXPECT_EQ(plan.passes[0].gather_starts, (List{0, 256}));
  EXPECT_EQ(plan.passes[1].counts.first_sequence, 2);
  EXPECT_EQ(plan.passes[1].counts.first_token, 40);
  EXPECT_EQ(plan.passes[1].q_starts, (List{0, 20, 36}));
  EXPECT_EQ(plan.passes[1].k_table, (List{0, 0, 1, 2}));
  // Memory is kept; what counts is the number.
  plan_chunks(batch_of({{0, 5}}, 0), limits, plan);
  EXPECT_EQ(plan.num_passes, 1);
  EXPECT_EQ(plan.passes[0].q_starts, (List{0, 5}));
}

TEST(ChunkPlan, TheFullestStepsFitTheScratchAndTheBuffers) {
  for (const KvFormat type : {KvFormat::int8, KvFormat::int4}) {
    const BatchLimits limits = limits_of(type);
    BatchBuffers buffers(limits, cpu_device());
    // Chunks that end in the group after the one they begin in, as long as contexts are.
    for (const int32_t count : {1, 2, 24}) {
      std::vector<std::pair<int32_t, int32_t>> sequences;
      for (int i = 0; i < 4; ++i) sequences.emplace_back(223 - count / 2, count);
      HostBatch host = batch_of(sequences, 0);
      host.slots = host.positions;
      host.max_pages = 16;
      host.page_table.assign(4 * 16, 0);
      if (type == KvFormat::int4) host.tails = {0, 1, 2, 3};
      const Batch batch = buffers.upload(host, {});
      const ScratchSizes sizes = scratch_sizes(limits);
      for (const ChunkPass& pass : batch.passes) {
        for (int64_t i = 0; i < pass.k_table.num_elements(); ++i) {
          EXPECT_LT(pass.k_table.as<int32_t>()[i], sizes.num_pages());
          EXPECT_LT(pass.v_table.as<int32_t>()[i], sizes.num_gathered);
        }
      }
      if (type != KvFormat::int4) continue;
      EXPECT_EQ(batch.tail_slots.as<int32_t>()[count], 32 + (223 - count / 2) % 32);
    }
  }
}

}  // namespace
}  // namespace tessera::model
