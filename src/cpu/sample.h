// Sampling on the CPU: the fallback, and the oracle the GPU rows are tested against. Arguments have
// been checked by src/ops; every tensor is in CPU memory.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/ops/sample.h"

namespace tessera::cpu {

void sample(const SampleArgs& args);
void token_logprobs(const TokenLogprobsArgs& args);

}  // namespace tessera::cpu
