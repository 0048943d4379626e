// The launchers of the portable kernels and what each takes; defined in mma.cuh and simt.cuh.
// SPDX-License-Identifier: MIT
#pragma once

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

// With a weight of codes: Code is I4x2, uint8_t for integers of 8 bits, or E4m3. (weight_codes.cuh)
template <class T, class Code>
void launch_weight_codes(const GemmArgs& args, const Context& ctx);

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
// Codes in rows that start at multiples of 16 bytes, with groups that are whole steps of an MMA.
inline bool accepts_weight_codes(const GemmArgs& args) {
  const Weight& b = args.b;
  if (b.k() == 0 || b.order || (b.zero_point && b.zero_point->dtype != DType::u8)) return false;
  const ScaleLayout scales = scale_layout(b);
  const bool has_aligned_codes =
      reinterpret_cast<uintptr_t>(b.values.data) % 16 == 0 &&
      (b.n() <= 1 || b.values.stride(0) * bit_width(b.values.dtype) % 128 == 0);
  return accepts_any(args) && has_aligned_rows(args.a) && has_aligned_codes &&
         (scales.scales_per_row == 1 || scales.cols_per_scale % 16 == 0);
}
inline bool accepts_tf32(const GemmArgs& args) { return args.allow_tf32 && accepts_aligned(args); }

}  // namespace tessera::kernels
