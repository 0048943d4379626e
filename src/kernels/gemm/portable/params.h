// What the portable matrix-product kernels read, and which arguments they take.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/gemm/epilogue_params.h"
#include "kernels/gemm/portable/tile.h"

namespace tessera::kernels {

// Plain data, copied by value into constant memory. Strides count elements.
struct PortableGemmParams {
  const void* a;  // [batch, m, k]
  const void* b;  // [batch, n, k], or [n, k] for all with b_batch_stride 0
  int64_t a_stride;
  int64_t a_batch_stride;
  int64_t b_stride;
  int64_t b_batch_stride;
  int k;
  int tiles_m;
  int tiles_n;
  EpilogueParams epilogue;  // m and n among them
};
static_assert(std::is_trivially_copyable_v<PortableGemmParams>);

constexpr int64_t count_batches(const GemmArgs& args) {
  return args.a.rank == 3 ? args.a.size(0) : 1;
}
inline ProductSize product_size(const GemmArgs& args) {
  return {args.a.size(-2), args.b.size(-2), count_batches(args)};
}

inline PortableGemmParams portable_gemm_params(const GemmArgs& args, const TileCounts& tiles) {
  const auto batch_stride = [](const TensorView& t) { return t.rank == 3 ? t.stride(0) : 0; };
  return {.a = args.a.data,
          .b = args.b.data,
          .a_stride = args.a.stride(-2),
          .a_batch_stride = batch_stride(args.a),
          .b_stride = args.b.stride(-2),
          .b_batch_stride = batch_stride(args.b),
          .k = static_cast<int>(args.a.size(-1)),
          .tiles_m = static_cast<int>(tiles.m),
          .tiles_n = static_cast<int>(tiles.n),
          .epilogue = epilogue_params(args)};
}

// Every row of every matrix begins on 16 bytes. A stride along an axis of one is never walked.
inline bool has_aligned_rows(const TensorView& t) {
  const int64_t bytes = bit_width(t.dtype) / 8;
  if (reinterpret_cast<uintptr_t>(t.data) % 16 != 0) return false;
  for (int axis = 0; axis < t.rank - 1; ++axis) {
    if (t.size(axis) > 1 && t.stride(axis) * bytes % 16 != 0) return false;
  }
  return true;
}

// What all these kernels ask: b of the type of a, sizes in 32 bits with room for a step beyond k,
// and as many blocks of the smallest tile as one launch has.
inline bool accepts_any(const GemmArgs& args) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const ProductSize size = product_size(args);
  return args.b.dtype == args.a.dtype && size.m <= kMost - 256 && size.n <= kMost - 256 &&
         args.a.size(-1) <= kMost - 256 && size.batch <= kMost &&
         count_tiles(size, MmaNarrow::kShape.m, MmaNarrow::kShape.n).total() <= kMost;
}
inline bool accepts_aligned(const GemmArgs& args) {
  return accepts_any(args) && has_aligned_rows(args.a) && has_aligned_rows(args.b);
}
inline bool accepts_tf32(const GemmArgs& args) { return args.allow_tf32 && accepts_aligned(args); }

}  // namespace tessera::kernels
