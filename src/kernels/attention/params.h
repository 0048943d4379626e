// What attention kernels read, made from the public arguments, and what rows ask of these. TMA maps
// are added by the Hopper kernels.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tessera/ops/attention.h"

namespace tessera::kernels {

// Strides of one tensor, in elements. Ragged tensors have a batch stride of 0; in pages `batch` is
// the stride of a page and `row` that of a row within it.
struct RowStrides {
  int64_t batch;
  int64_t row;
  int64_t head;
};

struct MaskParams {
  int left;                  // keys seen before a query; kUnbounded: all
  int right;                 // and after it; kUnbounded: all
  const int32_t* intervals;  // null: none
  int num_intervals;         // 1 or 2
  int64_t interval_batch;    // strides, in elements
  int64_t interval_row;
};
inline constexpr int kUnbounded = 1 << 30;  // beyond any length; the sum of two does not overflow

struct ScoreParams {
  float scale;
  float softcap;  // 0: none
  const float* sinks;
  const float* alibi_slopes;
  const float* q_scale;  // [batch, num_kv_heads], or null; so are the next two
  const float* k_scale;
  const float* v_scale;
  uint32_t drop_below;  // a weight is dropped if its random word is below; 0: none
  float keep_scale;     // 1 / (1 - rate)
  uint64_t seed;
};

struct AttentionParams {
  const void* q;
  const void* k;
  const void* v;
  void* out;
  float* lse;  // null: not wanted
  RowStrides q_strides;
  RowStrides k_strides;
  RowStrides v_strides;
  RowStrides out_strides;
  RowStrides lse_strides;
  const int32_t* q_starts;      // null: batched
  const int32_t* kv_starts;     // null: batched or paged
  const int32_t* kv_lens;       // null: kv_len each, or as in kv_starts
  const int32_t* k_page_table;  // null: not paged
  const int32_t* v_page_table;
  int64_t k_table_stride;
  int64_t v_table_stride;
  int page_size;
  int batch;
  int q_len;   // of each sequence; ragged: total tokens
  int kv_len;  // of each sequence; ragged: total tokens
  int num_heads;
  int num_kv_heads;
  MaskParams mask;
  ScoreParams scores;
};
static_assert(std::is_trivially_copyable_v<AttentionParams>);

inline bool is_ragged(const AttentionArgs& args) { return args.q.rank == 3; }
inline bool is_paged(const AttentionArgs& args) { return args.k_page_table.data != nullptr; }
inline int64_t batch_of(const AttentionArgs& args) {
  return is_ragged(args) ? args.q_starts.size(0) - 1 : args.q.size(0);
}

inline RowStrides row_strides(const TensorView& t) {
  return {t.rank == 4 ? t.stride(0) : 0, t.stride(-3), t.stride(-2)};
}

inline int bounded(int64_t reach) {
  return reach < 0 || reach > kUnbounded ? kUnbounded : static_cast<int>(reach);
}

inline MaskParams mask_params(const AttentionArgs& args) {
  const TensorView& t = args.mask.intervals;
  MaskParams p{};
  p.left = bounded(args.mask.left);
  p.right = bounded(args.mask.right);
  if (t.data == nullptr) return p;
  p.intervals = t.as<int32_t>();
  p.num_intervals = static_cast<int>(t.size(-2));
  p.interval_batch = t.rank == 4 ? t.stride(0) : 0;
  p.interval_row = t.stride(-3);
  return p;
}

inline ScoreParams score_params(const AttentionArgs& args) {
  const float d_k = static_cast<float>(args.q.size(-1));
  const double drop_below = std::ldexp(static_cast<double>(args.dropout.rate), 32);
  return {.scale = args.scale != 0.0f ? args.scale : 1.0f / std::sqrt(d_k),
          .softcap = args.softcap,
          .sinks = args.sinks.as<float>(),
          .alibi_slopes = args.alibi_slopes.as<float>(),
          .q_scale = args.q_scale.as<float>(),
          .k_scale = args.k_scale.as<float>(),
          .v_scale = args.v_scale.as<float>(),
          .drop_below = static_cast<uint32_t>(drop_below),
          .keep_scale = 1.0f / (1.0f - args.dropout.rate),
          .seed = args.dropout.seed};
}

inline AttentionParams attention_params(const AttentionArgs& args) {
  AttentionParams p{};
  p.q = args.q.data;
  p.k = args.k.data;
  p.v = args.v.data;
  p.out = args.out.data;
  p.lse = args.lse.as<float>();
  p.q_strides = row_strides(args.q);
  p.k_strides = row_strides(args.k);
  p.v_strides = row_strides(args.v);
  p.out_strides = row_strides(args.out);
  if (args.lse.data != nullptr) {
    const TensorView& lse = args.lse;
    p.lse_strides = {lse.rank == 3 ? lse.stride(0) : 0, lse.stride(-1), lse.stride(-2)};
  }
  p.q_starts = args.q_starts.as<int32_t>();
  p.kv_starts = args.kv_starts.as<int32_t>();
  p.kv_lens = args.kv_lens.as<int32_t>();
  p.k_page_table = args.k_page_table.as<int32_t>();
  const TensorView& v_table =
      args.v_page_table.data != nullptr ? args.v_page_table : args.k_page_table;
  p.v_page_table = v_table.as<int32_t>();
  if (is_paged(args)) {
    p.k_table_stride = args.k_page_table.stride(0);
    p.v_table_stride = v_table.stride(0);
    p.page_size = static_cast<int>(args.k.size(1));
  }
  p.batch = static_cast<int>(batch_of(args));
  p.q_len = static_cast<int>(args.q.size(-3));
  p.kv_len = static_cast<int>(args.k.size(-3));
  p.num_heads = static_cast<int>(args.q.size(-2));
  p.num_kv_heads = static_cast<int>(args.k.size(-2));
  p.mask = mask_params(args);
  p.scores = score_params(args);
  return p;
}

// Whether every head of every row begins on a multiple of `alignment` bytes. The stride of an axis
// of one does not matter.
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

// Whether the larger of the two head dims is in (kAbove, kUpTo]: selects among rows with padded
// tiles.
template <int kAbove, int kUpTo>
bool has_heads_between(const AttentionArgs& args) {
  const int64_t larger = std::max(args.q.size(-1), args.v.size(-1));
  return larger > kAbove && larger <= kUpTo;
}

// Whether scores are changed by more than the scale, or weights dropped.
inline bool changes_scores(const AttentionArgs& args) {
  return args.softcap != 0.0f || args.alibi_slopes.data != nullptr || args.dropout.rate != 0.0f;
}

// Upper bound of the keys of one sequence.
inline int64_t num_keys(const AttentionArgs& args) {
  return is_paged(args) ? args.k_page_table.size(1) * args.k.size(1) : args.k.size(-3);
}

// Pages hold a power of two of tokens, at least `least`, so that they are found by a shift.
inline bool has_pages_of(const AttentionArgs& args, int64_t least) {
  return !is_paged(args) ||
         (args.k.size(1) >= least && std::has_single_bit(static_cast<uint64_t>(args.k.size(1))));
}

}  // namespace tessera::kernels
