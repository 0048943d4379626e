// The matrix product of f32 on CUDA cores.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/gemm/portable/launch.h"
#include "kernels/gemm/portable/params.h"
#include "kernels/gemm/portable/staged.cuh"
#include "kernels/gemm/portable/tile.h"
#include "kernels/launch.h"

namespace tessera::kernels {

// One operand's step of k, turned: [kDepth][rows], so that a thread's rows at one k are one load.
// A line is 4 floats longer than the rows: the two chunks of k of 16 rows that a warp stores at
// once then fall into different banks.
template <int kRows, int kDepth>
struct TurnedTile {
  static constexpr int kLine = kRows + 4;
  alignas(16) float values[kDepth * kLine];
};

// Brings kRows rows by kDepth of k from global to shared memory, four elements of k at a time,
// through registers. Two lanes read the 32 bytes of a sector.
template <int kRows, int kDepth, int kThreads, bool kIsAligned>
class TurningLoader {
  static constexpr int kHalf = kThreads / 2;  // rows read at once
  static constexpr int kQuads = kRows * kDepth / 4 / kThreads;
  static constexpr int kOwnRows = kRows > kHalf ? kRows / kHalf : 1;
  static_assert(kDepth % 8 == 0 && kRows * kDepth % (4 * kThreads) == 0);
  static_assert(kRows % kHalf == 0 || kHalf % kRows == 0);

 public:
  using Turned = TurnedTile<kRows, kDepth>;

  // Rows beyond the last are the last again: what comes of them is not stored.
  __device__ TurningLoader(const float* data, int64_t stride, int num_rows, unsigned thread)
      : row_(static_cast<int>(thread / 2 % kRows)),
        depth_(static_cast<int>(thread / 2 / kRows * 8 + thread % 2 * 4)) {
    TESSERA_UNROLL
    for (int i = 0; i < kOwnRows; ++i) {
      source_[i] = data + min(row_ + i * kHalf, num_rows - 1) * stride + depth_;
    }
  }

  // Reads the next step into registers. `k_left` elements of k remain, the step's own included;
  // the rest of the step is zeros. The whole step is the same question for all threads of a block.
  __device__ void fetch(int k_left) {
    if (k_left >= kDepth) {
      fetch_whole();
    } else {
      fetch_part(k_left - depth_);
    }
    TESSERA_UNROLL
    for (int i = 0; i < kOwnRows; ++i) source_[i] += kDepth;
  }

  __device__ void deposit(Turned& tile) const {
    TESSERA_UNROLL
    for (int i = 0; i < kQuads; ++i) {
      float* at =
          tile.values + (depth_ + depth_of(i)) * Turned::kLine + row_ + i % kOwnRows * kHalf;
      TESSERA_UNROLL
      for (int e = 0; e < 4; ++e) at[e * Turned::kLine] = values_[i][e];
    }
  }

 private:
  // Chunk i beside the first: all rows, then the next depth.
  __device__ static constexpr int depth_of(int i) { return kHalf * i / kRows * 8; }

  __device__ void fetch_whole() {
    TESSERA_UNROLL
    for (int i = 0; i < kQuads; ++i) {
      const float* at = source_[i % kOwnRows] + depth_of(i);
      if constexpr (kIsAligned) {
        *reinterpret_cast<float4*>(values_[i]) = *reinterpret_cast<const float4*>(at);
      } else {
        TESSERA_UNROLL
        for (int e = 0; e < 4; ++e) values_[i][e] = at[e];
      }
    }
  }
  __device__ void fetch_part(int k_left) {
    TESSERA_UNROLL
    for (int i = 0; i < kQuads; ++i) {
      TESSERA_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int depth = depth_of(i) + e;
        values_[i][e] = depth < k_left ? source_[i % kOwnRows][depth] : 0.0f;
      }
    }
  }

  int row_;
  int depth_;
  const float* source_[kOwnRows];
  alignas(16) float values_[kQuads][4];
};

template <SimtTile kTile>
struct SimtStage {
  TurnedTile<kTile.m(), kTile.k> a;
  TurnedTile<kTile.n(), kTile.k> b;
};
template <SimtTile kTile>
union SimtShared {
  SimtStage<kTile> stages[2];
  StagedTile<kTile.strip_m(), kTile.n()> out;
};

// A thread's part of a tile. The lanes of a warp are 4 along m and 8 along n, numbered so that of
// neighbours by 1 and by 2 the one pair shares its columns and the other its rows: a load of 16
// bytes a lane then takes two passes through shared memory, not four.
template <SimtTile kTile>
class ThreadProduct {
  static constexpr int kM = 4 * kTile.quads_m;
  static constexpr int kN = 4 * kTile.quads_n;

 public:
  __device__ explicit ThreadProduct(unsigned thread) {
    const int lane = static_cast<int>(thread % 32);
    const int warp = static_cast<int>(thread / 32);
    row_ = warp / kTile.warps_n * 16 + 4 * (lane / 2 % 2 + lane / 8 % 2 * 2);
    col_ = warp % kTile.warps_n * 32 + 4 * (lane % 2 + lane / 4 % 2 * 2 + lane / 16 * 4);
  }

  __device__ void load(const SimtStage<kTile>& stage, int depth, int buffer) {
    load_quads(stage.a, kTile.strip_m(), row_, depth, a_[buffer]);
    load_quads(stage.b, kTile.strip_n(), col_, depth, b_[buffer]);
  }

  // The outer product of one k. The walk turns at the end of each column, so that each product
  // shares a factor with the one before: the register file then delivers two operands, not three.
  __device__ void multiply(int buffer) {
    TESSERA_UNROLL
    for (int j = 0; j < kN; ++j) {
      TESSERA_UNROLL
      for (int step = 0; step < kM; ++step) {
        const int i = j % 2 == 0 ? step : kM - 1 - step;
        d_[i][j] = fmaf(a_[buffer][i], b_[buffer][j], d_[i][j]);
      }
    }
  }

  // Strip `strip` of the tile: the rows of one quad of every thread. Stored one by one: a store of
  // four would tie the accumulators to neighbouring registers, and then to the banks of the factors
  // they meet in the loop.
  __device__ void stage(StagedTile<kTile.strip_m(), kTile.n()>& tile, int strip) const {
    TESSERA_UNROLL
    for (int q = 0; q < kTile.quads_m; ++q) {
      if (q != strip) continue;  // registers cannot be indexed by a variable
      TESSERA_UNROLL
      for (int i = 0; i < 4; ++i) {
        TESSERA_UNROLL
        for (int j = 0; j < kN; ++j) {
          volatile float* at = tile.at(row_ + i, col_ + j / 4 * kTile.strip_n()) + j % 4;
          *at = d_[4 * q + i][j];
        }
      }
    }
  }

 private:
  template <int kRows, int kDepth, int kCount>
  __device__ static void load_quads(const TurnedTile<kRows, kDepth>& tile, int strip, int first,
                                    int depth, float (&out)[kCount]) {
    TESSERA_UNROLL
    for (int q = 0; q < kCount / 4; ++q) {
      const float4 quad = *reinterpret_cast<const float4*>(
          tile.values + depth * TurnedTile<kRows, kDepth>::kLine + q * strip + first);
      out[4 * q] = quad.x;
      out[4 * q + 1] = quad.y;
      out[4 * q + 2] = quad.z;
      out[4 * q + 3] = quad.w;
    }
  }

  int row_;  // of the first quad, in the tile
  int col_;
  float a_[2][kM];
  float b_[2][kN];
  float d_[kM][kN] = {};
};

// D = epilogue(A . B^T) in f32 by fused multiply-adds.
//
// Work      One block computes kTile.m() x kTile.n() of one product, a thread 8 x 8 or 8 x 16 of it
//           as quads. Blocks are numbered in strips of 8 tiles (tile_at).
// Pipeline  Two stages of a few k in shared memory, turned so that a thread's rows at one k lie
//           together. The next step is read into registers before this one is multiplied and
//           stored after it; the quads of the next k are loaded while those of this k multiply.
// Output    Each element is one chain of fma over k in order, whatever the tile; beyond k zeros.
// Cost      2 m n k flop at 128 fma a clock and SM. Of the instructions issued, 64 of 68 (8 x 8) or
//           128 of 134 (8 x 16) multiply, and a few more carry the next step; docs/kernels/
//           gemm_portable.md counts them.
// Needs     Rows of a and b aligned to 16 bytes if kIsAligned.
template <class Tile, bool kIsAligned>
__global__ void __launch_bounds__(Tile::kShape.num_threads(), Tile::kShape.min_blocks)
    gemm_f32_kernel(const __grid_constant__ PortableGemmParams p) {
  constexpr SimtTile kTile = Tile::kShape;
  using Shared = SimtShared<kTile>;
  extern __shared__ __align__(128) unsigned char dynamic[];
  Shared& shared = *reinterpret_cast<Shared*>(dynamic);
  const TileIndex tile = tile_at(static_cast<int>(blockIdx.x), p.tiles_m, p.tiles_n);
  const int row = tile.m * kTile.m();
  const int col = tile.n * kTile.n();
  const float* a =
      static_cast<const float*>(p.a) + tile.batch * p.a_batch_stride + row * p.a_stride;
  const float* b =
      static_cast<const float*>(p.b) + tile.batch * p.b_batch_stride + col * p.b_stride;
  TurningLoader<kTile.m(), kTile.k, kTile.num_threads(), kIsAligned> a_loader(
      a, p.a_stride, p.epilogue.m - row, threadIdx.x);
  TurningLoader<kTile.n(), kTile.k, kTile.num_threads(), kIsAligned> b_loader(
      b, p.b_stride, p.epilogue.n - col, threadIdx.x);
  ThreadProduct<kTile> product(threadIdx.x);

  int slot = 0;
  if (p.k > 0) {
    a_loader.fetch(p.k);
    b_loader.fetch(p.k);
    a_loader.deposit(shared.stages[0].a);
    b_loader.deposit(shared.stages[0].b);
    __syncthreads();
    product.load(shared.stages[0], 0, 0);
  }
  for (int k_left = p.k; k_left > 0; k_left -= kTile.k) {
    const bool has_next = k_left > kTile.k;
    if (has_next) {
      a_loader.fetch(k_left - kTile.k);
      b_loader.fetch(k_left - kTile.k);
    }
    TESSERA_UNROLL
    for (int depth = 0; depth < kTile.k; ++depth) {
      if (depth + 1 < kTile.k) {
        product.load(shared.stages[slot], depth + 1, (depth + 1) % 2);
      } else if (has_next) {
        // The other stage was last read before the barrier of the step before.
        slot ^= 1;
        a_loader.deposit(shared.stages[slot].a);
        b_loader.deposit(shared.stages[slot].b);
        __syncthreads();
        product.load(shared.stages[slot], 0, 0);
      }
      product.multiply(depth % 2);
    }
  }

  for (int strip = 0; strip < kTile.quads_m; ++strip) {
    __syncthreads();  // the stages, or the strip before, have been read
    product.stage(shared.out, strip);
    __syncthreads();
    finish_tile<float>(shared.out, p.epilogue, row + strip * kTile.strip_m(), col, tile.batch);
  }
}

template <class Tile, bool kIsAligned>
void launch_simt(const GemmArgs& args, const Context& ctx) {
  constexpr SimtTile kTile = Tile::kShape;
  const TileCounts tiles = count_tiles(product_size(args), kTile.m(), kTile.n());
  if (tiles.total() == 0) return;
  launch(&gemm_f32_kernel<Tile, kIsAligned>,
         {.grid = dim3(static_cast<unsigned>(tiles.total())),
          .block = dim3(kTile.num_threads()),
          .shared_bytes = sizeof(SimtShared<kTile>)},
         portable_gemm_params(args, tiles), ctx);
}

template <bool kIsAligned>
void launch_simt_chosen(const GemmArgs& args, const Context& ctx) {
  const SimtTile tile = choose_simt_tile(product_size(args), device_info(args.a.device).num_sms);
  if (tile == SimtLarge::kShape) return launch_simt<SimtLarge, kIsAligned>(args, ctx);
  launch_simt<SimtSmall, kIsAligned>(args, ctx);
}

template <class Tile>
void launch_gemm_f32_tile(const GemmArgs& args, const Context& ctx) {
  launch_simt<Tile, true>(args, ctx);
}

}  // namespace tessera::kernels
