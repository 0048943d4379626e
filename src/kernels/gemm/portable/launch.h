// The launchers of the portable kernels and what each takes; defined in the .cuh files beside it.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/gemm/portable/tile.h"
#include "tessera/core/context.h"
#include "tessera/ops/gemm.h"

namespace tessera::kernels {

// On tensor cores; T is Bf16, F16, or float for tf32.
template <class T>
void launch_gemm_mma(const GemmArgs& args, const Context& ctx);
template <class T>
void launch_gemm_mma_unaligned(const GemmArgs& args, const Context& ctx);

// On CUDA cores; kIsAligned: rows of a and b start at multiples of 16 bytes.
template <bool kIsAligned>
void launch_gemm_f32(const GemmArgs& args, const Context& ctx);

// Stands for codes of 4 bits that are indices of the weight's table.
struct TableIndex;
// With a weight of codes: Code is I4x2, TableIndex, uint8_t for integers of 8 bits, or E4m3.
// (weight_codes.cuh)
template <class T, class Code>
void launch_weight_codes(const GemmArgs& args, const Context& ctx);

// Of codes with codes, on tensor cores: A is int8_t, uint8_t, I4x2 or E4m3, B int8_t or I4x2; bias,
// residual and 16-bit results are T. (token_codes.cuh)
template <class A, class B, class T>
void launch_token_codes(const GemmArgs& args, const Context& ctx);

// Of int8 with int8 for few rows of a, on CUDA cores. (dp4a.cuh)
template <class T>
void launch_gemm_dp4a(const GemmArgs& args, const Context& ctx);

constexpr int64_t count_batches(const GemmArgs& args) {
  return args.a.rank == 3 ? args.a.size(0) : 1;
}
inline ProductSize product_size(const GemmArgs& args) {
  return {args.a.size(-2), args.b.n(), count_batches(args)};
}

// Every row starts at a multiple of 16 bytes. The stride of an axis of size 1 does not matter.
inline bool has_aligned_rows(const TensorView& t) {
  const int64_t bytes = bit_width(t.dtype) / 8;
  if (reinterpret_cast<uintptr_t>(t.data) % 16 != 0) return false;
  for (int axis = 0; axis < t.rank - 1; ++axis) {
    if (t.size(axis) > 1 && t.stride(axis) * bytes % 16 != 0) return false;
  }
  return true;
}

// What all portable kernels need: sizes in 32 bits with room for a step beyond k, and no more
// blocks of the smallest tile than one launch may have.
inline bool accepts_any(const GemmArgs& args) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const ProductSize size = product_size(args);
  return size.m <= kMost - 256 && size.n <= kMost - 256 && args.a.size(-1) <= kMost - 256 &&
         size.batch <= kMost &&
         count_tiles(size, MmaNarrow::kShape.m, MmaNarrow::kShape.n).total() <= kMost;
}
inline bool accepts_aligned(const GemmArgs& args) {
  return accepts_any(args) && has_aligned_rows(args.a) && has_aligned_rows(args.b.values);
}
// Every row of codes starts at a multiple of 16 bytes.
inline bool has_aligned_codes(const TensorView& codes) {
  return reinterpret_cast<uintptr_t>(codes.data) % 16 == 0 &&
         (codes.size(0) <= 1 || codes.stride(0) * bit_width(codes.dtype) % 128 == 0);
}
// Codes in rows that start at multiples of 16 bytes, with groups that are whole steps of an MMA.
inline bool accepts_weight_codes(const GemmArgs& args) {
  const Weight& b = args.b;
  if (b.k() == 0 || b.order || (b.zero_point && b.zero_point->dtype != DType::u8)) return false;
  const ScaleLayout scales = scale_layout(b);
  return accepts_any(args) && has_aligned_rows(args.a) && has_aligned_codes(b.values) &&
         (scales.scales_per_row == 1 || scales.cols_per_scale % 16 == 0);
}

// Elements of k under one of several scales of a row of a.
inline constexpr int64_t kTokenGroup = 128;
// Elements of k under one scale of each side; all where none changes along k.
inline int64_t token_segment(const GemmArgs& args) {
  int64_t segment = args.a.size(-1);
  if (args.a_scale->rank == 2) segment = std::min(segment, kTokenGroup);
  if (args.b.scale->rank == 2) segment = std::min(segment, scale_layout(args.b).cols_per_scale);
  return segment;
}
// Codes on both sides. A segment is a whole number of MMAs, or a row of which no sum leaves 32
// bits: a product is at most 2^14.
inline bool accepts_token_codes(const GemmArgs& args) {
  constexpr int64_t kMostSummed = int64_t{1} << 16;
  const int64_t k = args.a.size(-1);
  if (k == 0 || !accepts_any(args) || value_type(args) == DType::f32) return false;
  const int64_t segment = token_segment(args);
  return segment <= kMostSummed && (segment == k || segment % 32 == 0) &&
         has_aligned_codes(args.a) && has_aligned_codes(args.b.values);
}
// Few enough rows, and scales of whole rows.
inline bool accepts_dp4a(const GemmArgs& args) {
  return args.a.size(-2) <= kDp4aRows && args.a.size(-1) % 16 == 0 && args.a_scale->rank == 1 &&
         args.b.scale->rank == 1 && accepts_token_codes(args);
}

inline bool accepts_tf32(const GemmArgs& args) { return args.allow_tf32 && accepts_aligned(args); }

}  // namespace tessera::kernels
