// What quantise and dequantise share: their parameters, how blocks cover a matrix, and codes.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/launch.h"
#include "kernels/row_vec.cuh"
#include "tessera/ops/quantize.h"

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
  column,        // one scale per element, the same in all rows: per channel
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
  void* out;      // [num_rows, cols] codes; two per byte for i4
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
  const void* x;  // [num_rows, cols] codes; two per byte for i4
  void* out;      // [num_rows, cols]
  ScaleTable scales;
  const float* table;  // [16], which i4 codes are indices of; null: they are numbers

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
  int num_threads;  // per run: a power of two up to 32, or a multiple of 32
  int num_runs;     // per block
  bool is_long;     // the run does not fit in registers and is read twice
};

inline constexpr int kRunMaxThreads = 1024;
inline constexpr int kRunVecs = 2;             // vectors per thread, for a run in registers
inline constexpr int kRunSharedThreads = 128;  // threads of a block with several runs
inline constexpr int kRunLongVecs = 4;         // loads in flight per thread of a long run

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

// Codes per element of storage.
template <class Code>
inline constexpr int kPacked = dtype_of<Code> == DType::i4 ? 2 : 1;

// N codes as stored.
template <class Code, int N>
using CodeVec = tile::Vec<Code, N / kPacked<Code>>;

// Where the codes of a row start. For i4 the offset is even.
template <class Code>
__device__ Code* code_at(void* codes, int64_t offset) {
  return static_cast<Code*>(codes) + offset / kPacked<Code>;
}
template <class Code>
__device__ const Code* code_at(const void* codes, int64_t offset) {
  return static_cast<const Code*>(codes) + offset / kPacked<Code>;
}

template <class Code, int N, bool kIsVectorized>
__device__ CodeVec<Code, N> load_codes(const Code* row, int v, int cols) {
  return load_row_vec<N / kPacked<Code>, kIsVectorized>(row, v, cols / kPacked<Code>);
}
template <class Code, int N, bool kIsVectorized>
__device__ void store_codes(const CodeVec<Code, N>& codes, Code* row, int v, int cols) {
  store_row_vec<kIsVectorized>(codes, row, v, cols / kPacked<Code>);
}

// The range of some values and 0, as two non-negative numbers; both are the NaN 0x7fffffff, which
// max.NaN returns, once a value is NaN.
template <bool kHasZero>
struct ValueRange {
  float top = 0.0f;    // the largest value; without a zero point the largest magnitude
  float depth = 0.0f;  // minus the smallest value; unused without a zero point

  __device__ void include(float value) {
    top = tile::Max::apply(top, kHasZero ? value : fabsf(value));
    if constexpr (kHasZero) depth = tile::Max::apply(depth, -value);
  }
  template <class T, int N>
  __device__ void include(const tile::Vec<T, N>& vec) {
    TESSERA_UNROLL
    for (int i = 0; i < N; ++i) include(tile::to_float(vec.values[i]));
  }
  __device__ void merge(const ValueRange& other) {
    top = tile::Max::apply(top, other.top);
    depth = tile::Max::apply(depth, other.depth);
  }
  // Over `num_lanes` neighbouring lanes, a power of two; every lane gets the result.
  __device__ void fold_lanes(int num_lanes) {
    for (int lane = num_lanes / 2; lane > 0; lane /= 2) {
      top = tile::Max::apply(top, __shfl_xor_sync(0xffffffffu, top, lane));
      if constexpr (kHasZero) {
        depth = tile::Max::apply(depth, __shfl_xor_sync(0xffffffffu, depth, lane));
      }
    }
  }
};

// Shared memory through which the warps of a block exchange ranges.
struct RangeParts {
  float top[tile::kMaxWarps];
  float depth[tile::kMaxWarps];
};

// Across the blockDim.x threads of a run; every thread gets the result.
template <bool kHasZero>
__device__ ValueRange<kHasZero> fold_run(ValueRange<kHasZero> range, RangeParts& parts) {
  const int num_threads = static_cast<int>(blockDim.x);
  range.fold_lanes(num_threads < tile::kWarpSize ? num_threads : tile::kWarpSize);
  if (num_threads <= tile::kWarpSize) return range;
  const int lane = static_cast<int>(threadIdx.x) % tile::kWarpSize;
  if (lane == 0) {
    parts.top[threadIdx.x / tile::kWarpSize] = range.top;
    parts.depth[threadIdx.x / tile::kWarpSize] = range.depth;
  }
  __syncthreads();
  range = {};
  if (lane < num_threads / tile::kWarpSize) range = {parts.top[lane], parts.depth[lane]};
  range.fold_lanes(tile::kWarpSize);
  return range;
}

struct Scale {
  float scale;
  int zero_point;
};

// PTX: add.sat. A sum beyond 32 bits saturates.
__device__ inline int add_saturated(int a, int b) {
  int sum;
  asm("add.sat.s32 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  return sum;
}

__device__ inline int clamp(int value, int low, int high) { return min(max(value, low), high); }

// How values become codes of a type. kHasZero: unsigned codes, shifted by a zero point.
template <class Code, bool kHasZero>
struct Coder {
  static constexpr DType kType = dtype_of<Code>;
  static constexpr float kSteps =
      kHasZero ? static_cast<float>(zero_point_max(kType)) : quant_max(kType);
  static constexpr bool kIsInteger = kType == DType::i8 || kType == DType::u8 || kType == DType::i4;

  // A scale that would be 0 is 1, and one that would be infinite is NaN, with a zero point of 0.
  __device__ static Scale find_scale(const ValueRange<kHasZero>& range) {
    const float width = kHasZero ? __fadd_rn(range.top, range.depth) : range.top;
    float scale = tile::nan_if_infinite(__fdiv_rn(width, kSteps));
    if (scale == 0.0f) scale = 1.0f;
    if constexpr (!kHasZero) return {scale, 0};
    const float zero = __fmul_rn(range.depth, __fdiv_rn(1.0f, scale));
    return {scale, clamp(__float2int_rn(zero), 0, zero_point_max(kType))};
  }

  // __float2int_rn rounds to nearest even, saturates, and gives 0 for NaN.
  __device__ static int integer_code(float scaled, int zero_point) {
    const int rounded = __float2int_rn(scaled);
    if constexpr (kHasZero) {
      return clamp(add_saturated(rounded, zero_point), 0, zero_point_max(kType));
    }
    constexpr int kLimit = static_cast<int>(quant_max(kType));
    return clamp(rounded, -kLimit, kLimit);
  }

  // `inverse(i)` is 1 / scale of element i, `zero_point(i)` its zero point.
  template <class T, int N, class Inverse, class ZeroPoint>
  __device__ static CodeVec<Code, N> encode(const tile::Vec<T, N>& x, const Inverse& inverse,
                                            const ZeroPoint& zero_point) {
    float scaled[N];
    x.to_floats(scaled);
    TESSERA_UNROLL
    for (int i = 0; i < N; ++i) scaled[i] = __fmul_rn(scaled[i], inverse(i));
    if constexpr (!kIsInteger) {
      TESSERA_UNROLL
      for (int i = 0; i < N; ++i) scaled[i] = tile::nan_if_infinite(scaled[i]);
      return CodeVec<Code, N>::from_floats(scaled);
    } else {
      CodeVec<Code, N> codes;
      TESSERA_UNROLL
      for (int i = 0; i < N; i += kPacked<Code>) {
        const int code = integer_code(scaled[i], zero_point(i));
        if constexpr (kPacked<Code> == 2) {
          const int high = integer_code(scaled[i + 1], zero_point(i + 1));
          codes.values[i / 2].bits = static_cast<uint8_t>((code & 0xf) | (high << 4));
        } else {
          codes.values[i] = static_cast<Code>(code);
        }
      }
      return codes;
    }
  }
  template <class T, int N>
  __device__ static CodeVec<Code, N> encode(const tile::Vec<T, N>& x, const Scale& scale) {
    const float inverse = __fdiv_rn(1.0f, scale.scale);
    return encode(
        x, [=](int) { return inverse; }, [&](int) { return scale.zero_point; });
  }
};

// The scales of one vector of N elements.
template <ScaleAccess kAccess, int N>
struct VecScales {
  static constexpr int kCount = kAccess == ScaleAccess::whole_vector ? 1 : N;
  float scales[kCount];
  int zero_points[kCount];

  __device__ float scale(int i) const { return scales[kCount == 1 ? 0 : i]; }
  __device__ int zero_point(int i) const { return zero_points[kCount == 1 ? 0 : i]; }

  // The scales of vector v of a row; zeros beyond the row.
  __device__ static VecScales load(const ScaleTable& table, int64_t row_idx, int v, int cols) {
    VecScales result;
    const int begin = v * N;
    const bool has_zero_points = table.zero_point != nullptr;
    if constexpr (kAccess == ScaleAccess::column) {
      const auto scales = load_vec_if<float, N>(table.scale + begin, begin < cols);
      const auto zero_points =
          load_vec_if<int32_t, N>(table.zero_point + begin, has_zero_points && begin < cols);
      TESSERA_UNROLL
      for (int i = 0; i < N; ++i) {
        result.scales[i] = scales.values[i];
        result.zero_points[i] = zero_points.values[i];
      }
    } else {
      TESSERA_UNROLL
      for (int i = 0; i < kCount; ++i) {
        const bool is_inside = begin + i < cols;
        const int64_t idx = row_idx * table.row_step + (begin + i) / table.cols_per_scale;
        result.scales[i] = load_vec_if<float, 1>(table.scale + idx, is_inside).values[0];
        result.zero_points[i] =
            load_vec_if<int32_t, 1>(table.zero_point + idx, has_zero_points && is_inside).values[0];
      }
    }
    return result;
  }
};

// The vector and the first row of a thread in a MatrixTile; its other rows are rows_down apart.
struct MatrixPlace {
  int v;
  int64_t row_idx;
  int rows_down;
};

__device__ inline MatrixPlace place_in_matrix(const MatrixTile& tile) {
  const int thread = static_cast<int>(threadIdx.x);
  const int num_lanes = 1 << tile.log2_lanes;
  const int64_t row_block = blockIdx.x / static_cast<unsigned>(tile.num_chunks);
  const int chunk = static_cast<int>(blockIdx.x % static_cast<unsigned>(tile.num_chunks));
  return {chunk * num_lanes + (thread & (num_lanes - 1)),
          row_block * tile.rows_down() * kMatrixRows + (thread >> tile.log2_lanes),
          tile.rows_down()};
}

// How a kernel reads its scales. `vec_size` is that of the wider side, `is_vectorized` of both.
inline ScaleAccess choose_scale_access(const ScaleTable& table, int cols, int vec_size,
                                       bool is_vectorized) {
  const auto starts_vector = [](const void* data) {
    return reinterpret_cast<uintptr_t>(data) % tile::kMaxAccessBytes == 0;
  };
  if (!is_vectorized) return ScaleAccess::element;
  if (table.cols_per_scale == cols || table.cols_per_scale % vec_size == 0) {
    return ScaleAccess::whole_vector;
  }
  const bool is_column = table.cols_per_scale == 1 && table.row_step == 0;
  return is_column && starts_vector(table.scale) && starts_vector(table.zero_point)
             ? ScaleAccess::column
             : ScaleAccess::element;
}

template <class Args>
ScaleTable scale_table(const Args& args, const ScaleLayout& layout) {
  return {.scale = args.scale.template as<float>(),
          .zero_point = args.zero_point ? args.zero_point->template as<int32_t>() : nullptr,
          .row_step = layout.rows_per_scale == 1 ? layout.scales_per_row : 0,
          .cols_per_scale = static_cast<int>(layout.cols_per_scale)};
}

inline LaunchShape matrix_shape(const MatrixTile& tile, int64_t num_rows, bool overlaps) {
  const int64_t num_blocks = tile.count_row_blocks(num_rows) * tile.num_chunks;
  return {.grid = dim3(static_cast<unsigned>(num_blocks)),
          .block = dim3(kMatrixThreads),
          .overlaps_previous = overlaps};
}

}  // namespace tessera::kernels
