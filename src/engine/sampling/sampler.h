// One row of logits to one token: bias, penalties, truncation, and a draw by a counter-based
// generator. SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "tessera/engine/request.h"
#include "tessera/engine/sampling.h"

namespace tessera::engine {

// How often each token was seen; kept only where a penalty asks for it.
struct TokenCounts {
  std::unordered_map<int32_t, int32_t> generated;
  std::unordered_map<int32_t, int32_t> prompt;
};

// 32 random bits from a key and a counter (Philox 4x32-10): no state, any order.
uint32_t random_bits(uint64_t key, uint64_t counter_high, uint64_t counter_low);
// Uniform in (0, 1), from (seed, sequence index, position).
double random_uniform(uint64_t seed, int32_t sequence, int64_t position);

// Working memory of the sampler, reused from row to row.
struct SamplerScratch {
  std::vector<float> logits;
  std::vector<int32_t> order;
  std::vector<double> probabilities;
};

// Whether some logit is NaN or +infinity: the request then fails instead of printing garbage.
bool is_broken(std::span<const float> logits);
// Tokens with banned[i] in `banned` are never chosen (min_new_tokens).
int32_t sample(std::span<const float> logits, const SamplingParams& params,
               const TokenCounts& counts, std::span<const int32_t> banned, uint64_t seed,
               int32_t sequence, int64_t position, SamplerScratch& scratch);

// log sum exp of a row, in double, largest subtracted first.
double log_sum_exp(std::span<const float> logits);
// The logprob of `token` and the `num_top` most probable tokens, best first, ties by id.
OutputToken logprobs_of(std::span<const float> logits, int32_t token, int32_t num_top);

}  // namespace tessera::engine
