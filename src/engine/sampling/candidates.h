// The tokens that may be drawn and their weights, after top-k, typical-p, top-p and min-p.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/engine/sampling.h"

namespace tessera::engine {

// A candidate's probability is its weight divided by the sum of all weights.
struct Candidate {
  double weight = 0.0;  // exp((logit - largest logit of the candidates) / temperature)
  float logit = 0.0f;
  int32_t token = 0;
};

// The token with the largest logit, the first of equals, in one pass. The row must not be empty.
int32_t find_largest(std::span<const float> logits);

// The `count` largest logits in order of token; of equal logits the smaller token is taken. Weights
// are not set. Fewer if fewer logits are above -infinity. One pass that buffers the best candidates
// and selects among them whenever the buffer is full.
void select_best(std::span<const float> logits, int64_t count, std::vector<Candidate>& best);

// Leaves in `candidates`, in order of token, what passes top_k, then typical_p, then top_p, then
// min_p. Each filter sees the probabilities renormalised over what the one before has left. Of
// equal candidates the smaller token is kept. At least one token remains; tokens whose weight
// underflows to 0 in double never do. Logits must hold no NaN or +infinity and at least one value
// above -infinity; temperature must be above 0.
//
// Cost: one pass over the logits with top_k; without it, one exponential per logit as well. Nothing
// is sorted: the cut of top_p and typical_p is found with a histogram, and then by selection inside
// the one bucket that contains it. `pool` is working memory.
void truncate(std::span<const float> logits, const SamplingParams& params,
              std::vector<Candidate>& candidates, std::vector<Candidate>& pool);

}  // namespace tessera::engine
