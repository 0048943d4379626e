// Tiles of 64 queries and 64 keys in shared memory, 16 scores and 32 sums a thread in registers.
// SPDX-License-Identifier: MIT
//
// Changed    A block owns 64 queries. Tiles of K, then of V, come into shared memory as f32
//            (f32_tile.cuh); a thread computes 4 x 4 scores, leaves their weights in shared memory,
//            and adds to 4 x 8 sums. The maximum of a row is updated, and its sums rescaled, once
//            per 64 keys.
// Cause      A value read from shared memory serves four or eight multiply-adds; a value read from
//            L2 and converted serves 64 queries. Multiply-adds become the larger part of all
//            instructions.
// Predicted  14 to 18 ms: per tile a thread issues 4096 FFMA, 448 loads of 16 bytes from shared
//            memory and about 350 instructions for the softmax and the tiles, so at most 84 % of 60
//            TFLOPS, 11 ms, if the four barriers of a tile and the loads between them were free.
//            They are not, and only a second block on the SM hides them: 30 to 40 TFLOPS.
// Measured   16680 us, 32.95 TFLOPS; causal 8620 us, 31.90 TFLOPS (NVIDIA H200)
// Shown by   sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active
// Profiled   52.0 %; step 02: 41.6 %
// Needs      seq a multiple of 64.
#include <cmath>

#include "kernels/attention/softmax.cuh"
#include "kernels/launch.h"
#include "ladder/attention/f32_tile.cuh"
#include "tile/reduce.cuh"

namespace tessera::ladder::attention {
namespace {

using Tile = F32Tile;

__global__ void __launch_bounds__(Tile::kThreads, 2) attention_tiled_kernel(Problem p) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  auto& shared = *reinterpret_cast<Tile::Shared*>(dynamic);
  // The last queries first: with a causal mask they see the most keys, and short blocks fill the
  // end.
  const int tile = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int64_t base = p.head_offset(static_cast<int>(blockIdx.z), static_cast<int>(blockIdx.y));
  Tile::load(shared.q, p.q + base + tile * Tile::kSide * p.row_stride(), p.row_stride(),
             kScaleLog2);

  float largest[Tile::kRows];   // of each of this thread's queries, over all keys so far
  float sum[Tile::kRows] = {};  // over the keys of this thread
  Tile::Sums sums = {};
  TESSERA_UNROLL
  for (float& value : largest) value = -INFINITY;
  const int num_tiles = p.is_causal ? tile + 1 : p.seq / Tile::kSide;
  for (int keys = 0; keys < num_tiles; ++keys) {
    const int64_t first = base + keys * Tile::kSide * p.row_stride();
    Tile::load(shared.kv, p.k + first, p.row_stride(), 1.0f);
    __syncthreads();
    Tile::Scores s = {};
    Tile::multiply_qk(shared, s);
    if (p.is_causal && keys == tile) Tile::mask_above_diagonal(s);
    TESSERA_UNROLL
    for (int i = 0; i < Tile::kRows; ++i) {
      const float before = largest[i];
      TESSERA_UNROLL
      for (const float score : s[i]) largest[i] = fmaxf(largest[i], score);
      largest[i] = tile::warp_reduce<tile::Max, Tile::kX>(largest[i]);
      const float shrink = kernels::exp2_approx(before - largest[i]);
      sum[i] *= shrink;
      TESSERA_UNROLL
      for (float& value : sums[i]) value *= shrink;
      TESSERA_UNROLL
      for (float& score : s[i]) {
        score = kernels::exp2_approx(score - largest[i]);
        sum[i] += score;
      }
    }
    Tile::leave_weights(shared, s);
    __syncthreads();  // K has been read, and V takes its place
    Tile::load(shared.kv, p.v + first, p.row_stride(), 1.0f);
    __syncthreads();
    Tile::multiply_pv(shared, sums);
    __syncthreads();
  }
  TESSERA_UNROLL
  for (int i = 0; i < Tile::kRows; ++i) {
    const float factor = 1.0f / tile::warp_reduce<tile::Sum, Tile::kX>(sum[i]);
    Tile::store_row(p.out + base + tile * Tile::kSide * p.row_stride(), p.row_stride(), i, sums[i],
                    factor);
  }
}

}  // namespace

void launch_tiled(const Problem& problem, const Context& ctx) {
  kernels::launch(
      attention_tiled_kernel,
      {.grid = dim3(static_cast<unsigned>(problem.seq / Tile::kSide),
                    static_cast<unsigned>(problem.heads), static_cast<unsigned>(problem.batch)),
       .block = dim3(Tile::kThreads),
       .shared_bytes = sizeof(Tile::Shared)},
      problem, ctx);
}

}  // namespace tessera::ladder::attention
