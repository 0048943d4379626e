// Log-probabilities of a row of logits on the host, for beam search; other rows get theirs on the
// model's device.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>

#include "tessera/engine/request.h"

namespace tessera::engine {

// log(sum(exp(logits))) in double, with the largest logit subtracted first; -infinity if all logits
// are. The row must hold no NaN and no +infinity.
double log_sum_exp(std::span<const float> logits);
// The logprob of `token`, and the `num_top` most probable tokens, best first and ties by id. Fewer
// if fewer tokens have a probability above 0.
OutputToken logprobs_of(std::span<const float> logits, int32_t token, int32_t num_top);

}  // namespace tessera::engine
