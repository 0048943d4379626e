// Log-likelihoods of given tokens: what perplexity and evaluations are made of.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tessera/engine/engine.h"

namespace tessera::apps {

// The last num_scored of `tokens`, given all that stands before each; fewer than there are tokens.
struct ScoreJob {
  std::vector<int32_t> tokens;
  int64_t num_scored = 0;
};

// Options for an engine that scores: small batches, logits for every row of a step.
EngineOptions scoring_options(EngineOptions options);

// Makes and runs jobs 0 to num_jobs - 1, a few at a time; on_score(job, log-likelihood) is called
// once for each, in no particular order. A single token is scored by making the engine choose it,
// which leaves the tokens before it to the prefix cache; more take the logprobs of the prompt.
void score(Engine& engine, int64_t num_jobs, const std::function<ScoreJob(int64_t)>& make_job,
           const std::function<void(int64_t, double)>& on_score);

}  // namespace tessera::apps
