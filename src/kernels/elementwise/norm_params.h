// What the norm kernels read, and how a row is cut into threads.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

namespace tessera::kernels {

// Plain data, copied by value into constant memory. Strides count elements from row to row.
struct NormParams {
  const void* x;              // [rows, hidden]
  const void* weight;         // [hidden]
  const void* bias;           // [hidden]; null: none
  void* residual;             // [rows, hidden], updated in place; null: none
  void* out;                  // [rows, hidden]
  const float* static_scale;  // [1]; null: not this way
  float* token_scale;         // [rows]; null: not this way

  int64_t x_stride;
  int64_t residual_stride;
  int64_t out_stride;
  int hidden;
  float eps;
};
static_assert(std::is_trivially_copyable_v<NormParams>);

// How a block covers a row: `vecs_per_thread` vectors of 16 bytes for each of `num_threads`. A
// function of hidden alone, so that a row's sum is folded in the same order in any batch.
struct NormTile {
  int num_threads;
  int vecs_per_thread;  // 1 or 2; 0: the row does not fit in registers and is walked
};

inline constexpr int kNormMaxThreads = 1024;
inline constexpr int kNormLongThreads = 512;  // a row that is walked: registers for its steps

constexpr NormTile choose_norm_tile(int hidden, int vec_size) {
  const int num_vecs = (hidden + vec_size - 1) / vec_size;
  const auto tile = [&](int vecs_per_thread) {
    const int threads = (num_vecs + vecs_per_thread - 1) / vecs_per_thread;
    return NormTile{(threads + 31) / 32 * 32, vecs_per_thread};
  };
  // Few warps make the block's reduction short, two vectors a thread keep loads in flight.
  if (num_vecs <= 128) return tile(1);
  if (num_vecs <= 2 * kNormMaxThreads) return tile(2);
  return {kNormLongThreads, 0};
}

}  // namespace tessera::kernels
