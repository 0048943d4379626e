// Random schedules, and the answers that every request must get in them.
// SPDX-License-Identifier: MIT
#include "tests/engine/scheduler/schedules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tessera::testing {
namespace {

// Pages of 32 tokens need longer prompts to share one.
int64_t num_common_of(const ScheduleCase& schedules) {
  return schedules.page_sizes.front() >= 32 ? 40 : 0;
}
int64_t context_of(const ScheduleCase& schedules) { return 64 + num_common_of(schedules); }

EngineOptions options_of(const ScheduleCase& schedules) {
  EngineOptions options = tiny_options();
  options.kv_type = schedules.kv_type;
  options.dtype = schedules.dtype;
  options.device = schedules.device;
  options.max_context = context_of(schedules);
  return options;
}

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  int64_t operator()(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

 private:
  std::mt19937_64 random_;
};

// Prompts with many shared prefixes: greedy and sampled, with and without siblings, beams and
// logprobs; every ninth asks for an embedding. All begin with the same num_common tokens.
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
    if (dice(0, 3) == 0) request.min_new_tokens = dice(1, 4);
    if (dice(0, 5) == 0) request.sampling.logit_bias = {{static_cast<int32_t>(dice(0, 9)), 3.0f}};
    if (dice(0, 4) == 0) request.num_outputs = static_cast<int32_t>(dice(2, 3));
    if (dice(0, 5) == 0) request.wants_prompt_logprobs = true;
    if (dice(0, 3) == 0) request.num_logprobs = 0;
    if (dice(0, 3) == 0) {  // repeats itself
      const size_t num_prompt = request.prompt.size();
      for (size_t j = 0; j < std::min<size_t>(num_prompt, 8); ++j) {
        request.prompt.push_back(request.prompt[j]);
      }
    }
    if (dice(0, 5) == 0) request.stop_tokens = {static_cast<int32_t>(dice(0, kTinyVocab - 1))};
    if (dice(0, 7) == 0) {
      request.beam_width = static_cast<int32_t>(dice(1, 3));
      request.num_outputs = 1;
      request.sampling = {};
      request.prompt.resize(std::min<size_t>(request.prompt.size(), 8));  // fit the least memory
      request.max_new_tokens = std::min<int64_t>(request.max_new_tokens, 8);
    }
    if (i % 9 == 8) {
      request.pooling = i % 2 == 0 ? Pooling::last : Pooling::mean;
      request.max_new_tokens = request.beam_width = 0;
      request.num_outputs = 1;
    }
    request.prompt.insert(request.prompt.begin(), common.begin(), common.end());
    request.priority = static_cast<int32_t>(dice(0, 2));
    requests.push_back(std::move(request));
  }
  return requests;
}

// Each request alone, its prompt in one chunk, nothing cached and memory to spare; every step is
// launched kernel by kernel, and waited for.
std::vector<std::vector<Outcome>> run_alone(const std::vector<Request>& requests,
                                            const ScheduleCase& schedules) {
  EngineOptions options = options_of(schedules);
  options.page_size = schedules.page_sizes.back();
  options.max_step_tokens = options.max_step_logits = options.max_context;
  options.use_prefix_cache = false;
  options.use_graphs = false;
  options.runs_ahead = false;
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
  EXPECT_EQ(got.embedding, want.embedding);
  EXPECT_EQ(got.finish, want.finish) << got.error;
  EXPECT_EQ(got.score, want.score);
}

EngineOptions random_options(Dice& dice, const ScheduleCase& schedules) {
  EngineOptions options = options_of(schedules);
  const int64_t context = options.max_context;
  options.page_size =
      schedules.page_sizes[static_cast<size_t>(dice(0, std::ssize(schedules.page_sizes) - 1))];
  options.max_step_tokens = dice(0, 1) == 0 ? dice(3, 12) : dice(13, 80);
  options.max_batch = dice(3, 12);
  options.max_step_logits = dice(0, 1) == 0 ? 0 : dice(3, 12);
  options.use_prefix_cache = dice(0, 1) == 0;
  options.use_graphs = dice(0, 3) > 0;
  options.runs_ahead = dice(0, 3) > 0;
  constexpr Speculation kKinds[] = {Speculation::off, Speculation::lookup, Speculation::draft};
  const bool takes_draft = options.kv_type != KvFormat::int4;
  options.speculation = kKinds[dice(0, takes_draft ? 2 : 1)];
  options.max_draft_tokens = dice(0, 1) == 0 ? 15 : dice(1, 4);
  int64_t num_tokens = dice(0, 3) == 0 ? 8 * context : context + dice(0, context);
  num_tokens = std::max(num_tokens, 4 * options.page_size);  // for the beams
  const int64_t page_bytes = model::kv_page_bytes(
      tiny_config(), 1,
      {.page_size = options.page_size, .dtype = options.dtype, .type = options.kv_type});
  options.kv_bytes = num_tokens / options.page_size * page_bytes;
  options.fuses_steps = dice(0, 1) == 0;
  return options;
}

}  // namespace

ScheduleCounts expect_alike_in_any_schedule(const ScheduleCase& schedules) {
  const std::vector<Request> requests = make_requests(45, 3, num_common_of(schedules));
  const std::vector<std::vector<Outcome>> want = run_alone(requests, schedules);
  ScheduleCounts counts;
  for (uint64_t seed = 0; seed < schedules.num_schedules; ++seed) {
    Dice dice(seed);
    const EngineOptions options = random_options(dice, schedules);
    SCOPED_TRACE(::testing::Message()
                 << "seed " << seed << ": page_size " << options.page_size << ", tokens "
                 << options.max_step_tokens << ", batch " << options.max_batch << ", cache "
                 << options.use_prefix_cache << ", kv " << options.kv_bytes << ", graphs "
                 << options.use_graphs << ", fused " << options.fuses_steps << ", ahead "
                 << *options.runs_ahead << ", drafts "
                 << (options.speculation == Speculation::off ? 0 : options.max_draft_tokens)
                 << (options.speculation == Speculation::draft ? " by a model" : ""));
    const DraftKind kind = kAllDraftKinds[dice(0, 2)];
    const bool has_model = options.speculation == Speculation::draft;
    const auto engine = has_model ? drafting_engine(kind, options) : tiny_engine(options);
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
    EXPECT_EQ(metrics.num_held_draft_pages, 0);
    EXPECT_FALSE(metrics.has_given_up_drafts);
    EXPECT_LE(metrics.num_idle_pages, num_pages);
    counts.num_preemptions += metrics.num_preemptions;
    counts.num_replayed_tokens += metrics.num_replayed_tokens;
    counts.num_cached_tokens += metrics.num_cached_tokens;
    counts.num_steps += metrics.num_steps;
    counts.num_replays += metrics.num_replays;
    counts.num_wasted_rows += metrics.num_wasted_rows;
    counts.num_drafted_tokens += metrics.num_drafted_tokens;
    counts.num_accepted_tokens += metrics.num_accepted_tokens;
    counts.num_draft_steps += metrics.num_draft_steps;
    if (::testing::Test::HasFailure()) break;
  }
  return counts;
}

}  // namespace tessera::testing
