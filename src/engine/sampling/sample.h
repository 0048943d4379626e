// One row of logits to one token: bias, penalties, truncation, and a draw from a counter-based
// random number generator.
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

// How often each token occurred; kept only for requests with penalties.
struct TokenCounts {
  std::unordered_map<int32_t, int32_t> generated = {};
  std::unordered_map<int32_t, int32_t> prompt = {};
};

// 32 random bits from a key and a counter (Philox 4x32-10). There is no state, so numbers can be
// drawn in any order.
uint32_t random_bits(uint64_t key, uint64_t counter_high, uint64_t counter_low);
// Uniform in (0, 1), in steps of 2^-52; a function of seed, sequence index and position alone.
double random_uniform(uint64_t seed, int32_t sequence, int64_t position);

// Working memory, reused from row to row.
struct SamplerScratch {
  std::vector<float> logits;
  std::vector<Candidate> candidates;
  std::vector<Candidate> pool;
};

// Whether a logit is NaN or +infinity. The request then fails instead of printing garbage.
bool is_broken(std::span<const float> logits);

// Chooses a token as SamplingParams says, from a row that is not broken. Tokens in `banned` are
// never chosen (min_new_tokens); banned ids outside the row are ignored. The repetition penalty
// divides positive logits and multiplies the others, once per token however often it occurred;
// presence and frequency penalties are subtracted after it. Refuses a row in which no token is left
// to choose.
//
// The draw takes u from random_uniform and returns the first token, in order of token id, at which
// the cumulative probability reaches u. Appending entries of -infinity to the row changes nothing.
int32_t sample(std::span<const float> logits, const SamplingParams& params,
               const TokenCounts& counts, std::span<const int32_t> banned, uint64_t seed,
               int32_t sequence, int64_t position, SamplerScratch& scratch);

// log(sum(exp(logits))) in double, with the largest logit subtracted first; -infinity if all logits
// are.
double log_sum_exp(std::span<const float> logits);
// The logprob of `token`, and the `num_top` most probable tokens, best first and ties by id. Fewer
// if fewer tokens have a probability above 0.
OutputToken logprobs_of(std::span<const float> logits, int32_t token, int32_t num_top);

}  // namespace tessera::engine
