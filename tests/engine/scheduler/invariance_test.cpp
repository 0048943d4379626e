// What a request gets does not depend on the company it keeps.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/engine/scheduler/tiny_model.h"

namespace tessera {
namespace {

using namespace tessera::testing;

// Pages of 32 tokens need longer prompts to share one.
constexpr int64_t num_common_of(KvType type) { return type == KvType::int4 ? 40 : 0; }
constexpr int64_t context_of(KvType type) { return 64 + num_common_of(type); }

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
// All begin with the same num_common tokens.
std::vector<Request> make_requests(int count, uint64_t seed, int64_t num_common) {
  Dice dice(seed);
  const std::vector<int32_t> common(static_cast<size_t>(num_common), 7);
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
    request.prompt.insert(request.prompt.begin(), common.begin(), common.end());
    request.priority = static_cast<int32_t>(dice(0, 2));
    requests.push_back(std::move(request));
  }
  return requests;
}

// Each request alone, its prompt in one chunk, nothing cached and memory to spare.
std::vector<std::vector<Outcome>> run_alone(const std::vector<Request>& requests, KvType type) {
  EngineOptions options = tiny_options();
  options.kv_type = type;
  if (type == KvType::int4) options.page_size = 32;
  options.max_context = context_of(type);
  options.max_step_tokens = options.max_step_logits = context_of(type);
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

EngineOptions random_options(Dice& dice, KvType type) {
  const int64_t page_sizes[] = {1, 4, 16};
  EngineOptions options = tiny_options();
  options.kv_type = type;
  const int64_t context = context_of(type);
  options.max_context = context;
  options.page_size = type == KvType::int4 ? 32 : page_sizes[dice(0, 2)];
  options.max_step_tokens = dice(0, 1) == 0 ? dice(3, 12) : dice(13, 80);
  options.max_batch = dice(3, 12);
  options.max_step_logits = dice(0, 1) == 0 ? 0 : dice(3, 12);
  options.use_prefix_cache = dice(0, 1) == 0;
  int64_t num_tokens = dice(0, 3) == 0 ? 8 * context : context + dice(0, context);
  if (type == KvType::int4) num_tokens = std::max<int64_t>(num_tokens, 4 * 32);  // for the beams
  const int64_t page_bytes = model::kv_page_bytes(
      tiny_config(), 1, {.page_size = options.page_size, .dtype = DType::f32, .type = type});
  options.kv_bytes = num_tokens / options.page_size * page_bytes;
  return options;
}

class InvarianceOf : public ::testing::TestWithParam<KvType> {};

// Where the cache is not plain, attention of a generated token rounds differently from that of the
// same token in a prompt: only a schedule that never mixes them up passes.
TEST_P(InvarianceOf, ARequestIsAnsweredAlikeInAnyScheduleWithAnyMemory) {
  const std::vector<Request> requests = make_requests(40, 3, num_common_of(GetParam()));
  const std::vector<std::vector<Outcome>> want = run_alone(requests, GetParam());
  int64_t num_preemptions = 0, num_replayed = 0, num_cached = 0, num_steps = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Dice dice(seed);
    const EngineOptions options = random_options(dice, GetParam());
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
    num_replayed += metrics.num_replayed_tokens;
    num_steps += metrics.num_steps;
    if (HasFailure()) return;
  }
  const bool has_large_pages = GetParam() == KvType::int4;
  EXPECT_GT(num_preemptions, has_large_pages ? 50 : 100) << "memory must be short enough to matter";
  EXPECT_GT(num_replayed, 100);
  EXPECT_GT(num_cached, has_large_pages ? 100 : 1000);
  EXPECT_GT(num_steps, 1000);
}

INSTANTIATE_TEST_SUITE_P(KvTypes, InvarianceOf, ::testing::ValuesIn(kAllKvTypes),
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
