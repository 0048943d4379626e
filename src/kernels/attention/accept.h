// What rows of prefill attention ask of the arguments beside their types.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <bit>

#include "kernels/attention/params.h"

namespace tessera::kernels {

// Every head of every row begins on a multiple of `alignment` bytes. A stride along an axis of one
// is never walked.
inline bool has_aligned_heads(const TensorView& t, int64_t alignment = 16) {
  const int64_t bytes = bit_width(t.dtype) / 8;
  if (reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(alignment) != 0) return false;
  for (int axis = 0; axis < t.rank - 1; ++axis) {
    if (t.size(axis) > 1 && t.stride(axis) * bytes % alignment != 0) return false;
  }
  return true;
}

inline bool has_aligned_heads(const AttentionArgs& args) {
  return has_aligned_heads(args.q) && has_aligned_heads(args.k) && has_aligned_heads(args.v) &&
         has_aligned_heads(args.out);
}

// Whether the larger of the two head dims is in (kAbove, kUpTo]: which rows of padded tiles take
// it.
template <int kAbove, int kUpTo>
bool has_heads_between(const AttentionArgs& args) {
  const int64_t larger = std::max(args.q.size(-1), args.v.size(-1));
  return larger > kAbove && larger <= kUpTo;
}

// Whether anything but a scale happens to a score, or to a weight.
inline bool changes_scores(const AttentionArgs& args) {
  return args.softcap != 0.0f || args.alibi_slopes.data != nullptr || args.dropout.rate != 0.0f;
}

// Of one sequence, at most.
inline int64_t num_keys(const AttentionArgs& args) {
  return is_paged(args) ? args.k_page_table.size(1) * args.k.size(1) : args.k.size(-3);
}

// Pages of a power of two of tokens are found by a shift.
inline bool has_pages_of(const AttentionArgs& args, int64_t least) {
  return !is_paged(args) ||
         (args.k.size(1) >= least && std::has_single_bit(static_cast<uint64_t>(args.k.size(1))));
}

}  // namespace tessera::kernels
