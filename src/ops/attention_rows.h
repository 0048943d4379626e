// The table of an operation that is made of other operations: its rows call theirs.
// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "kernels/row.h"
#include "tessera/ops/attention.h"

namespace tessera {

inline RowKey key_of(const CascadeAttentionArgs& args) {
  return {args.own.q.dtype, args.own.out.dtype};
}

namespace ops {

// Empty in a build without CUDA.
std::span<const Row<CascadeAttentionArgs>> attention_cascade_rows();

}  // namespace ops
}  // namespace tessera
