// From tokens to text: streaming, stop strings and tokens, and how sequences end.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "tests/engine/scheduler/tiny_model.h"

namespace tessera {
namespace {

using namespace tessera::testing;

// Token 0 is the prompt; what follows is the text. The last piece stands for the end of text.
const std::vector<std::string> kPieces = {"?",    "one",  " tw",  "o",    " th", "ree",  " \xc3",
                                          "\xa9", "\xe2", "\x82", "\xac", "!",   "five", "<end>"};
const std::string kWhole = "one two three \xc3\xa9\xe2\x82\xac!five";

Request script_request() {
  Request request;
  request.prompt = {0};
  request.sampling.temperature = 0.0f;
  request.max_new_tokens = 100;
  return request;
}

TEST(Text, IsTheScriptUntilTheEndOfText) {
  const auto engine = script_engine(kPieces);
  const Outcome outcome = run_one(*engine, script_request());
  EXPECT_EQ(outcome.text, kWhole);
  EXPECT_EQ(outcome.finish, FinishReason::stop);
  EXPECT_EQ(outcome.tokens.size(), kPieces.size() - 1) << "the stop token is among the tokens";
  EXPECT_EQ(outcome.tokens.back(), 13);
}

TEST(Text, StreamsWholeCharacters) {
  const auto engine = script_engine(kPieces);
  engine->submit(script_request());
  std::vector<std::string> streamed;
  while (engine->has_work()) {
    for (const SequenceOutput& news : engine->step()) {
      ASSERT_EQ(news.tokens.size(), 1u);
      streamed.push_back(news.text);
    }
  }
  const std::vector<std::string> want = {
      "one", " tw", "o", " th", "ree", " ", "\xc3\xa9", "", "", "\xe2\x82\xac", "!", "five", ""};
  EXPECT_EQ(streamed, want);
}

TEST(Text, EndsBeforeAStopStringSplitOverTokens) {
  const auto engine = script_engine(kPieces);
  Request request = script_request();
  request.stop = {"two t", "three"};
  engine->submit(request);
  std::string shown;
  while (engine->has_work()) {
    for (const SequenceOutput& news : engine->step()) {
      shown += news.text;
      EXPECT_TRUE(std::string("one ").starts_with(shown)) << "leaked: " << shown;
      EXPECT_TRUE(news.finish == FinishReason::none || news.finish == FinishReason::stop);
    }
  }
  EXPECT_EQ(shown, "one ");
}

TEST(Text, EndsBeforeAStopStringOfCharactersSplitOverTokens) {
  const auto engine = script_engine(kPieces);
  Request request = script_request();
  request.stop = {"\xe2\x82\xac"};
  const Outcome outcome = run_one(*engine, request);
  EXPECT_EQ(outcome.text, "one two three \xc3\xa9");
  EXPECT_EQ(outcome.finish, FinishReason::stop);
}

TEST(Text, ReturnsHeldBackTextAtTheEnd) {
  const auto engine = script_engine(kPieces);
  Request request = script_request();
  request.stop = {"five and more"};
  EXPECT_EQ(run_one(*engine, request).text, kWhole);
  request.stop = {"two or"};
  request.max_new_tokens = 3;
  const Outcome outcome = run_one(*engine, request);
  EXPECT_EQ(outcome.text, "one two");
  EXPECT_EQ(outcome.finish, FinishReason::length);
}

TEST(Text, ReturnsHeldBackTextWhenCancelledOrLate) {
  Clock::time_point now{};
  EngineOptions options = tiny_options();
  options.now = [&] { return now; };
  for (const bool is_late : {false, true}) {
    const auto engine = script_engine(kPieces, options);
    Request request = script_request();
    request.stop = {"two or"};
    if (is_late) request.deadline = now + std::chrono::seconds(1);
    const RequestId id = engine->submit(request).value();
    Outcomes outcomes;
    for (int i = 0; i < 3; ++i) collect(engine->step(), outcomes);
    EXPECT_EQ((outcomes[{id, 0}].text), "one ");
    if (is_late) now += std::chrono::seconds(1);
    if (!is_late) engine->cancel(id);
    collect(engine->step(), outcomes);
    EXPECT_EQ((outcomes[{id, 0}].text), "one two");
    EXPECT_EQ((outcomes[{id, 0}].finish),
              is_late ? FinishReason::deadline : FinishReason::cancelled);
  }
}

TEST(Text, IsTheSameAfterPreemption) {
  EngineOptions options = tiny_options(/*num_pages=*/4);
  options.max_context = 16;
  const auto engine = script_engine(kPieces, options);
  std::vector<RequestId> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(engine->submit(script_request()).value());
  Outcomes outcomes;
  run_all(*engine, outcomes);
  for (const RequestId id : ids) EXPECT_EQ((outcomes[{id, 0}].text), kWhole);
  EXPECT_GT(engine->metrics().num_preemptions, 0);
}

TEST(Text, ReplacesACharacterThatStaysIncomplete) {
  const auto engine = script_engine(kPieces);
  Request request = script_request();
  request.max_new_tokens = 9;
  EXPECT_EQ(run_one(*engine, request).text, "one two three \xc3\xa9\xef\xbf\xbd");
}

TEST(Text, LeavesOutAStopToken) {
  const auto engine = script_engine(kPieces);
  Request request = script_request();
  request.stop_tokens = {4};
  const Outcome outcome = run_one(*engine, request);
  EXPECT_EQ(outcome.text, "one two");
  EXPECT_EQ(outcome.tokens, (std::vector<int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(outcome.finish, FinishReason::stop);
}

TEST(Text, GoesOnAfterTheEndOfTextWhereAsked) {
  const auto engine = script_engine(kPieces);
  Request request = script_request();
  request.ignores_eos = true;
  request.max_new_tokens = 15;
  const Outcome outcome = run_one(*engine, request);
  EXPECT_EQ(outcome.text, kWhole + "<end>?one");
  EXPECT_EQ(outcome.finish, FinishReason::length);
}

TEST(Text, DoesNotStopBeforeTheLeastLength) {
  const auto engine = script_engine(kPieces);
  Request request = script_request();
  request.stop = {"two", "ree"};
  request.min_new_tokens = 3;
  EXPECT_EQ(run_one(*engine, request).text, "one two th") << "the first stop comes too soon";
  request = script_request();
  request.stop_tokens = {2};
  request.min_new_tokens = 4;
  const Outcome outcome = run_one(*engine, request);
  ASSERT_GE(outcome.tokens.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_NE(outcome.tokens[i], 2);
}

TEST(Text, IsCutByTheContext) {
  EngineOptions options = tiny_options();
  options.max_context = 8;
  const auto engine = script_engine(kPieces, options);
  const Outcome outcome = run_one(*engine, script_request());
  EXPECT_EQ(outcome.tokens.size(), 7u);
  EXPECT_EQ(outcome.finish, FinishReason::length);
}

TEST(Text, OfRunToEndIsJoined) {
  const auto engine = script_engine(kPieces);
  Request request = script_request();
  request.num_outputs = 2;
  const std::vector<SequenceOutput> outputs = run_to_end(*engine, request);
  ASSERT_EQ(outputs.size(), 2u);
  for (int32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(outputs[static_cast<size_t>(i)].index, i);
    EXPECT_EQ(outputs[static_cast<size_t>(i)].text, kWhole);
    EXPECT_EQ(outputs[static_cast<size_t>(i)].finish, FinishReason::stop);
  }
  EXPECT_EQ(outputs[0].num_prompt_tokens, 1);
  EXPECT_EQ(name(outputs[0].finish), "stop");
}

}  // namespace
}  // namespace tessera
