// The scales of codes that change along k, for tiles that promote: the sums over a block of k are
// multiplied by them and added to sums in float.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/gemm/epilogue.cuh"
#include "tile/unroll.cuh"

namespace tessera::kernels {

// Scales for blocks of 128 elements of k: plain data.
struct BlockScales {
  const float* a;        // [m, blocks of k]; null: 1
  const float* b;        // [n / 128, blocks of k], or [n, blocks of k]; null: 1
  int num_blocks;        // of k
  int b_rows_per_scale;  // 128 or 1

  __device__ bool has_blocks_of_b() const { return b != nullptr && b_rows_per_scale != 1; }
  __device__ bool has_rows_of_b() const { return b != nullptr && b_rows_per_scale == 1; }
};

// The scales that a tile applies along k. Those of whole rows belong to the epilogue.
inline BlockScales block_scales(const GemmArgs& args) {
  BlockScales scales{};
  if (!args.a_scale) return scales;
  scales.num_blocks = static_cast<int>(args.a.size(-1) / kPromotedK);
  if (args.a_scale->rank == 2) scales.a = args.a_scale->as<float>();
  if (args.b.scale->rank == 2) {
    scales.b = args.b.scale->as<float>();
    scales.b_rows_per_scale = static_cast<int>(args.b.rows_per_scale);
  }
  return scales;
}

// Those of a lane's two rows and its columns of one tile. It holds where they begin.
template <class Tile>
class TileScales {
 public:
  // For one block of k. They are loaded before the products they belong to have ended, so that the
  // loads' latency is hidden. Where each column has a scale, those are not here.
  struct Factors {
    float row[2];
    float block[Tile::kScaledBlocks];
  };

  // `at`: the lane's first row and column in the product of m x n.
  __device__ TileScales(const BlockScales& scales, int m, int n, int n_tile, BlockPlace at)
      : scales_(scales),
        last_col_(n - 1 - at.col),
        has_odd_tile_(n_tile % 2 != 0),
        col_(at.col * scales.num_blocks) {
    TESSERA_UNROLL
    for (int h = 0; h < 2; ++h) row_[h] = min(at.row + 8 * h, m - 1) * scales.num_blocks;
    TESSERA_UNROLL
    for (int i = 0; i < Tile::kScaledBlocks; ++i) {
      block_[i] = min(n_tile * Tile::kCols / 128 + i, (n - 1) / 128) * scales.num_blocks;
    }
  }

  __device__ Factors load(int k_block) const {
    Factors factors;
    TESSERA_UNROLL
    for (int h = 0; h < 2; ++h) {
      factors.row[h] = scales_.a != nullptr ? scales_.a[row_[h] + k_block] : 1.0f;
    }
    TESSERA_UNROLL
    for (int i = 0; i < Tile::kScaledBlocks; ++i) {
      factors.block[i] = scales_.has_blocks_of_b() ? __ldg(scales_.b + block_[i] + k_block) : 1.0f;
    }
    return factors;
  }

  // sums += part, times its scales.
  template <class Sum, int kRegs>
  __device__ void add(float (&sums)[kRegs], const Sum (&part)[kRegs], const Factors& factors,
                      int k_block) const {
    if (scales_.has_rows_of_b()) return add_columns(sums, part, factors, k_block);
    // A tile of 192 columns has 64 in one block of 128 and 128 in another.
    constexpr int kParts = Tile::kScaledBlocks == 1 ? 1 : Tile::kCols / 64;
    TESSERA_UNROLL
    for (int j = 0; j < kParts; ++j) {
      const bool is_second = j > 0 && (j > 1 || has_odd_tile_);
      const float block = is_second ? factors.block[Tile::kScaledBlocks - 1] : factors.block[0];
      const float factor[2] = {factors.row[0] * block, factors.row[1] * block};
      TESSERA_UNROLL
      for (int i = j * (kRegs / kParts); i < (j + 1) * (kRegs / kParts); ++i) {
        sums[i] = fmaf(static_cast<float>(part[i]), factor[i / 2 % 2], sums[i]);
      }
    }
  }

 private:
  // Every column has its own scale.
  template <class Sum, int kRegs>
  __device__ void add_columns(float (&sums)[kRegs], const Sum (&part)[kRegs],
                              const Factors& factors, int k_block) const {
    TESSERA_UNROLL
    for (int i = 0; i < kRegs; ++i) {
      const int col = min(i / 4 * 8 + i % 2, last_col_);
      const float scale = __ldg(scales_.b + col_ + col * scales_.num_blocks + k_block);
      sums[i] = fmaf(static_cast<float>(part[i]), factors.row[i / 2 % 2] * scale, sums[i]);
    }
  }

  const BlockScales& scales_;
  int last_col_;  // of the product, from the lane's first
  bool has_odd_tile_;
  int col_;  // scales of the lane's first column, where each has its own
  int row_[2];
  int block_[Tile::kScaledBlocks];  // of b, where 128 rows have one
};

}  // namespace tessera::kernels
