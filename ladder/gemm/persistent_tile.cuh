// What the persistent steps 12 and 13 share: the block, the order of tiles, sums leaving by TMA.
// SPDX-License-Identifier: MIT
#pragma once

#include "ladder/gemm/wgmma_tile.cuh"
#include "tile/pipeline.cuh"
#include "tile/ptx/address.cuh"
#include "tile/ptx/barrier.cuh"
#include "tile/ptx/mbarrier.cuh"
#include "tile/ptx/stmatrix.cuh"
#include "tile/ptx/tma_tensor.cuh"

namespace tessera::ladder {

struct TileIndex {
  int row;
  int col;
};

// Tile `index` of a grid, walked in bands of `band` rows, column by column within a band: what runs
// at the same time is then nearly square, and reads the fewest different rows of a and b.
__host__ __device__ constexpr TileIndex tile_at(int index, int num_rows, int num_cols, int band) {
  const int first = index / (band * num_cols) * band;
  const int height = num_rows - first < band ? num_rows - first : band;
  const int in_band = index - first * num_cols;
  return {first + in_band % height, in_band / height};
}

// A warpgroup's 64 x 256 sums, rounded, as four boxes of 64 columns.
inline constexpr int kStoreCols = 256;
struct alignas(1024) Staging {
  unsigned char bytes[kGroupRows * kStoreCols * sizeof(Bf16)];
};

// Rounds a warpgroup's sums into `staging` and starts their copy to rows `row` on, columns `col`
// on; the copy goes on while the caller continues. `barrier` is the warpgroup's own.
__device__ __forceinline__ void store_staged(const float (&sums)[kStoreCols / 2], Staging& staging,
                                             const CUtensorMap* d_map, int row, int col,
                                             int barrier) {
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  const uint32_t base = tile::ptx::shared_address(staging.bytes);
  if (thread == 0) tile::ptx::bulk_wait_group_read<0>();  // the tile before has left
  tile::ptx::bar_sync(barrier, kGroupThreads);
  const tile::MatrixRow at = tile::matrix_row_16x32(thread % 32);
  TESSERA_UNROLL
  for (int i = 0; i < kStoreCols / 16; ++i) {
    uint32_t packed[4];  // 16 rows by 16 columns of the warp
    tile::accumulator_to_a<Bf16>(sums, i, packed);
    const int warp_row = thread / 32 * 16 + at.row;
    tile::ptx::stmatrix(base + tile::slab_offset(kSwizzle, kGroupRows, warp_row, 32 * i + at.byte),
                        packed);
  }
  tile::ptx::fence_proxy_async_shared();
  tile::ptx::bar_sync(barrier, kGroupThreads);
  if (thread != 0) return;
  constexpr int kBoxBytes = kGroupRows * kRowBytes;
  TESSERA_UNROLL
  for (int box = 0; box < kStoreCols / 64; ++box) {
    tile::ptx::tensor_store(d_map, tile::ptx::Coord{col + 64 * box, row},
                            base + static_cast<uint32_t>(box * kBoxBytes));
  }
  tile::ptx::bulk_commit_group();
}

inline constexpr int kTileM = 128;
inline constexpr int kTileN = kStoreCols;
inline constexpr int kStages = 3;
inline constexpr int kConsumerWarps = 8;
inline constexpr int kThreads = 3 * kGroupThreads;

using Ring = tile::Pipeline<kStages>;

struct Storage {
  OperandStage<kTileM, kTileN> stages[kStages];
  Staging staging[2];
  Ring::Barriers barriers;
};

// Warpgroup `half` of the consumers multiplies rows 64 * half on, over all of k. release(state)
// says that this warp has read a stage.
template <class F>
__device__ __forceinline__ void multiply_tile(float (&sums)[kTileN / 2], int num_k,
                                              Storage& storage, const Ring& ring,
                                              Ring::State& state, int half, const F& release) {
  for (int k = 0; k < num_k; k += kStageK, state.advance()) {
    auto& stage = storage.stages[state.index];
    const uint32_t a = tile::ptx::shared_address(stage.a.bytes + half * kGroupRows * kRowBytes);
    ring.consumer_wait(state);
    tile::ptx::wgmma_fence();
    issue_products(sums, a, tile::ptx::shared_address(stage.b.bytes), k > 0);
    tile::ptx::wgmma_commit_group();
    tile::ptx::wgmma_wait_group<0>();
    release(state);
  }
  tile::ptx::wgmma_hold(sums);
}

// Shared memory must outlive the copies that read it.
__device__ __forceinline__ void finish_stores() {
  if (threadIdx.x % kGroupThreads == 0) tile::ptx::bulk_wait_group<0>();
}

}  // namespace tessera::ladder
