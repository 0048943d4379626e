// Log-likelihoods of given tokens, for perplexity and evaluations.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tessera/engine/engine.h"

namespace tessera::apps {

// Scores the last num_scored of `tokens`, each given all before it; num_scored < tokens.size().
struct ScoreJob {
  std::vector<int32_t> tokens;
  int64_t num_scored = 0;
};

// Engine options for scoring: small batches, logits for every token of a step.
EngineOptions scoring_options(EngineOptions options);

// Makes and runs jobs 0 to num_jobs - 1, a few at a time; on_score(job, log-likelihood) is called
// once for each, in any order. A single token is scored by forcing the engine to choose it, so that
// the tokens before it can come from the prefix cache; several take the logprobs of the prompt.
void score(Engine& engine, int64_t num_jobs, const std::function<ScoreJob(int64_t)>& make_job,
           const std::function<void(int64_t, double)>& on_score);

}  // namespace tessera::apps
