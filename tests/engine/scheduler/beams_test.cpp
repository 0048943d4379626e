// Beam search through the engine: the model's own distribution, pages shared and copied.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/engine/scheduler/tiny_model.h"

namespace tessera {
namespace {

using namespace tessera::testing;

constexpr int32_t kVocab = 8;

// The summed logprobs of `tokens` after the prompt, scored as part of a prompt.
double logprob_of(engine::EngineImpl& engine, const std::vector<int32_t>& prompt,
                  const std::vector<int32_t>& tokens) {
  Request request;
  request.prompt = prompt;
  request.prompt.insert(request.prompt.end(), tokens.begin(), tokens.end());
  request.wants_prompt_logprobs = true;
  request.max_new_tokens = 0;
  const Outcome outcome = run_one(engine, request);
  double sum = 0.0;
  for (size_t i = prompt.size() - 1; i < outcome.prompt_logprobs.size(); ++i) {
    sum += static_cast<double>(outcome.prompt_logprobs[i]);
  }
  return sum;
}

struct Scored {
  std::vector<int32_t> tokens;
  double score = 0.0;
};

// Every continuation of `length` tokens, cut at the stop token, best first.
std::vector<Scored> enumerate(engine::EngineImpl& engine, const std::vector<int32_t>& prompt,
                              int64_t length, int32_t stop) {
  std::vector<std::vector<int32_t>> open = {{}};
  std::vector<Scored> all;
  for (int64_t i = 0; i < length; ++i) {
    std::vector<std::vector<int32_t>> next;
    for (const std::vector<int32_t>& prefix : open) {
      for (int32_t token = 0; token < kVocab; ++token) {
        std::vector<int32_t> tokens = prefix;
        tokens.push_back(token);
        if (token != stop && i + 1 < length) {
          next.push_back(std::move(tokens));
        } else {
          const double sum = logprob_of(engine, prompt, tokens);
          all.push_back({tokens, sum / static_cast<double>(tokens.size())});
        }
      }
    }
    open = std::move(next);
  }
  std::ranges::sort(all, [](const Scored& a, const Scored& b) { return a.score > b.score; });
  return all;
}

EngineOptions beam_options() {
  EngineOptions options = tiny_options(400);
  options.max_batch = 32;
  return options;
}

TEST(Beams, OfFullWidthFindTheBestContinuations) {
  const auto engine = tiny_engine(beam_options(), kVocab);
  const std::vector<int32_t> prompt = {1, 5, 2, 6, 3};
  const std::vector<Scored> want = enumerate(*engine, prompt, 2, /*stop=*/4);
  Request request;
  request.prompt = prompt;
  request.max_new_tokens = 2;
  request.stop_tokens = {4};
  request.beam_width = kVocab;
  request.num_outputs = kVocab;
  const std::vector<SequenceOutput> found = run_to_end(*engine, request);
  for (size_t i = 0; i < kVocab; ++i) {
    EXPECT_EQ(ids_of(found[i].tokens), want[i].tokens);
    EXPECT_NEAR(found[i].score, want[i].score, 1e-5);
    const bool is_ended = want[i].tokens.back() == 4;
    EXPECT_EQ(found[i].finish, is_ended ? FinishReason::stop : FinishReason::length);
  }
}

TEST(Beams, OfLongerSearchesScoreWhatTheModelSays) {
  const auto engine = tiny_engine(beam_options(), kVocab);
  const std::vector<int32_t> prompt = {7, 1, 0};
  Request request;
  request.prompt = prompt;
  request.max_new_tokens = 3;
  request.beam_width = 32;
  request.num_outputs = 5;
  const std::vector<Scored> want = enumerate(*engine, prompt, 3, /*stop=*/-1);
  const std::vector<SequenceOutput> found = run_to_end(*engine, request);
  EXPECT_EQ(ids_of(found[0].tokens), want[0].tokens) << "half of all prefixes are enough";
  for (size_t i = 0; i < 5; ++i) {
    const std::vector<int32_t> tokens = ids_of(found[i].tokens);
    EXPECT_NEAR(found[i].score, logprob_of(*engine, prompt, tokens) / 3.0, 1e-5);
    EXPECT_TRUE(i == 0 || found[i].score <= found[i - 1].score);
  }
}

TEST(Beams, OfWidthOneAreGreedy) {
  Request request;
  request.prompt = {1, 2, 3};
  request.max_new_tokens = 12;
  request.sampling.temperature = 0.0f;
  const Outcome greedy = run_one(*tiny_engine(), request);
  request.beam_width = 1;
  EXPECT_EQ(run_one(*tiny_engine(), request).tokens, greedy.tokens);
}

TEST(Beams, SayNothingBeforeTheEnd) {
  const auto engine = tiny_engine(beam_options());
  Request request;
  request.prompt = {1, 2, 3};
  request.max_new_tokens = 6;
  request.beam_width = 4;
  request.num_outputs = 2;
  request.num_logprobs = 3;
  engine->submit(request);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(engine->step().empty());
  EXPECT_EQ(engine->metrics().num_running, 4);
  const std::vector<SequenceOutput> news = engine->step();
  ASSERT_EQ(news.size(), 2u);
  EXPECT_EQ(news[0].tokens.size(), 6u);
  EXPECT_EQ(news[0].tokens[0].top.size(), 3u);
  EXPECT_EQ(news[0].num_prompt_tokens, 3);
  EXPECT_FALSE(engine->has_work());
  EXPECT_EQ(engine->metrics().num_held_pages, 0);
}

TEST(Beams, ShareAndCopyPages) {
  const auto engine = tiny_engine(beam_options());
  Request request;
  request.prompt = std::vector<int32_t>(30, 9);
  request.max_new_tokens = 20;
  request.beam_width = 6;
  engine->submit(request);
  Outcomes outcomes;
  for (int i = 0; i < 10; ++i) {
    collect(engine->step(), outcomes);
    engine->check_pages();
    const EngineMetrics metrics = engine->metrics();
    EXPECT_LE(metrics.num_held_pages, 7 + 6 * 4) << "the prompt's seven full pages once";
    EXPECT_LE(metrics.num_held_tokens, metrics.num_held_pages * 4);
  }
  run_all(*engine, outcomes);
}

TEST(Beams, MissingOnesAreAnError) {
  const auto engine = tiny_engine(beam_options(), kVocab);
  Request request;
  request.prompt = {1};
  request.max_new_tokens = 1;
  request.beam_width = 10;
  request.num_outputs = 10;
  const std::vector<SequenceOutput> found = run_to_end(*engine, request);
  EXPECT_EQ(found[7].finish, FinishReason::length);
  EXPECT_EQ(found[8].finish, FinishReason::error);
  EXPECT_EQ(found[8].error, "beam search found 8 continuations of the 10 asked for");
}

}  // namespace
}  // namespace tessera
