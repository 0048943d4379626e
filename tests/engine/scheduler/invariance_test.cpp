// The answer to a request does not depend on the other requests in the batch.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <string>

#include "tests/engine/scheduler/schedules.h"

namespace tessera {
namespace {

using namespace tessera::testing;

class InvarianceOf : public ::testing::TestWithParam<KvFormat> {};

// With a quantised cache, attention rounds differently for a generated token and for the same token
// in a prompt. The test passes only if no schedule confuses the two.
TEST_P(InvarianceOf, ARequestIsAnsweredAlikeInAnyScheduleWithAnyMemory) {
  const bool has_large_pages = GetParam() == KvFormat::int4;
  ScheduleCase schedules{.kv_type = GetParam()};
  if (has_large_pages) schedules.page_sizes = {32};
  const ScheduleCounts counts = expect_alike_in_any_schedule(schedules);
  EXPECT_GT(counts.num_preemptions, has_large_pages ? 50 : 100) << "memory must be short";
  EXPECT_GT(counts.num_replayed_tokens, 100);
  EXPECT_GT(counts.num_cached_tokens, has_large_pages ? 100 : 1000);
  EXPECT_GT(counts.num_steps, 1000);
  if (GetParam() == KvFormat::int4) {
    EXPECT_EQ(counts.num_drafted_tokens, 0) << "tails cannot go back";
  } else {
    EXPECT_GT(counts.num_accepted_tokens, 50);
    EXPECT_GT(counts.num_drafted_tokens, counts.num_accepted_tokens + 50);
    EXPECT_GT(counts.num_draft_steps, 500);
  }
}

INSTANTIATE_TEST_SUITE_P(KvTypes, InvarianceOf, ::testing::ValuesIn(kAllKvFormats),
                         [](const auto& test) { return std::string(name(test.param)); });

TEST(Invariance, AFullyCachedPromptStillComputesItsLastToken) {
  const auto engine = tiny_engine();
  Request request;
  request.prompt = {1, 2, 3, 4, 5, 6, 7, 8};
  request.max_new_tokens = 5;
  request.sampling.temperature = 0.0f;
  const Outcome first = run_one(*engine, request);
  EXPECT_EQ(first.num_cached_tokens, 0);
  const Outcome second = run_one(*engine, request);
  EXPECT_EQ(second.num_cached_tokens, 4) << "the page of the last token is computed again";
  EXPECT_EQ(second.tokens, first.tokens);
  request.cache_salt = "another";
  EXPECT_EQ(run_one(*engine, request).num_cached_tokens, 0);
}

TEST(Invariance, PromptLogprobsDoNotReadTheCache) {
  const auto engine = tiny_engine();
  Request request;
  request.prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  request.max_new_tokens = 1;
  run_one(*engine, request);
  request.wants_prompt_logprobs = true;
  const Outcome outcome = run_one(*engine, request);
  EXPECT_EQ(outcome.num_cached_tokens, 0);
  EXPECT_EQ(outcome.prompt_logprobs.size(), 8u);
}

TEST(Invariance, RequestsWithoutASeedDrawDifferently) {
  const auto engine = tiny_engine();
  Request request;
  request.prompt = {1, 2, 3};
  request.max_new_tokens = 12;
  request.sampling.temperature = 2.0f;
  EXPECT_NE(run_one(*engine, request).tokens, run_one(*engine, request).tokens);
  request.sampling.seed = ~uint64_t{0};
  EXPECT_EQ(run_one(*engine, request).tokens, run_one(*engine, request).tokens);
}

}  // namespace
}  // namespace tessera
