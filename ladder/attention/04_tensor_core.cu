// Both products by mma.sync in bf16, and the softmax on its fragments in registers.
// SPDX-License-Identifier: MIT
//
// Changed    A warp owns 16 queries against 64 keys: the scores stay where the tensor cores leave
//            them, their weights are rounded to bf16 in place and become the first operand of the
//            product with V. Tiles of K and V are bf16, swizzled, read by ldmatrix (mma_tile.cuh).
// Cause      The tensor cores multiply at 16 times the rate of step 03's multiply-adds, and no
//            weight passes through shared memory: the layout of a result is the layout of an
//            operand.
// Predicted  2.3 to 2.8 ms: fragments are 36 bytes per score, 39 GB, 1.2 ms at 128 bytes per clock
//            and SM, and writing the tiles 0.3 ms; products 0.9 ms at the 62 % of 989 TFLOPS that
//            mma.sync reaches; exponentials 0.26 ms; 8.6 GB of tiles from L2 1.6 ms at 5.5 TB/s.
//            One after the other that is 4.2 ms. Tiles are loaded between two barriers, and three
//            blocks per SM hide a little less than half: 200 to 240 TFLOPS.
// Measured   2117 us, 259.60 TFLOPS; causal 1138 us, 241.50 TFLOPS (NVIDIA H200)
// Shown by   sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active
// Profiled   40.9 %; step 03: 0.0 %
// Needs      seq a multiple of 64.
#include <cmath>

#include "kernels/attention/softmax.cuh"
#include "kernels/launch.h"
#include "ladder/attention/mma_tile.cuh"
#include "tile/ptx/address.cuh"
#include "tile/reduce.cuh"

namespace tessera::ladder::attention {
namespace {

using Tile = MmaTile;

// The maxima and sums of the two rows that a thread holds of its warp's 16.
struct RowState {
  float largest[2] = {-INFINITY, -INFINITY};
  float sum[2] = {};  // over this thread's columns

  // Turns scores into weights. Returns the factors for everything summed so far.
  __device__ void meet(Tile::Scores& s, float (&shrink)[2]) {
    TESSERA_UNROLL
    for (int half = 0; half < 2; ++half) {
      float top = largest[half];
      TESSERA_UNROLL
      for (const auto& block : s) top = fmaxf(top, fmaxf(block[2 * half], block[2 * half + 1]));
      top = tile::warp_reduce<tile::Max, 4>(top);  // four lanes share a row
      shrink[half] = kernels::exp2_approx((largest[half] - top) * kScaleLog2);
      largest[half] = top;
      sum[half] *= shrink[half];
      TESSERA_UNROLL
      for (auto& block : s) {
        TESSERA_UNROLL
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          block[e] = kernels::softmax_weight(block[e], kScaleLog2, top * kScaleLog2);
          sum[half] += block[e];
        }
      }
    }
  }
};

__global__ void __launch_bounds__(Tile::kThreads, 3) attention_tensor_core_kernel(Problem p) {
  __shared__ Tile::Shared shared;
  // The last queries first: with a causal mask they see the most keys, and short blocks fill the
  // end.
  const int tile = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int64_t base = p.head_offset(static_cast<int>(blockIdx.z), static_cast<int>(blockIdx.y));
  const int64_t rows = base + tile * Tile::kSide * p.row_stride();
  const uint32_t q_tile = tile::ptx::shared_address(shared.q);
  const uint32_t k_tile = tile::ptx::shared_address(shared.k);
  const uint32_t v_tile = tile::ptx::shared_address(shared.v);
  Tile::load(shared.q, p.q + rows, p.row_stride());

  RowState state;
  Tile::Sums sums = {};
  const int num_tiles = p.is_causal ? tile + 1 : p.seq / Tile::kSide;
  for (int keys = 0; keys < num_tiles; ++keys) {
    const int64_t first = base + keys * Tile::kSide * p.row_stride();
    Tile::load(shared.k, p.k + first, p.row_stride());
    Tile::load(shared.v, p.v + first, p.row_stride());
    __syncthreads();
    Tile::Scores s = {};
    Tile::multiply_qk(q_tile, k_tile, s);
    if (p.is_causal && keys == tile) Tile::mask_above_diagonal(s);
    float shrink[2];
    state.meet(s, shrink);
    TESSERA_UNROLL
    for (auto& block : sums) {
      TESSERA_UNROLL
      for (int e = 0; e < 4; ++e) block[e] *= shrink[e / 2];
    }
    Tile::multiply_pv(s, v_tile, sums);
    __syncthreads();
  }
  TESSERA_UNROLL
  for (int half = 0; half < 2; ++half) {
    const float factor = 1.0f / tile::warp_reduce<tile::Sum, 4>(state.sum[half]);
    Tile::store_row(p.out + rows, p.row_stride(), half, sums, factor);
  }
}

}  // namespace

void launch_tensor_core(const Problem& problem, const Context& ctx) {
  kernels::launch(
      attention_tensor_core_kernel,
      {.grid = dim3(static_cast<unsigned>(problem.seq / Tile::kSide),
                    static_cast<unsigned>(problem.heads), static_cast<unsigned>(problem.batch)),
       .block = dim3(Tile::kThreads)},
      problem, ctx);
}

}  // namespace tessera::ladder::attention
