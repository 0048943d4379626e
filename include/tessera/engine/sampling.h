// How a token is chosen from logits.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/engine/field_names.h"

namespace tessera {

// Applied in this order: logit_bias, penalties, temperature, top_k, typical_p, top_p, min_p, then
// one draw. The draw depends on the seed, the sequence's number within its request and the token's
// position alone, so it is the same in any batch.
struct SamplingParams {
  float temperature = 1.0f;         // 0: the largest logit, the first of equals
  int32_t top_k = 0;                // keep the k most probable; 0: all
  float top_p = 1.0f;               // keep the fewest whose probability reaches top_p
  float min_p = 0.0f;               // keep those of at least min_p times the best one's probability
  float typical_p = 1.0f;           // keep the fewest nearest to the entropy that reach typical_p
  float repetition_penalty = 1.0f;  // > 1: logits of tokens seen (prompt too) shrink by it
  float presence_penalty = 0.0f;    // subtracted once from tokens generated already
  float frequency_penalty = 0.0f;   // subtracted for each time a token was generated
  std::vector<std::pair<int32_t, float>> logit_bias = {};  // token, added; held within +-100
  std::optional<uint64_t> seed = {};                       // none: drawn by the engine

  bool is_greedy() const { return temperature == 0.0f; }
};

// Refuses values outside their range, naming the field and the range; `vocab` bounds logit_bias.
void check(const SamplingParams& params, int64_t vocab, const FieldNames& names = {});

}  // namespace tessera
