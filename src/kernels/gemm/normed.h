// Which norms a product of few rows can do itself. Plain arithmetic, tested on the CPU.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tessera/ops/norm_gemm.h"

namespace tessera::kernels {

inline constexpr int kNormedVec = 8;         // 16-bit elements in a vector of 16 bytes
inline constexpr int kNormedMaxVecs = 4;     // of a thread
inline constexpr int kNormedWarps = 4;       // that do it, at least
inline constexpr int kReductionBytes = 384;  // of shared memory, for the sums of the warps
// A row that fits into the vectors of as many threads.
inline constexpr int64_t kNormedMaxHidden =
    int64_t{kNormedMaxVecs} * kNormedWarps * 32 * kNormedVec;

// One row, of whole vectors that start at multiples of 16 bytes, without a residual. Every block
// does all of it, which more rows would multiply.
inline bool can_norm_inside(const NormGemmArgs& args) {
  const auto is_aligned = [](const TensorView& t) {
    return reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
  };
  const RmsNormArgs& norm = args.norm;
  const int64_t hidden = norm.x.size(-1);
  return norm.x.rank == 2 && norm.x.size(0) == 1 && hidden % kNormedVec == 0 &&
         hidden <= kNormedMaxHidden && !norm.residual && is_aligned(norm.x) &&
         is_aligned(norm.weight);
}

}  // namespace tessera::kernels
