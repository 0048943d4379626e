// The matrix product on tensor cores by mma.sync: sm_80 up.
// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "kernels/gemm/portable/launch.h"
#include "kernels/gemm/portable/load.cuh"
#include "kernels/gemm/portable/params.h"
#include "kernels/gemm/portable/staged.cuh"
#include "kernels/gemm/portable/tile.h"
#include "kernels/launch.h"
#include "tile/fragment.cuh"
#include "tile/ptx/address.cuh"
#include "tile/ptx/ldmatrix.cuh"
#include "tile/ptx/mma.cuh"

namespace tessera::kernels {

// What mma.sync multiplies for operands of type T.
template <class T>
using MmaOperand = std::conditional_t<std::is_same_v<T, float>, tile::ptx::Tf32, T>;

// Floats become tf32 by rounding to nearest, not by losing bits; NaN stays NaN.
// PTX: cvt.rna.tf32.f32.
template <class T, int kRegs>
__device__ void round_operand(uint32_t (&fragment)[kRegs]) {
  if constexpr (std::is_same_v<T, float>) {
    TESSERA_UNROLL
    for (int i = 0; i < kRegs; ++i) {
      asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(fragment[i]) : "f"(__uint_as_float(fragment[i])));
    }
  }
}

// A warp's part of a tile: accumulators, and the fragments of one step.
template <class T, MmaTile kTile>
class WarpProduct {
  static constexpr int kBlocksM = kTile.warp_m() / 16;
  static constexpr int kBlocksN = kTile.warp_n() / 8;
  static constexpr int kSubsteps = kTile.k_bytes / 32;
  static_assert(kTile.warp_m() % 16 == 0 && kTile.warp_n() % 16 == 0);

 public:
  __device__ explicit WarpProduct(int thread) : lane_(thread % 32) {
    const int warp = thread / 32;
    row_ = warp / kTile.warps_n * kTile.warp_m();
    col_ = warp % kTile.warps_n * kTile.warp_n();
    a_offset_ = offset_of(row_, tile::matrix_row_16x32(lane_));
    b_offset_ = kTile.m * kTile.k_bytes + offset_of(col_, tile::matrix_row_two_8x32(lane_));
  }

  // Adds the stage at this shared address, 32 bytes of k at a time. The fragments of the next 32
  // are on their way while those in hand are multiplied.
  __device__ void add(uint32_t stage) {
    load(stage, 0);
    TESSERA_UNROLL
    for (int substep = 0; substep < kSubsteps; ++substep) {
      if (substep + 1 < kSubsteps) load(stage, substep + 1);
      multiply(substep % 2);
    }
  }

  __device__ void stage(StagedTile<kTile.m, kTile.n>& tile) const {
    TESSERA_UNROLL
    for (int i = 0; i < kBlocksM; ++i) {
      TESSERA_UNROLL
      for (int j = 0; j < kBlocksN; ++j) {
        TESSERA_UNROLL
        for (int half = 0; half < 2; ++half) {
          float* at = tile.at(row_ + 16 * i + lane_ / 4 + 8 * half, col_ + 8 * j + 2 * (lane_ % 4));
          *reinterpret_cast<float2*>(at) = {d_[i][j][2 * half], d_[i][j][2 * half + 1]};
        }
      }
    }
  }

 private:
  __device__ static uint32_t offset_of(int first_row, tile::MatrixRow at) {
    return tile::swizzled(kRowSwizzle<kTile.k_bytes>,
                          static_cast<uint32_t>((first_row + at.row) * kTile.k_bytes + at.byte));
  }

  // Blocks are 16 rows apart, whole periods of the swizzle, and a substep moves by whole pairs of
  // chunks: both only change the offset of the first.
  __device__ void load(uint32_t stage, int substep) {
    const int buffer = substep % 2;
    const uint32_t a = stage + (a_offset_ ^ static_cast<uint32_t>(32 * substep));
    const uint32_t b = stage + (b_offset_ ^ static_cast<uint32_t>(32 * substep));
    TESSERA_UNROLL
    for (int i = 0; i < kBlocksM; ++i) {
      tile::ptx::ldmatrix(a_[buffer][i], a + i * 16 * kTile.k_bytes);
    }
    TESSERA_UNROLL
    for (int j = 0; j < kBlocksN / 2; ++j) {
      tile::ptx::ldmatrix(b_[buffer][j], b + j * 16 * kTile.k_bytes);
    }
  }

  __device__ void multiply(int buffer) {
    TESSERA_UNROLL
    for (int i = 0; i < kBlocksM; ++i) round_operand<T>(a_[buffer][i]);
    TESSERA_UNROLL
    for (int j = 0; j < kBlocksN / 2; ++j) round_operand<T>(b_[buffer][j]);
    TESSERA_UNROLL
    for (int j = 0; j < kBlocksN; ++j) {
      const uint32_t(&pair)[4] = b_[buffer][j / 2];
      const uint32_t b[2] = {pair[j % 2 * 2], pair[j % 2 * 2 + 1]};
      TESSERA_UNROLL
      for (int i = 0; i < kBlocksM; ++i) {
        tile::ptx::mma<MmaOperand<T>>(d_[i][j], a_[buffer][i], b);
      }
    }
  }

  int lane_;
  int row_;  // where the warp's part of the tile begins
  int col_;
  uint32_t a_offset_;  // of this lane's first row of a and b for ldmatrix, in a stage
  uint32_t b_offset_;
  uint32_t a_[2][kBlocksM][4];
  uint32_t b_[2][kBlocksN / 2][4];
  float d_[kBlocksM][kBlocksN][4] = {};
};

template <MmaTile kTile>
union MmaShared {
  alignas(128) unsigned char stages[kTile.num_stages][kTile.stage_bytes()];
  StagedTile<kTile.m, kTile.n> out;
};

// D = epilogue(A . B^T) by mma.sync m16n8k16 (16-bit) or m16n8k8 (tf32), accumulated in float.
//
// Work      One block computes kTile.m x kTile.n of one product; each warp a part of it, in
//           registers. Blocks are numbered in strips of 8 tiles (tile_at).
// Pipeline  A ring of num_stages steps of k. While a step is multiplied, those after it are on
//           their way by cp.async; one barrier a step says both that the next has landed and that
//           the slot about to be filled has been read. Rows lie swizzled, so that ldmatrix meets no
//           bank conflict.
// Output    Each element is one chain of products over k in order, in steps of 32 bytes; what lies
//           beyond k is zeros. So its bits depend on its row of a and of b alone, not on the tile.
// Cost      2 m n k flop, and for each tile (m + n) k elements, from L2 where the order of the
//           tiles has them. docs/kernels/gemm_portable.md
// Needs     Rows of a and b aligned to 16 bytes for ChunkLoader; nothing for ElementLoader.
template <class T, class Tile, template <class, int, int, int> class Loader>
__global__ void __launch_bounds__(Tile::kShape.num_threads(), Tile::kShape.min_blocks)
    gemm_mma_kernel(const __grid_constant__ PortableGemmParams p) {
  constexpr MmaTile kTile = Tile::kShape;
  using Shared = MmaShared<kTile>;
  constexpr int kThreads = kTile.num_threads();
  constexpr int kStepElements = kTile.k_bytes / static_cast<int>(sizeof(T));
  extern __shared__ __align__(128) unsigned char dynamic[];
  Shared& shared = *reinterpret_cast<Shared*>(dynamic);
  const int thread = static_cast<int>(threadIdx.x);
  const TileIndex tile = tile_at(static_cast<int>(blockIdx.x), p.tiles_m, p.tiles_n);
  const int row = tile.m * kTile.m;
  const int col = tile.n * kTile.n;
  const T* a = static_cast<const T*>(p.a) + tile.batch * p.a_batch_stride + row * p.a_stride;
  const T* b = static_cast<const T*>(p.b) + tile.batch * p.b_batch_stride + col * p.b_stride;
  Loader<T, kTile.m, kTile.k_bytes, kThreads> a_loader({a, p.a_stride, p.epilogue.m - row, p.k},
                                                       thread);
  Loader<T, kTile.n, kTile.k_bytes, kThreads> b_loader({b, p.b_stride, p.epilogue.n - col, p.k},
                                                       thread);
  WarpProduct<T, kTile> product(thread);

  const uint32_t first_stage = tile::ptx::shared_address(shared.stages);
  const auto stage_at = [&](int slot) { return first_stage + slot * kTile.stage_bytes(); };
  const auto fetch = [&](uint32_t stage) {
    a_loader.fetch(stage);
    b_loader.fetch(stage + kTile.m * kTile.k_bytes);
  };
  const auto deposit = [&](uint32_t stage) {
    a_loader.deposit(stage);
    b_loader.deposit(stage + kTile.m * kTile.k_bytes);
  };

  // Groups are committed also where nothing is left to fetch, so that the count of groups in flight
  // tells which step has landed. Steps beyond k are zeros.
  const int num_steps = (p.k + kStepElements - 1) / kStepElements;
  TESSERA_UNROLL
  for (int slot = 0; slot < kTile.num_stages - 1; ++slot) {
    if (slot < num_steps) {
      fetch(stage_at(slot));
      deposit(stage_at(slot));
    }
    tile::ptx::cp_async_commit_group();
  }
  int read_slot = 0;
  int write_slot = kTile.num_stages - 1;
  const auto advance = [&](int slot) { return slot + 1 == kTile.num_stages ? 0 : slot + 1; };
  for (int step = 0; step < num_steps; ++step) {
    tile::ptx::cp_async_wait_group<kTile.num_stages - 2>();
    __syncthreads();
    const bool has_next = step + kTile.num_stages - 1 < num_steps;
    if (has_next) fetch(stage_at(write_slot));
    tile::ptx::cp_async_commit_group();
    product.add(stage_at(read_slot));
    if (has_next) deposit(stage_at(write_slot));
    read_slot = advance(read_slot);
    write_slot = advance(write_slot);
  }

  __syncthreads();  // every warp has read the last stage
  product.stage(shared.out);
  __syncthreads();
  finish_tile<T>(shared.out, p.epilogue, row, col, tile.batch);
}

template <class T, class Tile, template <class, int, int, int> class Loader>
void launch_mma_tile(const GemmArgs& args, const Context& ctx) {
  constexpr MmaTile kTile = Tile::kShape;
  const TileCounts tiles = count_tiles(product_size(args), kTile.m, kTile.n);
  if (tiles.total() == 0) return;
  launch(&gemm_mma_kernel<T, Tile, Loader>,
         {.grid = dim3(static_cast<unsigned>(tiles.total())),
          .block = dim3(kTile.num_threads()),
          .shared_bytes = sizeof(MmaShared<kTile>)},
         portable_gemm_params(args, tiles), ctx);
}

template <class T>
void launch_gemm_mma(const GemmArgs& args, const Context& ctx) {
  const MmaTile tile = choose_mma_tile(product_size(args), device_info(args.a.device).num_sms);
  if (tile == MmaLarge::kShape) return launch_mma_tile<T, MmaLarge, ChunkLoader>(args, ctx);
  if (tile == MmaSmall::kShape) return launch_mma_tile<T, MmaSmall, ChunkLoader>(args, ctx);
  launch_mma_tile<T, MmaNarrow, ChunkLoader>(args, ctx);
}

// One tile serves: this is for what must run, not for what must be quick.
template <class T>
void launch_gemm_mma_unaligned(const GemmArgs& args, const Context& ctx) {
  launch_mma_tile<T, MmaSmall, ElementLoader>(args, ctx);
}

}  // namespace tessera::kernels
