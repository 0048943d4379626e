// The plan of a step: what goes first, what is cut, who is preempted.
// SPDX-License-Identifier: MIT
#include "engine/plan.h"

#include <gtest/gtest.h>

#include <vector>

namespace tessera::engine {
namespace {

constexpr PlanLimits kLimits = {
    .max_tokens = 64, .max_batch = 8, .max_logits = 8, .page_size = 4, .num_available_pages = 100};

// `num_computed` tokens in pages numbered from `first_page`.
class Running {
 public:
  Running(int64_t num_known, int64_t num_computed, int32_t first_page, uint64_t arrival,
          int32_t priority = 0) {
    for (int32_t i = 0; i < (num_computed + 3) / 4; ++i) pages_.push_back(first_page + i);
    entry_ = {.num_known = num_known,
              .num_computed = num_computed,
              .first_logit = num_known - 1,
              .pages = pages_,
              .priority = priority,
              .arrival = arrival};
  }
  Running(const Running&) = delete;
  operator PlanEntry() const { return entry_; }
  PlanEntry entry_;

 private:
  std::vector<int32_t> pages_;
};

PlanEntry waiting_entry(int64_t num_known, uint64_t arrival, int32_t priority = 0) {
  return {.num_known = num_known,
          .first_logit = num_known - 1,
          .priority = priority,
          .arrival = arrival};
}

TEST(Plan, DoesNothingWhenThereIsNothing) {
  const Plan result = plan({}, {}, kLimits);
  EXPECT_TRUE(result.preempt.empty() && result.running.empty() && result.admit.empty());
}

TEST(Plan, ServesDecodesBeforeChunksBeforeNewcomers) {
  const Running chunk(200, 8, 0, 1);
  const Running decode(10, 9, 10, 2);
  const std::vector<PlanEntry> running = {chunk, decode};
  const std::vector<PlanEntry> waiting = {waiting_entry(5, 3)};
  const Plan result = plan(running, waiting, kLimits);
  ASSERT_EQ(result.running.size(), 2u);
  EXPECT_EQ(result.running[0].entry, 1);
  EXPECT_EQ(result.running[0].num_tokens, 1);
  EXPECT_EQ(result.running[1].entry, 0);
  EXPECT_EQ(result.running[1].num_tokens, 63);
  EXPECT_TRUE(result.admit.empty()) << "the chunk took the rest of the budget";
}

TEST(Plan, KeepsATokenForTheFirstInOrderWhenDecodesWouldTakeAll) {
  const Running chunk(200, 8, 0, 1);
  const Running first_decode(10, 9, 10, 2);
  const Running second_decode(10, 9, 20, 3);
  const std::vector<PlanEntry> running = {chunk, first_decode, second_decode};
  PlanLimits limits = kLimits;
  limits.max_tokens = 2;
  const Plan result = plan(running, {}, limits);
  ASSERT_EQ(result.running.size(), 2u);
  EXPECT_EQ(result.running[0].entry, 1);
  EXPECT_EQ(result.running[1].entry, 0);
  EXPECT_EQ(result.running[1].num_tokens, 1);
}

TEST(Plan, AdmitsByPriorityAndThenByArrival) {
  const std::vector<PlanEntry> waiting = {waiting_entry(4, 1), waiting_entry(4, 2, 5),
                                          waiting_entry(4, 3, 5)};
  const Plan result = plan({}, waiting, kLimits);
  ASSERT_EQ(result.admit.size(), 3u);
  EXPECT_EQ(result.admit[0].entry, 1);
  EXPECT_EQ(result.admit[1].entry, 2);
  EXPECT_EQ(result.admit[2].entry, 0);
}

TEST(Plan, NeverLetsALaterRequestPassOneThatDoesNotFit) {
  const Running decode(10, 9, 10, 1);
  const std::vector<PlanEntry> running = {decode};
  const std::vector<PlanEntry> waiting = {waiting_entry(60, 2), waiting_entry(4, 3)};
  PlanLimits limits = kLimits;
  limits.num_available_pages = 10;
  EXPECT_TRUE(plan(running, waiting, limits).admit.empty());
}

TEST(Plan, LeavesPagesForPromptsUnderWay) {
  Running chunk(400, 4, 0, 1);  // 99 pages more; its logits let it take only 2 of them now
  chunk.entry_.first_logit = 0;
  const std::vector<PlanEntry> running = {chunk};
  const std::vector<PlanEntry> waiting = {waiting_entry(4, 2)};
  PlanLimits limits = kLimits;
  limits.num_available_pages = 100;  // the newcomer takes 1, and 1 for its first step
  EXPECT_TRUE(plan(running, waiting, limits).admit.empty());
  limits.num_available_pages = 101;
  EXPECT_EQ(plan(running, waiting, limits).admit.size(), 1u);
}

TEST(Plan, CountsIdleCachedPagesAgainstTheAvailable) {
  PlanEntry entry = waiting_entry(17, 2);
  entry.num_cached = 16;
  entry.num_idle_cached_pages = 4;
  const Running decode(10, 9, 10, 1);
  const std::vector<PlanEntry> running = {decode};
  PlanLimits limits = kLimits;
  limits.num_available_pages = 5;  // 4 idle ones, 1 new one, and 1 to go on with
  EXPECT_TRUE(plan(running, {{entry}}, limits).admit.empty());
  limits.num_available_pages = 6;
  const Plan result = plan(running, {{entry}}, limits);
  ASSERT_EQ(result.admit.size(), 1u);
  EXPECT_EQ(result.admit[0].num_tokens, 1);
  entry.num_idle_cached_pages = 0;
  limits.num_available_pages = 2;
  EXPECT_EQ(plan(running, {{entry}}, limits).admit.size(), 1u);
}

TEST(Plan, PreemptsTheLastOfTheLeastPriorityAndAdmitsNothing) {
  const Running old(9, 8, 0, 1), young(9, 8, 10, 2), important(9, 8, 20, 3, 1);
  const std::vector<PlanEntry> running = {old, young, important};
  PlanLimits limits = kLimits;
  limits.num_available_pages = 1;
  const std::vector<PlanEntry> waiting = {waiting_entry(1, 4)};
  const Plan result = plan(running, waiting, limits);
  ASSERT_EQ(result.preempt.size(), 1u);
  EXPECT_EQ(result.preempt[0], 1);
  ASSERT_EQ(result.running.size(), 2u);
  EXPECT_EQ(result.running[0].entry, 2);
  EXPECT_EQ(result.running[1].entry, 0);
  EXPECT_TRUE(result.admit.empty());
}

TEST(Plan, LetsTheLastWaitWithItsPagesInsteadOfPreemptingItself) {
  const Running old(11, 10, 0, 1), young(9, 8, 10, 2);  // old needs no page, young one
  const std::vector<PlanEntry> running = {old, young};
  PlanLimits limits = kLimits;
  limits.num_available_pages = 0;
  const Plan result = plan(running, {}, limits);
  EXPECT_TRUE(result.preempt.empty());
  ASSERT_EQ(result.running.size(), 1u);
  EXPECT_EQ(result.running[0].entry, 0);
}

TEST(Plan, DoesNotCountSharedPagesAsFreedByPreemption) {
  // The two younger sequences share their pages, so both must be preempted to free any.
  const Running old(9, 8, 0, 1), left(9, 8, 10, 2), right(9, 8, 10, 3);
  const std::vector<PlanEntry> running = {old, left, right};
  PlanLimits limits = kLimits;
  limits.num_available_pages = 0;
  const Plan result = plan(running, {}, limits);
  EXPECT_EQ(result.preempt, (std::vector<int64_t>{2, 1}));
  ASSERT_EQ(result.running.size(), 1u);
  EXPECT_EQ(result.running[0].entry, 0);
}

TEST(Plan, NeedsNoCopyOnceTheSiblingsAreGone) {
  Running first(10, 9, 0, 1), second(10, 9, 0, 2);
  first.entry_.copies_last_page = second.entry_.copies_last_page = true;
  const std::vector<PlanEntry> running = {first, second};
  PlanLimits limits = kLimits;
  limits.num_available_pages = 1;  // one copies, the other then has the page to itself
  EXPECT_EQ(plan(running, {}, limits).running.size(), 2u);
  limits.num_available_pages = 0;
  const Plan result = plan(running, {}, limits);
  EXPECT_EQ(result.preempt, std::vector<int64_t>{1});
  EXPECT_EQ(result.running.size(), 1u);
}

TEST(Plan, CutsAChunkToThePagesThereAre) {
  const Running chunk(200, 6, 0, 1);
  const std::vector<PlanEntry> running = {chunk};
  PlanLimits limits = kLimits;
  limits.num_available_pages = 3;
  const Plan result = plan(running, {}, limits);
  ASSERT_EQ(result.running.size(), 1u);
  EXPECT_EQ(result.running[0].num_tokens, 2 + 12);
}

TEST(Plan, CutsAChunkToTheRowsOfLogits) {
  Running chunk(40, 4, 0, 1);
  chunk.entry_.first_logit = 6;  // two tokens cost none
  const std::vector<PlanEntry> running = {chunk};
  const Plan result = plan(running, {}, kLimits);
  ASSERT_EQ(result.running.size(), 1u);
  EXPECT_EQ(result.running[0].num_tokens, 2 + 8);
}

TEST(Plan, ReservesABatchRowForEverySibling) {
  const Running decode(10, 9, 10, 1);
  const std::vector<PlanEntry> running = {decode};
  PlanEntry entry = waiting_entry(4, 2);
  entry.num_rows = 8;
  EXPECT_TRUE(plan(running, {{entry}}, kLimits).admit.empty());
  entry.num_rows = 7;
  EXPECT_EQ(plan(running, {{entry}}, kLimits).admit.size(), 1u);
}

TEST(Plan, StepsBeamsTogetherOrNotAtAll) {
  Running beams(10, 9, 0, 2);
  beams.entry_.num_beams = beams.entry_.num_rows = 4;
  beams.entry_.num_beam_pages = 3;
  const Running decode(11, 10, 20, 1);
  const std::vector<PlanEntry> running = {decode, beams};
  PlanLimits limits = kLimits;
  EXPECT_EQ(plan(running, {}, limits).running.back().num_tokens, 4);
  limits.max_tokens = 4;
  EXPECT_EQ(plan(running, {}, limits).running.size(), 1u);
  limits = kLimits;
  limits.num_available_pages = 2;
  const std::vector<PlanEntry> waiting = {waiting_entry(1, 3)};
  const Plan result = plan(running, waiting, limits);
  EXPECT_EQ(result.running.size(), 1u);
  EXPECT_TRUE(result.preempt.empty());
  EXPECT_TRUE(result.admit.empty()) << "a newcomer must not take the pages the beams wait for";
}

}  // namespace
}  // namespace tessera::engine
