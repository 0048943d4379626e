// The tiles of the kernel for 2:4 sparse weights, and the choice among them: plain functions of
// sizes, tested on the CPU.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

namespace tessera::kernels {

inline constexpr int kSparseStepK = 32;    // elements of k in one mma.sp
inline constexpr int kSparseStageK = 128;  // elements of k in one stage of the ring

// A block: n rows of the weight by m tokens. A warp computes n / warps_n by m / warps_m of them.
struct SparseTile {
  int n;
  int m;
  int warps_n;
  int warps_m;
  int num_stages;
  double flops_per_ns;  // estimated speed of one SM, counting the zero weights too

  constexpr int num_threads() const { return 32 * warps_n * warps_m; }
  constexpr int warp_n() const { return n / warps_n; }
  constexpr int warp_m() const { return m / warps_m; }
  // Per stage: a row of values takes 128 bytes, a token 256, and 32 rows of meta 512.
  constexpr int stage_bytes() const { return n * 128 + m * 256 + n * 16; }
  constexpr int shared_bytes() const { return num_stages * stage_bytes(); }
  bool operator==(const SparseTile&) const = default;
};

// The tiles are types because nvcc cannot name a kernel by a struct value in a namespace.
// Warps of 64x64 read 6.25 KB of shared memory for 32 products of 16x8x32.
struct SparseLarge {
  static constexpr SparseTile kShape{256, 128, 4, 2, 3, 6000};
};
struct SparseSmall {
  static constexpr SparseTile kShape{128, 64, 2, 2, 3, 4500};
};
// For few tokens: the weight is streamed through deep rings. The choice prefers as many rows per
// block as let one wave cover n, because every block reads the tokens again from L2.
struct SparseWide {
  static constexpr SparseTile kShape{224, 16, 7, 1, 6, 2500};
};
struct SparseMiddle {
  static constexpr SparseTile kShape{128, 16, 4, 1, 5, 2000};
};
struct SparseNarrow {
  static constexpr SparseTile kShape{32, 16, 1, 2, 11, 500};
};

// Nanoseconds an SM takes for all its tiles: the larger of what bytes and arithmetic need.
constexpr double estimate_ns(const SparseTile& tile, int64_t m, int64_t n, int64_t k, int num_sms) {
  constexpr double kBytesPerNs = 40;  // per SM, from L2 and device memory together
  const int64_t num_tiles = ((m + tile.m - 1) / tile.m) * ((n + tile.n - 1) / tile.n);
  const int64_t num_waves = (num_tiles + num_sms - 1) / num_sms;
  const double bytes = static_cast<double>(k) * (1.125 * tile.n + 2.0 * tile.m);
  const double flops = 2.0 * static_cast<double>(k) * tile.n * tile.m;
  return static_cast<double>(num_waves) * std::max(bytes / kBytesPerNs, flops / tile.flops_per_ns);
}

// The tile with the lowest estimate that fits. All sum k in the same order, so the choice changes
// no bit of the result and may depend on m.
constexpr SparseTile choose_sparse_tile(int64_t m, int64_t n, int64_t k, int num_sms,
                                        int64_t shared_bytes) {
  SparseTile best = SparseNarrow::kShape;  // fits every device
  double best_ns = estimate_ns(best, m, n, k, num_sms);
  for (const SparseTile& tile :
       {SparseMiddle::kShape, SparseWide::kShape, SparseSmall::kShape, SparseLarge::kShape}) {
    const double ns = estimate_ns(tile, m, n, k, num_sms);
    if (tile.shared_bytes() > shared_bytes || ns >= best_ns) continue;
    best = tile;
    best_ns = ns;
  }
  return best;
}

}  // namespace tessera::kernels
