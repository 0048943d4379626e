// The tables of operations that are made of other operations: their rows call those.
// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "kernels/row.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/attention_append.h"

namespace tessera {

inline RowKey key_of(const CascadeAttentionArgs& args) {
  return {args.own.q.dtype, args.own.out.dtype};
}

namespace ops {

// Empty in a build without CUDA.
std::span<const Row<CascadeAttentionArgs>> attention_cascade_rows();
std::span<const Row<AppendAttentionArgs>> attention_append_rows();

}  // namespace ops
}  // namespace tessera
