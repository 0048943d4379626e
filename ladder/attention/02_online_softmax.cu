// One pass: a running maximum and sum take the place of the matrix of scores.
// SPDX-License-Identifier: MIT
//
// Changed    Eight lanes own a query, 16 elements each, and go over the keys once: compute the
//            score, update the maximum, compute the weight, and add the weighted value to the
//            running sum, which is rescaled when the maximum grows. At the end the sum is divided
//            by the sum of the weights.
// Cause      A score exists only in a register: no memory of seq^2, one kernel. A row of k is read
//            as two whole lines, which serve the four queries of a warp.
// Predicted  26 to 30 ms: per key a warp issues 32 multiply-adds and 16 multiplications to rescale,
//            32 conversions from bf16, 4 loads, 6 instructions for the sum over eight lanes and
//            about 12 for the softmax and the loop: 102 for 4 scores. 1.07 G scores at 4
//            instructions per clock on 132 SMs at 1.98 GHz: 26 ms, 21 TFLOPS, if there are enough
//            warps to hide the dependent instructions of each key.
// Measured   38760 us, 14.18 TFLOPS; causal 21460 us, 12.81 TFLOPS (NVIDIA H200)
// Shown by   smsp__issue_active.avg.pct_of_peak_sustained_active
// Profiled   71.7 %; step 01: 22.9 %
// Needs      Any seq.
#include <cmath>

#include "kernels/attention/softmax.cuh"
#include "kernels/launch.h"
#include "ladder/attention/steps.h"
#include "tile/reduce.cuh"
#include "tile/vec.cuh"

namespace tessera::ladder::attention {
namespace {

constexpr int kThreads = 256;
constexpr int kLanes = 8;  // of a query
constexpr int kQueriesPerBlock = kThreads / kLanes;
constexpr int kQueriesPerWarp = 32 / kLanes;
constexpr int kVec = 8;                      // elements of 16 bytes
constexpr int kPerLane = kHeadDim / kLanes;  // in vectors that lie kLanes apart
constexpr int kVectors = kPerLane / kVec;
constexpr int kVectorStep = kLanes * kVec;

// This lane's part of a row; `row` is at the lane's first element.
__device__ void load_part(const Bf16* row, float (&part)[kVectors][kVec]) {
  TESSERA_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    tile::Vec<Bf16, kVec>::load(row + i * kVectorStep).to_floats(part[i]);
  }
}

__global__ void __launch_bounds__(kThreads) attention_online_softmax_kernel(Problem p) {
  const int query = static_cast<int>(blockIdx.x * kQueriesPerBlock + threadIdx.x / kLanes);
  // Lanes beyond the last query repeat it, because the shuffles need all lanes.
  const int row = min(query, p.seq - 1);
  const int64_t base = p.head_offset(static_cast<int>(blockIdx.z), static_cast<int>(blockIdx.y)) +
                       threadIdx.x % kLanes * kVec;
  float q[kVectors][kVec];
  load_part(p.q + base + row * p.row_stride(), q);
  // All queries of a warp go over as many keys as its last one.
  const int last_of_warp = query - query % kQueriesPerWarp + kQueriesPerWarp - 1;
  const int warp_keys = p.num_keys(min(last_of_warp, p.seq - 1));
  const int num_keys = p.num_keys(row);

  float largest = -INFINITY;  // finite from key 0 on, which every query sees
  float sum = 0;
  float out[kVectors][kVec] = {};
  for (int key = 0; key < warp_keys; ++key) {
    float k[kVectors][kVec];
    float v[kVectors][kVec];
    load_part(p.k + base + key * p.row_stride(), k);
    load_part(p.v + base + key * p.row_stride(), v);
    float score = 0;
    TESSERA_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      TESSERA_UNROLL
      for (int e = 0; e < kVec; ++e) score += q[i][e] * k[i][e];
    }
    score = tile::warp_reduce<tile::Sum, kLanes>(score) * kScaleLog2;
    if (key >= num_keys) score = -INFINITY;
    const float before = largest;
    largest = fmaxf(before, score);
    const float shrink = kernels::exp2_approx(before - largest);
    const float weight = kernels::exp2_approx(score - largest);
    sum = sum * shrink + weight;
    TESSERA_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      TESSERA_UNROLL
      for (int e = 0; e < kVec; ++e) out[i][e] = out[i][e] * shrink + weight * v[i][e];
    }
  }
  if (query >= p.seq) return;
  TESSERA_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    TESSERA_UNROLL
    for (int e = 0; e < kVec; ++e) out[i][e] /= sum;
    tile::Vec<Bf16, kVec>::from_floats(out[i]).store(p.out + base + query * p.row_stride() +
                                                     i * kVectorStep);
  }
}

}  // namespace

void launch_online_softmax(const Problem& problem, const Context& ctx) {
  const auto blocks =
      static_cast<unsigned>((problem.seq + kQueriesPerBlock - 1) / kQueriesPerBlock);
  kernels::launch(attention_online_softmax_kernel,
                  {.grid = dim3(blocks, static_cast<unsigned>(problem.heads),
                                static_cast<unsigned>(problem.batch)),
                   .block = dim3(kThreads)},
                  problem, ctx);
}

}  // namespace tessera::ladder::attention
