// Independent items of work spread over a one-dimensional grid, a few to each thread.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/launch.h"
#include "tile/vec.cuh"

namespace tessera::kernels {

// The most items of one launch: an index and a step beyond it fit in 32 bits. More items take
// several launches.
inline constexpr int64_t kMaxItems = int64_t{1} << 30;

inline constexpr int kItemThreads = 256;  // the largest block item_shape makes

// Large problems use large blocks. Small ones use small blocks, so that every SM gets some: their
// time is the latency of one pass, which is shortest with few warps per SM.
template <class Arch>
LaunchShape item_shape(int64_t num_items, int items_per_thread) {
  const int64_t num_threads = (num_items + items_per_thread - 1) / items_per_thread;
  const int64_t block = num_threads >= 256 * 1024 ? kItemThreads : num_threads >= 65536 ? 128 : 64;
  return {.grid = dim3(static_cast<unsigned>((num_threads + block - 1) / block)),
          .block = dim3(static_cast<unsigned>(block)),
          .overlaps_previous = kOverlaps<Arch>};
}

// A thread's u-th item of kPerThread: neighbouring threads take neighbouring items, and a block
// takes a run of them.
template <int kPerThread>
__device__ inline uint32_t item_index(int u) {
  return (blockIdx.x * kPerThread + static_cast<uint32_t>(u)) * blockDim.x + threadIdx.x;
}

// Whether rows that start at `data`, `stride` elements apart, can be read in aligned vectors of 16
// bytes. A null pointer counts as aligned.
template <class T>
bool starts_on_vectors(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % tile::kMaxAccessBytes == 0 &&
         stride % tile::kVecSize<T> == 0;
}

}  // namespace tessera::kernels
