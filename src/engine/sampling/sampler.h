// One row of logits to one token: bias, penalties, truncation, a draw by a counter.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/sampling/candidates.h"
#include "tessera/engine/request.h"
#include "tessera/engine/sampling.h"

namespace tessera::engine {

// How often each token was seen; kept only where a penalty asks for it.
struct TokenCounts {
  std::unordered_map<int32_t, int32_t> generated = {};
  std::unordered_map<int32_t, int32_t> prompt = {};
};

// 32 random bits from a key and a counter (Philox 4x32-10): no state, any order.
uint32_t random_bits(uint64_t key, uint64_t counter_high, uint64_t counter_low);
// Uniform in (0, 1), in steps of 2^-52, from (seed, sequence index, position).
double random_uniform(uint64_t seed, int32_t sequence, int64_t position);

// Working memory of the sampler, reused from row to row.
struct SamplerScratch {
  std::vector<float> logits;
  std::vector<Candidate> candidates;
  std::vector<Candidate> pool;
};

// Whether some logit is NaN or +infinity: the request then fails instead of printing garbage.
bool is_broken(std::span<const float> logits);

// Applies what SamplingParams lists, in its order, to a row that is not broken. Tokens in `banned`
// are never chosen (min_new_tokens); those outside the row are ignored. A repetition penalty
// divides positive logits and multiplies the others, once for a token however often it was seen;
// presence and frequency penalties come after it. Refuses a row that leaves no token to choose.
//
// The draw: with u of random_uniform, the first token, in order of token, at which the sum of the
// probabilities kept reaches u. Entries of -infinity at the end of the row change nothing.
int32_t sample(std::span<const float> logits, const SamplingParams& params,
               const TokenCounts& counts, std::span<const int32_t> banned, uint64_t seed,
               int32_t sequence, int64_t position, SamplerScratch& scratch);

// log sum exp of a row, in double, largest subtracted first; -infinity where all logits are.
double log_sum_exp(std::span<const float> logits);
// The logprob of `token` and the `num_top` most probable tokens, best first, ties by id; fewer
// where fewer have a probability.
OutputToken logprobs_of(std::span<const float> logits, int32_t token, int32_t num_top);

}  // namespace tessera::engine
