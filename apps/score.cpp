// Scoring through engine requests.
// SPDX-License-Identifier: MIT
#include "apps/score.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::apps {
namespace {

constexpr int64_t kInFlight = 8;
constexpr int64_t kStepTokens = 512;
constexpr float kForce = 100.0f;  // the largest bias allowed

class Scorer {
 public:
  Scorer(Engine& engine, const std::function<void(int64_t, double)>& on_score)
      : engine_(engine), on_score_(on_score) {}

  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }

  void submit(int64_t index, ScoreJob job) {
    if (job.num_scored < 1 || job.num_scored >= static_cast<int64_t>(job.tokens.size())) {
      fail(concat("score: ", job.num_scored, " of ", job.tokens.size(), " tokens"));
    }
    const bool is_forced = job.num_scored == 1;
    submit({.index = index, .job = std::move(job), .is_forced = is_forced});
  }

  void step() {
    for (SequenceOutput& news : engine_.step()) {
      const auto found = running_.find(news.request);
      if (found == running_.end()) continue;
      Running& one = found->second;
      if (news.finish == FinishReason::error) throw Error(news.error);
      if (!news.prompt_logprobs.empty()) one.logprobs = std::move(news.prompt_logprobs);
      if (!news.tokens.empty()) one.output = news.tokens.front();
      if (news.finish == FinishReason::none) continue;
      Running done = std::move(one);
      running_.erase(found);
      finish(std::move(done));
    }
  }

 private:
  struct Running {
    int64_t index = 0;
    ScoreJob job = {};
    bool is_forced = false;
    std::vector<float> logprobs = {};
    OutputToken output = {};
  };

  void submit(Running one) {
    Request request;
    request.prompt = one.job.tokens;
    request.sampling.temperature = 0;
    request.ignores_eos = true;
    if (one.is_forced) {
      request.sampling.logit_bias = {{request.prompt.back(), kForce}};
      request.prompt.pop_back();
      request.max_new_tokens = 1;
      request.num_logprobs = 0;  // from the model's distribution, before the bias
    } else {
      request.max_new_tokens = 0;
      request.wants_prompt_logprobs = true;
    }
    const std::optional<RequestId> id = engine_.submit(std::move(request));
    if (!id) fail("score: the engine's queue is full");
    running_.emplace(*id, std::move(one));
  }

  void finish(Running one) {
    if (one.is_forced && one.output.token != one.job.tokens.back()) {
      one.is_forced = false;  // some logit exceeds it by more than the bias
      submit(std::move(one));
      return;
    }
    if (one.is_forced) {
      on_score_(one.index, one.output.logprob);
      return;
    }
    if (one.logprobs.size() + 1 != one.job.tokens.size()) {
      fail(concat("score: ", one.logprobs.size(), " logprobs for ", one.job.tokens.size(),
                  " tokens"));
    }
    double sum = 0;
    for (auto it = one.logprobs.end() - one.job.num_scored; it != one.logprobs.end(); ++it) {
      sum += *it;
    }
    on_score_(one.index, sum);
  }

  Engine& engine_;
  const std::function<void(int64_t, double)>& on_score_;
  std::map<RequestId, Running> running_;
};

}  // namespace

EngineOptions scoring_options(EngineOptions options) {
  options.max_batch = kInFlight;
  options.max_step_tokens = kStepTokens;  // every token needs a row of logits
  options.max_step_logits = kStepTokens;
  options.max_queue = kInFlight;
  return options;
}

void score(Engine& engine, int64_t num_jobs, const std::function<ScoreJob(int64_t)>& make_job,
           const std::function<void(int64_t, double)>& on_score) {
  Scorer scorer(engine, on_score);
  int64_t next = 0;
  while (next < num_jobs || scorer.num_running() > 0) {
    while (next < num_jobs && scorer.num_running() < kInFlight) {
      scorer.submit(next, make_job(next));
      ++next;
    }
    scorer.step();
  }
}

}  // namespace tessera::apps
