// What the quantise and dequantise kernels read, and how their blocks cover a matrix.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

namespace tessera::kernels {

// Element (r, c) uses entry r * row_step + c / cols_per_scale.
struct ScaleTable {
  float* scale;         // [num_scales]
  int32_t* zero_point;  // [num_scales]; null: codes are symmetric

  int64_t row_step;  // 0: all rows share the entries of one
  int cols_per_scale;
};

// How a thread finds the scales of a vector.
enum class ScaleAccess : uint8_t {
  whole_vector,  // one scale serves the vector: per tensor, token, and groups of whole vectors
  column,        // one scale an element, the same in all rows: per channel
  element,       // any layout and any alignment, element by element
};

// Blocks of kMatrixThreads cover a matrix of vectors: 2^log2_lanes threads side by side along a
// row, the others on the rows below, and each thread on kMatrixRows rows.
inline constexpr int kMatrixThreads = 256;
inline constexpr int kMatrixRows = 4;  // loads in flight for each thread

struct MatrixTile {
  int log2_lanes;
  int num_chunks;  // blocks along a row

  constexpr int rows_down() const { return kMatrixThreads >> log2_lanes; }
  constexpr int64_t count_row_blocks(int64_t num_rows) const {
    const int rows_per_block = rows_down() * kMatrixRows;
    return (num_rows + rows_per_block - 1) / rows_per_block;
  }
};

constexpr MatrixTile choose_matrix_tile(int num_vecs) {
  int log2_lanes = 0;
  while ((1 << log2_lanes) < num_vecs && (1 << log2_lanes) < kMatrixThreads) ++log2_lanes;
  return {log2_lanes, (num_vecs + (1 << log2_lanes) - 1) >> log2_lanes};
}

// Plain data, copied by value into constant memory. Strides count elements.
struct QuantizeParams {
  const void* x;  // [num_rows, cols]
  void* out;      // [num_rows, cols] codes; two a byte for i4
  ScaleTable scales;

  int64_t x_stride;
  int64_t out_stride;  // even for i4
  int64_t num_rows;
  int64_t num_scales;
  int cols;
  bool is_vectorized;  // every access is a whole aligned vector: chooses the instance
  MatrixTile tile;
};
static_assert(std::is_trivially_copyable_v<QuantizeParams>);

struct DequantizeParams {
  const void* x;  // [num_rows, cols] codes; two a byte for i4
  void* out;      // [num_rows, cols]
  ScaleTable scales;

  int64_t x_stride;  // even for i4
  int64_t out_stride;
  int64_t num_rows;
  int cols;
  bool is_vectorized;
  MatrixTile tile;
};
static_assert(std::is_trivially_copyable_v<DequantizeParams>);

// How threads cover the run of elements that shares a dynamic scale: a token's row or a group.
// Short runs take part of a warp, so that a block holds several.
struct RunBlock {
  int num_threads;  // of one run: a power of two up to 32, or a multiple of 32
  int num_runs;     // of one block
  bool is_long;     // the run does not fit in registers and is walked
};

inline constexpr int kRunMaxThreads = 1024;
inline constexpr int kRunVecs = 2;             // of a thread, for a run in registers
inline constexpr int kRunSharedThreads = 128;  // of a block with several runs
inline constexpr int kRunLongVecs = 4;         // loads in flight for each thread of a long run

constexpr RunBlock choose_run_block(int num_vecs) {
  const int wanted = (num_vecs + kRunVecs - 1) / kRunVecs;
  if (wanted <= 32) {
    int num_threads = 1;
    while (num_threads < wanted) num_threads *= 2;
    return {num_threads, kRunSharedThreads / num_threads, false};
  }
  const auto rounded = [](int threads) { return (threads + 31) / 32 * 32; };
  if (wanted <= kRunMaxThreads) return {rounded(wanted), 1, false};
  return {kRunMaxThreads, 1, true};
}

}  // namespace tessera::kernels
