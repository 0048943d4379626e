// The tokens that may be drawn, and their weights: top-k, typical, top-p and min-p.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/engine/sampling.h"

namespace tessera::engine {

// Probability is weight over the sum of the weights; only ratios of weights mean anything.
struct Candidate {
  double weight = 0.0;  // exp((logit - the candidates' largest) / temperature)
  float logit = 0.0f;
  int32_t token = 0;
};

// The first of the largest logits, in one pass. The row must have a token.
int32_t find_largest(std::span<const float> logits);

// The `count` largest logits, the first of equals, in order of token; weights are not set. Fewer
// where fewer are above -infinity. One pass, which keeps the best of 2 * count at a time.
void select_best(std::span<const float> logits, int64_t count, std::vector<Candidate>& best);

// Leaves in `candidates`, in order of token, what top_k, typical_p, top_p and min_p keep, each of
// what the one before has left, with probabilities that add up to one again. Of equals the smaller
// token is kept. At least one token stays; tokens whose weight is 0 in double never do.
// Logits hold no NaN or +infinity, and at least one is above -infinity; temperature is above 0.
//
// Cost: with top_k a pass over the logits; without, an exponential for each besides. Nothing is
// sorted: the cut of top_p and typical_p is found by a histogram and by selection in the one bucket
// where it lies. `pool` is working memory.
void truncate(std::span<const float> logits, const SamplingParams& params,
              std::vector<Candidate>& candidates, std::vector<Candidate>& pool);

}  // namespace tessera::engine
