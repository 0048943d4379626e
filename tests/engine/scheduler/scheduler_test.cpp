// The scheduler alone: what its steps look like to a runner, and which pages sequences hold.
// SPDX-License-Identifier: MIT
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include "tests/engine/scheduler/model_free.h"

namespace tessera::testing {
namespace {

// Every slot must be the place that the page table gives for its position.
void expect_slots_match_tables(const engine::StepInput& step, int64_t page_size) {
  const model::HostBatch& batch = step.batch;
  for (size_t s = 0; s < batch.seq_lens.size(); ++s) {
    for (int32_t t = batch.query_starts[s]; t < batch.query_starts[s + 1]; ++t) {
      const int64_t position = batch.positions[static_cast<size_t>(t)];
      const auto entry = static_cast<int64_t>(s) * batch.max_pages + position / page_size;
      const int64_t page = batch.page_table[static_cast<size_t>(entry)];
      EXPECT_EQ(batch.slots[static_cast<size_t>(t)], page * page_size + position % page_size);
    }
  }
}

TEST(Scheduler, HasNothingToRunWithoutSequences) {
  ModelFree parts(tiny_options());
  EXPECT_FALSE(parts.assemble());
  EXPECT_TRUE(parts.rows.empty());
}

TEST(Scheduler, PutsDecodesBeforeChunksAndAsksForLogitsWhereATokenFollows) {
  ModelFree parts(tiny_options());  // 32 tokens in one step, pages of 4
  parts.add(counting_request(3));
  ASSERT_TRUE(parts.assemble());
  EXPECT_EQ(parts.step.batch.num_decodes, 0);
  EXPECT_EQ(parts.step.batch.tokens, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(parts.step.batch.logit_rows, (std::vector<int32_t>{2}));
  parts.commit(50);

  parts.add(counting_request(40));
  ASSERT_TRUE(parts.assemble());
  const model::HostBatch& batch = parts.step.batch;
  EXPECT_EQ(batch.num_decodes, 1);
  EXPECT_EQ(batch.query_starts, (std::vector<int32_t>{0, 1, 32}));
  EXPECT_EQ(batch.seq_lens, (std::vector<int32_t>{4, 31}));
  EXPECT_EQ(batch.tokens.front(), 50);
  EXPECT_EQ(batch.logit_rows, (std::vector<int32_t>{0}));  // the chunk leaves tokens to compute
  expect_slots_match_tables(parts.step, parts.options.page_size);
  parts.commit(51);

  ASSERT_TRUE(parts.assemble());
  EXPECT_EQ(batch.logit_rows, (std::vector<int32_t>{0, 9}));
  expect_slots_match_tables(parts.step, parts.options.page_size);
}

TEST(Scheduler, SiblingsCopyASharedPageBeforeTheyWriteIt) {
  ModelFree parts(tiny_options());
  Request request = counting_request(6);
  request.num_outputs = 2;
  parts.add(request);
  ASSERT_TRUE(parts.assemble());
  const int32_t shared = parts.step.batch.page_table[1];
  parts.commit(9);
  parts.scheduler.check_pages();

  ASSERT_TRUE(parts.assemble());
  ASSERT_EQ(parts.rows.size(), 2u);
  ASSERT_EQ(parts.step.page_copies.size(), 1u);
  EXPECT_EQ(parts.step.page_copies[0].first, shared);
  const std::vector<int32_t>& table = parts.step.batch.page_table;
  EXPECT_EQ(table[0], table[2]);  // the full page stays shared
  EXPECT_NE(table[1], table[3]);
  EXPECT_TRUE(table[1] == shared || table[3] == shared);
  expect_slots_match_tables(parts.step, parts.options.page_size);
  parts.commit(9);
  ASSERT_TRUE(parts.assemble());
  EXPECT_TRUE(parts.step.page_copies.empty());
}

TEST(Scheduler, AForkAsksForACopyOfTheTail) {
  EngineOptions options = tiny_options();
  options.kv_type = KvFormat::int4;
  options.page_size = 32;
  ModelFree parts(options);
  Request request = counting_request(6);
  request.num_outputs = 3;
  parts.add(request);
  ASSERT_TRUE(parts.assemble());
  ASSERT_EQ(parts.step.batch.tails.size(), 1u);
  const int32_t first = parts.step.batch.tails[0];
  parts.commit(9);
  const engine::PageCopies copies = parts.scheduler.take_tail_copies();
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(copies[0].first, first);
  EXPECT_EQ(copies[1].first, first);
  EXPECT_TRUE(parts.scheduler.take_tail_copies().empty());
  ASSERT_TRUE(parts.assemble());
  EXPECT_EQ(parts.step.batch.tails,
            (std::vector<int32_t>{first, copies[0].second, copies[1].second}));
}

TEST(Scheduler, APlanThatIsNotCarriedOutChangesNothing) {
  ModelFree parts(tiny_options());
  parts.add(counting_request(6));
  const EngineMetrics before = parts.metrics();
  (void)parts.scheduler.plan();
  EXPECT_EQ(parts.metrics().num_waiting, before.num_waiting);
  EXPECT_EQ(parts.metrics().num_held_pages, 0);
  ASSERT_TRUE(parts.assemble());
  EXPECT_EQ(parts.rows.size(), 1u);
}

TEST(Scheduler, APreemptedSequenceComputesItsPromptInChunksAndTheRestOneByOne) {
  ModelFree parts(tiny_options(), /*num_pages=*/7);  // too few for both in full length
  parts.add(counting_request(9, 10));
  Request other = counting_request(7, 10);
  other.prompt[0] = 60;  // shares no page
  parts.add(other);
  while (parts.metrics().num_preemptions == 0) {
    ASSERT_TRUE(parts.assemble());
    parts.commit(50);
    parts.scheduler.check_pages();
  }
  EXPECT_EQ(parts.metrics().num_running, 1);
  EXPECT_EQ(parts.metrics().num_waiting, 1);
  while (parts.metrics().num_finished < 2) {
    ASSERT_TRUE(parts.assemble());
    for (const engine::BatchRow& row : parts.rows) {
      EXPECT_TRUE(!row.is_decode() || row.num_tokens == 1);
    }
    parts.commit(50);
    parts.scheduler.check_pages();
  }
  EXPECT_GT(parts.metrics().num_replayed_tokens, 0);
}

TEST(Scheduler, AbandonedPagesAreNotReleased) {
  ModelFree parts(tiny_options());
  parts.add(counting_request(6));
  ASSERT_TRUE(parts.assemble());
  const int64_t num_held = parts.metrics().num_held_pages;
  EXPECT_GT(num_held, 0);
  parts.scheduler.abandon_pages();
  parts.requests.fail_all("broken");
  EXPECT_EQ(parts.metrics().num_held_pages, num_held);
  EXPECT_EQ(parts.metrics().num_running, 0);
}

}  // namespace
}  // namespace tessera::testing
