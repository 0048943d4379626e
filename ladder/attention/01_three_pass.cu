// Three kernels over a matrix of scores in memory: products of q and k, softmax, product with v.
// SPDX-License-Identifier: MIT
//
// Changed    Nothing yet: the formula, with one kernel for each part. A thread computes one score,
//            then a block the softmax of one row, then a thread one element of the output.
// Cause      Registers reuse nothing. The lanes of a warp read 32 rows of k, and L1 looks up one
//            line per clock. The scores, seq^2 per head, are written, read, written again and read
//            again: 17 GB at the shape of record, where q, k, v and out are 0.27 GB.
// Predicted  105 ms: for a warp's 32 scores, a load of 8 elements touches 32 lines of k and 1 of q,
//            so 16 loads are 16.5 clocks per score; 1.07 G scores on 132 SMs at 1.98 GHz take 68
//            ms. The product with v reads one line of v and one of the scores in each of 4 warps: 8
//            clocks, 33 ms. Moving the scores takes 3.8 ms at 4.57 TB/s. 5.2 TFLOPS.
// Measured   129300 us, 4.25 TFLOPS; causal 66150 us, 4.16 TFLOPS (NVIDIA H200)
// Shown by   l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio
// Profiled   16.5
// Needs      Any seq; scratch memory of 4 bytes per score.
#include <cmath>

#include "kernels/attention/softmax.cuh"
#include "kernels/launch.h"
#include "ladder/attention/steps.h"
#include "tile/reduce.cuh"
#include "tile/vec.cuh"

namespace tessera::ladder::attention {
namespace {

constexpr int kKeysPerBlock = 128;
constexpr int kSoftmaxThreads = 256;
constexpr int kVec = 8;  // elements of 16 bytes

struct ThreePassParams {
  Problem problem;
  float* scores;  // [batch * heads, seq, seq], in units of log2; then the weights

  __device__ float* row(int head_of_all, int query) const {
    return scores + (static_cast<int64_t>(head_of_all) * problem.seq + query) * problem.seq;
  }
  __device__ int64_t head_offset(int head_of_all) const {
    return problem.head_offset(head_of_all / problem.heads, head_of_all % problem.heads);
  }
};

// Blocks that follow each other share their keys, so that these stay in L1.
__global__ void __launch_bounds__(kKeysPerBlock) attention_scores_kernel(ThreePassParams p) {
  const Problem& problem = p.problem;
  const int query = static_cast<int>(blockIdx.x);
  const int key = static_cast<int>(blockIdx.y * kKeysPerBlock + threadIdx.x);
  const int head = static_cast<int>(blockIdx.z);
  if (key >= problem.seq) return;
  float score = -INFINITY;
  if (key < problem.num_keys(query)) {
    const Bf16* q = problem.q + p.head_offset(head) + query * problem.row_stride();
    const Bf16* k = problem.k + p.head_offset(head) + key * problem.row_stride();
    score = 0;
    for (int i = 0; i < kHeadDim; i += kVec) {
      float a[kVec];
      float b[kVec];
      tile::Vec<Bf16, kVec>::load(q + i).to_floats(a);
      tile::Vec<Bf16, kVec>::load(k + i).to_floats(b);
      TESSERA_UNROLL
      for (int e = 0; e < kVec; ++e) score += a[e] * b[e];
    }
  }
  p.row(head, query)[key] = score * kScaleLog2;
}

// The largest score is subtracted: no exponential exceeds 1, and the quotient is the same.
__global__ void __launch_bounds__(kSoftmaxThreads) attention_softmax_kernel(ThreePassParams p) {
  __shared__ float max_parts[tile::kMaxWarps];
  __shared__ float sum_parts[tile::kMaxWarps];
  const int thread = static_cast<int>(threadIdx.x);
  float* row = p.row(static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x));
  float largest = -INFINITY;
  for (int i = thread; i < p.problem.seq; i += kSoftmaxThreads) largest = fmaxf(largest, row[i]);
  largest = tile::block_reduce<tile::Max>(largest, max_parts);
  float sum = 0;
  for (int i = thread; i < p.problem.seq; i += kSoftmaxThreads) {
    sum += kernels::exp2_approx(row[i] - largest);
  }
  sum = tile::block_reduce<tile::Sum>(sum, sum_parts);
  for (int i = thread; i < p.problem.seq; i += kSoftmaxThreads) {
    row[i] = kernels::exp2_approx(row[i] - largest) / sum;
  }
}

__global__ void __launch_bounds__(kHeadDim) attention_values_kernel(ThreePassParams p) {
  const Problem& problem = p.problem;
  const int query = static_cast<int>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const float* weights = p.row(head, query);
  const int64_t column = p.head_offset(head) + threadIdx.x;
  const Bf16* v = problem.v + column;
  const int num_keys = problem.num_keys(query);
  float sum = 0;
  for (int key = 0; key < num_keys; ++key) {
    sum += weights[key] * tile::to_float(v[key * problem.row_stride()]);
  }
  problem.out[column + query * problem.row_stride()] = tile::from_float<Bf16>(sum);
}

}  // namespace

int64_t three_pass_scratch_bytes(const Problem& problem) {
  return int64_t{problem.batch} * problem.heads * problem.seq * problem.seq *
         int64_t{sizeof(float)};
}

void launch_three_pass(const Problem& problem, const Context& ctx) {
  const auto seq = static_cast<unsigned>(problem.seq);
  const auto heads = static_cast<unsigned>(problem.batch * problem.heads);
  const unsigned key_blocks = (seq + kKeysPerBlock - 1) / kKeysPerBlock;
  const ThreePassParams p{problem, static_cast<float*>(problem.scratch)};
  kernels::launch(attention_scores_kernel,
                  {.grid = dim3(seq, key_blocks, heads), .block = dim3(kKeysPerBlock)}, p, ctx);
  kernels::launch(attention_softmax_kernel,
                  {.grid = dim3(seq, heads), .block = dim3(kSoftmaxThreads)}, p, ctx);
  kernels::launch(attention_values_kernel, {.grid = dim3(seq, heads), .block = dim3(kHeadDim)}, p,
                  ctx);
}

}  // namespace tessera::ladder::attention
