// The sampling family's tables, one per operation and library. A build without CUDA links empty
// tables in their place (src/kernels/rows_none.cpp).
// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "kernels/row.h"
#include "tessera/ops/sample.h"

namespace tessera::kernels {

struct SamplingRows {
  std::span<const Row<SampleArgs>> sample;
  std::span<const Row<TokenLogprobsArgs>> token_logprobs;
};

const SamplingRows& sampling_rows();
const SamplingRows& sampling_rows_sm90();

}  // namespace tessera::kernels

namespace tessera {

inline RowKey key_of(const SampleArgs& args) { return {args.logits.dtype, args.tokens.dtype}; }
inline RowKey key_of(const TokenLogprobsArgs& args) {
  return {args.logits.dtype, args.logprobs.dtype};
}

}  // namespace tessera
