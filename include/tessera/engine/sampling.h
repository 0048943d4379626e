// How the next token is chosen from the logits.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/engine/field_names.h"

namespace tessera {

// Applied in this order: logit_bias, penalties, temperature, top_k, typical_p, top_p, min_p, then
// one draw. The draw depends only on the seed, the sequence's index within its request and the
// token's position, so it is the same in any batch.
struct SamplingParams {
  float temperature = 1.0f;         // 0: greedy, the largest logit and the first of equals
  int32_t top_k = 0;                // keep the k most probable tokens; 0: all
  float top_p = 1.0f;               // keep the fewest tokens whose probabilities reach top_p
  float min_p = 0.0f;               // keep tokens with at least min_p times the best probability
  float typical_p = 1.0f;           // keep the fewest tokens that reach typical_p, starting with
                                    // those whose -log p is closest to the entropy
  float repetition_penalty = 1.0f;  // > 1: lowers the logits of tokens seen, also in the prompt
  float presence_penalty = 0.0f;    // subtracted once if the token was generated before
  float frequency_penalty = 0.0f;   // subtracted once for each time it was generated
  std::vector<std::pair<int32_t, float>> logit_bias = {};  // {token, bias}; clamped to +-100
  std::optional<uint64_t> seed = {};                       // not set: chosen by the engine

  bool is_greedy() const { return temperature == 0.0f; }
};

// Refuses values out of range, naming field and range. `vocab` bounds the tokens of logit_bias.
void check(const SamplingParams& params, int64_t vocab, const FieldNames& names = {});

}  // namespace tessera
