// Rows cut into vectors: how a block covers them, and the loads and stores of one vector.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstring>
#include <type_traits>

#include "tessera/core/error.h"
#include "tessera/core/tensor.h"
#include "tile/ptx/ld_global.cuh"
#include "tile/reduce.cuh"
#include "tile/vec.cuh"

namespace tessera::kernels {

// Columns are counted in 32 bits on the device, with room for steps beyond the end of a row.
inline constexpr int64_t kMaxCols = int64_t{1} << 30;

inline int count_cols(const Rows& rows, const char* what) {
  if (rows.num_cols > kMaxCols) {
    fail(std::string(what) + " has " + std::to_string(rows.num_cols) +
         " columns; the kernels take at most " + std::to_string(kMaxCols) +
         ": split the last axis");
  }
  return static_cast<int>(rows.num_cols);
}

// Whether rows can be read in aligned vectors of N elements of `view`. A view without data counts
// as aligned.
template <int N>
bool can_vectorize(const TensorView& view, const Rows& rows) {
  const int64_t vec_bytes = storage_bytes(view.dtype, N);
  const int64_t access_bytes =
      vec_bytes < tile::kMaxAccessBytes ? vec_bytes : int64_t{tile::kMaxAccessBytes};
  const int64_t address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(view.data));
  const bool rows_align =
      rows.num_rows <= 1 || storage_bytes(view.dtype, rows.row_stride) % access_bytes == 0;
  return rows.num_cols % N == 0 && address % access_bytes == 0 && rows_align;
}

constexpr int count_vecs(int cols, int vec_size) { return (cols + vec_size - 1) / vec_size; }

// How a block covers rows: blockDim is (num_threads, num_rows). Several short rows share a block,
// a warp each, without a barrier. A function of the columns alone, so that a row is summed in the
// same order in any batch.
struct RowBlock {
  int num_threads;  // per row: a multiple of 32
  int num_rows;

  dim3 grid(int64_t rows) const {
    return dim3(static_cast<unsigned>((rows + num_rows - 1) / num_rows));
  }
  dim3 block() const {
    return dim3(static_cast<unsigned>(num_threads), static_cast<unsigned>(num_rows));
  }
};

inline constexpr int kRowsPerBlock = 4;  // if one warp covers a row

constexpr RowBlock choose_row_block(int num_vecs, int vecs_per_thread, int max_threads) {
  const int wanted = (num_vecs + vecs_per_thread - 1) / vecs_per_thread;
  const int rounded = (wanted + tile::kWarpSize - 1) / tile::kWarpSize * tile::kWarpSize;
  if (rounded <= tile::kWarpSize) return {tile::kWarpSize, kRowsPerBlock};
  return {rounded < max_threads ? rounded : max_threads, 1};
}

__device__ inline int64_t row_of_thread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
}

// The index in the row of a thread's i-th vector.
__device__ inline int vec_of_thread(int i) {
  return static_cast<int>(threadIdx.x) + i * static_cast<int>(blockDim.x);
}

// One vector, or zeros if not `is_inside`. No branch: see tile/ptx/ld_global.cuh.
template <class T, int N>
__device__ tile::Vec<T, N> load_vec_if(const T* data, bool is_inside) {
  using Vec = tile::Vec<T, N>;
  using Word = std::conditional_t<sizeof(Vec) % 4 == 0, uint32_t, uint16_t>;
  constexpr int kBytes = sizeof(Vec) < tile::kMaxAccessBytes ? sizeof(Vec) : tile::kMaxAccessBytes;
  Vec result;
  TESSERA_UNROLL
  for (int offset = 0; offset < static_cast<int>(sizeof(Vec)); offset += kBytes) {
    Word words[kBytes / sizeof(Word)];
    tile::ptx::ld_global_if(reinterpret_cast<const char*>(data) + offset, is_inside, words);
    memcpy(reinterpret_cast<char*>(&result) + offset, words, kBytes);
  }
  return result;
}

// Vector v of a row of `cols` elements; zeros beyond the row.
template <int N, bool kIsVectorized, class T>
__device__ tile::Vec<T, N> load_row_vec(const T* row, int v, int cols) {
  if constexpr (kIsVectorized) {
    return load_vec_if<T, N>(row + v * N, v * N < cols);
  } else {
    return tile::Vec<T, N>::load_part(row + v * N, cols - v * N);
  }
}

template <bool kIsVectorized, class T, int N>
__device__ void store_row_vec(const tile::Vec<T, N>& vec, T* row, int v, int cols) {
  if constexpr (kIsVectorized) {
    if (v * N < cols) vec.store(row + v * N);
  } else {
    vec.store_part(row + v * N, cols - v * N);
  }
}

// Whether element i of a vector is inside the row, of which `count` elements are left. Whole
// vectors are inside or outside as one.
template <bool kIsVectorized>
__device__ bool is_in_row(int i, int count) {
  return (kIsVectorized ? 0 : i) < count;
}

}  // namespace tessera::kernels
