// What a request gets does not depend on the company it keeps.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/engine/scheduler/tiny_model.h"

namespace tessera {
namespace {

using namespace tessera::testing;

constexpr int64_t kContext = 64;

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  int64_t operator()(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

 private:
  std::mt19937_64 random_;
};

// Prompts of which many begin alike; greedy and sampled, alone and with siblings, plain and with
// all that changes what is computed.
std::vector<Request> make_requests(int count, uint64_t seed) {
  Dice dice(seed);
  std::vector<std::vector<int32_t>> stems(3);
  for (auto& stem : stems) {
    for (int64_t i = dice(6, 20); i > 0; --i) {
      stem.push_back(static_cast<int32_t>(dice(0, kTinyVocab - 1)));
    }
  }
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request;
    if (dice(0, 3) > 0) request.prompt = stems[static_cast<size_t>(dice(0, 2))];
    for (int64_t j = dice(1, 16); j > 0; --j) {
      request.prompt.push_back(static_cast<int32_t>(dice(0, kTinyVocab - 1)));
    }
    request.max_new_tokens = dice(1, 24);
    request.sampling.temperature = dice(0, 1) == 0 ? 0.0f : 0.9f;
    request.sampling.seed = static_cast<uint64_t>(dice(0, 1 << 30));
    if (dice(0, 3) == 0) request.sampling.repetition_penalty = 1.3f;
    if (dice(0, 3) == 0) request.sampling.top_p = 0.9f;
    if (dice(0, 4) == 0) request.num_outputs = static_cast<int32_t>(dice(2, 3));
    if (dice(0, 5) == 0) request.wants_prompt_logprobs = true;
    if (dice(0, 3) == 0) request.num_logprobs = 0;
    if (dice(0, 5) == 0) request.stop_tokens = {static_cast<int32_t>(dice(0, kTinyVocab - 1))};
    if (dice(0, 7) == 0) {
      request.beam_width = static_cast<int32_t>(dice(1, 3));
      request.num_outputs = 1;
      request.sampling = {};
      request.prompt.resize(std::min<size_t>(request.prompt.size(), 8));  // fit the least memory
      request.max_new_tokens = std::min<int64_t>(request.max_new_tokens, 8);
    }
    request.priority = static_cast<int32_t>(dice(0, 2));
    requests.push_back(std::move(request));
  }
  return requests;
}

// Each request alone, its prompt in one chunk, nothing cached and memory to spare.
std::vector<std::vector<Outcome>> run_alone(const std::vector<Request>& requests) {
  EngineOptions options = tiny_options();
  options.max_context = kContext;
  options.max_step_tokens = options.max_step_logits = kContext;
  options.use_prefix_cache = false;
  const auto engine = tiny_engine(options);
  std::vector<std::vector<Outcome>> all;
  for (const Request& request : requests) {
    Outcomes outcomes;
    const RequestId id = engine->submit(request).value();
    run_all(*engine, outcomes);
    auto& mine = all.emplace_back();
    for (int32_t i = 0; i < request.num_outputs; ++i) mine.push_back(outcomes[{id, i}]);
  }
  return all;
}

void expect_same(const Outcome& got, const Outcome& want) {
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.logprobs, want.logprobs);
  EXPECT_EQ(got.prompt_logprobs, want.prompt_logprobs);
  EXPECT_EQ(got.finish, want.finish);
  EXPECT_EQ(got.score, want.score);
}

EngineOptions random_options(Dice& dice) {
  const int64_t page_sizes[] = {1, 4, 16};
  EngineOptions options = tiny_options();
  options.max_context = kContext;
  options.page_size = page_sizes[dice(0, 2)];
  options.max_step_tokens = dice(0, 1) == 0 ? dice(3, 12) : dice(13, 80);
  options.max_batch = dice(3, 12);
  options.max_step_logits = dice(0, 1) == 0 ? 0 : dice(3, 12);
  options.use_prefix_cache = dice(0, 1) == 0;
  const int64_t num_tokens = dice(0, 3) == 0 ? 8 * kContext : kContext + dice(0, kContext);
  options.kv_bytes = num_tokens * tiny_config().kv_bytes_per_token(DType::f32);
  return options;
}

TEST(Invariance, ARequestIsAnsweredAlikeInAnyScheduleWithAnyMemory) {
  const std::vector<Request> requests = make_requests(40, 3);
  const std::vector<std::vector<Outcome>> want = run_alone(requests);
  int64_t num_preemptions = 0, num_cached = 0, num_steps = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Dice dice(seed);
    const EngineOptions options = random_options(dice);
    SCOPED_TRACE(::testing::Message()
                 << "seed " << seed << ": page_size " << options.page_size << ", tokens "
                 << options.max_step_tokens << ", batch " << options.max_batch << ", cache "
                 << options.use_prefix_cache << ", kv " << options.kv_bytes);
    const auto engine = tiny_engine(options);
    const int64_t num_pages = engine->metrics().num_pages;
    std::vector<RequestId> ids(requests.size());
    std::vector<size_t> order(requests.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
    Outcomes outcomes;
    for (const size_t i : order) {
      ids[i] = engine->submit(requests[i]).value();
      for (int64_t j = dice(0, 2); j > 0; --j) collect(engine->step(), outcomes);
    }
    run_all(*engine, outcomes);
    for (size_t i = 0; i < requests.size(); ++i) {
      for (int32_t j = 0; j < requests[i].num_outputs; ++j) {
        SCOPED_TRACE(::testing::Message() << "request " << i << ", sequence " << j);
        expect_same(outcomes[{ids[i], j}], want[i][static_cast<size_t>(j)]);
      }
    }
    const EngineMetrics metrics = engine->metrics();
    EXPECT_EQ(metrics.num_held_pages, 0);
    EXPECT_LE(metrics.num_idle_pages, num_pages);
    num_preemptions += metrics.num_preemptions;
    num_cached += metrics.num_cached_tokens;
    num_steps += metrics.num_steps;
    if (HasFailure()) return;
  }
  EXPECT_GT(num_preemptions, 100) << "memory must be short enough to matter";
  EXPECT_GT(num_cached, 1000);
  EXPECT_GT(num_steps, 1000);
}

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
