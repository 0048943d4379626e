// mma.sync by hand: ldmatrix from a swizzled tile, without bank conflicts.
// SPDX-License-Identifier: MIT
//
// Changed    mma_tile.cuh: the position of a 16-byte chunk in its row is xored with the row number;
//            fragments are loaded by ldmatrix. Their layout is known, so sums are rounded and
//            stored directly from registers.
// Cause      The same 16-byte column of 8 rows then lies in 8 different groups of banks: the 8
//            clocks of step 07 become 1. No padding is needed, and sums do not pass through shared
//            memory.
// Predicted  For 16 of k a block reads 128 clocks' worth of shared memory, and its mma.sync take
//            128 clocks at peak, about 200 at the two thirds of it that mma.sync reaches on Hopper.
//            But tiles are still loaded between two barriers, and two blocks per SM hide half of
//            that: 250 to 350 TFLOPS.
// Measured   681.5 us, 201.70 TFLOPS, 30.6 % of cuBLAS (NVIDIA H200, 4096 cubed)
// Shown by   l1tex__data_bank_conflicts_pipe_lsu.sum
// Profiled   1.7 M; step 07: 237.1 M
// Needs      m and n multiples of 128, k of 64.
#include "kernels/launch.h"
#include "ladder/gemm/mma_tile.cuh"
#include "tile/ptx/address.cuh"

namespace tessera::ladder {
namespace {

// `data` is [rows, num_k] at the tile's first element.
__device__ void load_tile(unsigned char* tile, const Bf16* data, int num_k) {
  MmaTile::for_each_chunk([&](uint32_t offset, int row, int k) {
    *reinterpret_cast<uint4*>(tile + offset) =
        *reinterpret_cast<const uint4*>(data + static_cast<int64_t>(row) * num_k + k);
  });
}

__global__ void __launch_bounds__(MmaTile::kThreads, 2) gemm_mma_swizzle_kernel(Operands<Bf16> p) {
  __shared__ MmaTile::Stage stage;
  const uint32_t a_tile = tile::ptx::shared_address(stage.a);
  const uint32_t b_tile = tile::ptx::shared_address(stage.b);
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * MmaTile::kTile;
  const int64_t first_col = static_cast<int64_t>(blockIdx.x) * MmaTile::kTile;
  MmaTile::Sums sums = {};
  for (int k = 0; k < p.k; k += MmaTile::kTileK) {
    load_tile(stage.a, p.a + first_row * p.k + k, p.k);
    load_tile(stage.b, p.b + first_col * p.k + k, p.k);
    __syncthreads();
    MmaTile::multiply(a_tile, b_tile, sums);
    __syncthreads();
  }
  MmaTile::store(sums, p.d + first_row * p.n + first_col, p.n);
}

}  // namespace

void launch_mma_swizzle(const Problem& problem, const Context& ctx) {
  const auto num_tiles = [](int size) { return static_cast<unsigned>(size / MmaTile::kTile); };
  kernels::launch(
      gemm_mma_swizzle_kernel,
      {.grid = dim3(num_tiles(problem.n), num_tiles(problem.m)), .block = dim3(MmaTile::kThreads)},
      Operands<Bf16>(problem), ctx);
}

}  // namespace tessera::ladder
