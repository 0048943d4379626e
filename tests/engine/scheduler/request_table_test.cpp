// Requests alone: how results become outputs, and how requests end.
// SPDX-License-Identifier: MIT
#include "engine/request_table.h"

#include <gtest/gtest.h>

#include <chrono>

#include "tests/engine/scheduler/model_free.h"

namespace tessera::testing {
namespace {

using std::chrono::seconds;

TEST(RequestTable, ReportsEveryTokenAndTheEnd) {
  ModelFree parts(tiny_options());
  const RequestId id = parts.add(counting_request(3, 2));
  ASSERT_TRUE(parts.assemble());
  std::vector<SequenceOutput> outputs = parts.commit(11);
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].request, id);
  EXPECT_EQ(outputs[0].num_prompt_tokens, 3);
  EXPECT_EQ(ids_of(outputs[0].tokens), (std::vector<int32_t>{11}));
  EXPECT_EQ(outputs[0].finish, FinishReason::none);

  ASSERT_TRUE(parts.assemble());
  outputs = parts.commit(12);
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].num_prompt_tokens, 0);  // reported once
  EXPECT_EQ(outputs[0].finish, FinishReason::length);
  EXPECT_TRUE(parts.requests.is_empty());
  EXPECT_EQ(parts.metrics().num_generated_tokens, 2);
  EXPECT_EQ(parts.metrics().num_finished, 1);
  EXPECT_EQ(parts.metrics().num_held_pages, 0);
}

TEST(RequestTable, AStopTokenEndsItsSequenceOnly) {
  ModelFree parts(tiny_options());
  auto active = std::make_unique<engine::ActiveRequest>();
  active->request = counting_request(3);
  active->request.num_outputs = 2;
  active->max_new_tokens = 8;
  active->stop_tokens = {7};
  parts.requests.add(std::move(active));
  ASSERT_TRUE(parts.assemble());
  std::vector<engine::RowResult> results(1);
  results[0].tokens = {OutputToken{7, 0.0f, {}}, OutputToken{8, 0.0f, {}}};
  const std::vector<SequenceOutput> outputs = parts.commit(results);
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[0].finish, FinishReason::stop);
  EXPECT_EQ(outputs[1].finish, FinishReason::none);
  EXPECT_EQ(parts.metrics().num_running, 1);
  parts.scheduler.check_pages();
}

TEST(RequestTable, AnErrorOfOneRowEndsItsRequestAndNoOther) {
  ModelFree parts(tiny_options());
  const RequestId good = parts.add(counting_request(3));
  Request twice = counting_request(4);
  twice.num_outputs = 2;
  const RequestId bad = parts.add(twice);
  ASSERT_TRUE(parts.assemble());
  parts.commit(20);
  ASSERT_TRUE(parts.assemble());
  ASSERT_EQ(parts.rows.size(), 3u);
  std::vector<engine::RowResult> results(3);
  for (size_t i = 0; i < 3; ++i) {
    if (parts.rows[i].sequence->request->id == bad && parts.rows[i].sequence->index == 0) {
      results[i].error = "not finite";
    } else {
      results[i].tokens = {OutputToken{21, 0.0f, {}}};
    }
  }
  Outcomes outcomes;
  collect(parts.commit(results), outcomes);
  EXPECT_EQ((outcomes[{good, 0}].finish), FinishReason::none);
  for (int32_t index : {0, 1}) {
    EXPECT_EQ((outcomes[{bad, index}].finish), FinishReason::error);
    EXPECT_EQ((outcomes[{bad, index}].error), "not finite");
  }
  EXPECT_EQ(parts.metrics().num_running, 1);
  parts.scheduler.check_pages();
}

TEST(RequestTable, EndsCancelledAndLateRequestsAndAsksForTheTimeOnce) {
  ModelFree parts(tiny_options());
  int num_asked = 0;
  const Clock::time_point start{};
  const auto now = [&] {
    ++num_asked;
    return start + seconds(10);
  };
  const RequestId cancelled = parts.add(counting_request(3));
  parts.requests.cancel(cancelled);
  parts.requests.cancel(cancelled + 100);  // unknown: ignored
  parts.requests.end_cancelled_and_late(now);
  EXPECT_EQ(num_asked, 0);
  Request late = counting_request(3);
  late.deadline = start + seconds(10);
  const RequestId first_late = parts.add(late);
  parts.add(late);
  late.deadline = start + seconds(11);
  parts.add(late);
  parts.requests.end_cancelled_and_late(now);
  EXPECT_EQ(num_asked, 1);
  Outcomes outcomes;
  collect(parts.requests.take_outputs(), outcomes);
  EXPECT_EQ((outcomes[{cancelled, 0}].finish), FinishReason::cancelled);
  EXPECT_EQ((outcomes[{first_late, 0}].finish), FinishReason::deadline);
  EXPECT_EQ(outcomes.size(), 3u);
  EXPECT_EQ(parts.metrics().num_waiting, 1);
  EXPECT_EQ(parts.metrics().num_cancelled, 1);
}

TEST(RequestTable, FailsTheRequestsOfABatchOrAll) {
  EngineOptions options = tiny_options();
  options.max_batch = 2;
  ModelFree parts(options);
  std::vector<RequestId> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(parts.add(counting_request(3)));
  ASSERT_TRUE(parts.assemble());
  parts.requests.fail(parts.rows, "no memory");
  parts.rows.clear();
  Outcomes outcomes;
  collect(parts.requests.take_outputs(), outcomes);
  EXPECT_EQ(outcomes.size(), 2u);
  EXPECT_EQ((outcomes[{ids[1], 0}].error), "no memory");
  EXPECT_FALSE(parts.requests.is_empty());
  parts.requests.fail_all("broken");
  collect(parts.requests.take_outputs(), outcomes);
  EXPECT_EQ((outcomes[{ids[3], 0}].error), "broken");
  EXPECT_TRUE(parts.requests.is_empty());
  EXPECT_EQ(parts.metrics().num_held_pages, 0);
}

}  // namespace
}  // namespace tessera::testing
