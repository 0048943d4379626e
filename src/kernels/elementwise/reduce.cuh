// Row reductions: sum, mean, max, min and largest magnitude of each row, and argmax.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/elementwise/launch.h"
#include "kernels/launch.h"
#include "kernels/row_vec.cuh"
#include "kernels/with_constant.h"
#include "tile/arch.cuh"
#include "tile/ptx/address.cuh"
#include "tile/ptx/cluster.cuh"

namespace tessera::kernels {

// Plain data, copied by value into constant memory. Strides count elements.
struct ReduceParams {
  const void* x;  // [num_rows, cols]
  float* out;     // [num_rows]

  int64_t x_stride;
  int64_t num_rows;
  int cols;
  bool is_vectorized;  // every access is a whole aligned vector: chooses the instance
};
static_assert(std::is_trivially_copyable_v<ReduceParams>);

struct ArgmaxParams {
  const void* x;  // [num_rows, cols]
  void* out;      // [num_rows]; i64 or i32, as has_wide_index says

  int64_t x_stride;
  int64_t num_rows;
  int cols;
  int num_parts;  // blocks that share a row: the cluster's size
  bool has_wide_index;
  bool is_vectorized;
};
static_assert(std::is_trivially_copyable_v<ArgmaxParams>);

inline constexpr int kReduceVecs = 4;  // loads in flight for each thread
inline constexpr int kReduceMaxThreads = 512;

// With few long rows, one block per row would not use the bandwidth, so a cluster splits a row into
// parts, as long as the grid stays within two blocks per SM. Argmax is exact in any order, so the
// split may depend on the number of rows.
inline constexpr int kArgmaxMaxParts = 8;
inline constexpr int kArgmaxSplitVecs = 2048;  // shorter rows are not worth a cluster barrier
inline constexpr int64_t kArgmaxBlocks = 256;

constexpr int choose_argmax_parts(int num_vecs, int64_t num_rows) {
  if (num_vecs < kArgmaxSplitVecs) return 1;
  int num_parts = kArgmaxMaxParts;
  while (num_parts > 1 && num_rows * num_parts > kArgmaxBlocks) num_parts /= 2;
  return num_parts;
}

// What a reduction does to an element, between elements, and to the result.
template <Reduction kKind>
struct Reducer {
  using Fold =
      std::conditional_t<kKind == Reduction::min, tile::Min,
                         std::conditional_t<kKind == Reduction::sum || kKind == Reduction::mean,
                                            tile::Sum, tile::Max>>;
  static constexpr float kIdentity = kKind == Reduction::absmax ? 0.0f : Fold::kIdentity;

  __device__ static float map(float x) { return kKind == Reduction::absmax ? fabsf(x) : x; }
  __device__ static float finish(float total, int cols) {
    return kKind == Reduction::mean ? __fdiv_rn(total, static_cast<float>(cols)) : total;
  }
};

// One number for each row.
//
//   out[row] = fold over cols of x[row]
//
// Work      One block per row, or one warp where a row is at most 128 vectors; a thread owns the
//           vectors strided by the block, and keeps one accumulator for each lane of a vector.
// Pipeline  kReduceVecs loads are issued before the first is used. The launch bound asks for one
//           block per SM: with more, the compiler saves registers and issues two at a time.
// Output    Lanes, then shuffles, then once across warps: the order depends on cols alone.
// Cost      Reads x once: 2 bytes and 1 flop per element in bf16. Bandwidth is the limit.
//           docs/kernels/elementwise.md
// Needs     cols up to 2^30; whole aligned vectors if kIsVectorized.
template <class Arch, class T, Reduction kKind, bool kIsVectorized>
__global__ void __launch_bounds__(kReduceMaxThreads, 1)
    reduce_kernel(const __grid_constant__ ReduceParams p) {
  using R = Reducer<kKind>;
  constexpr int kSize = tile::kVecSize<T>;
  __shared__ float parts[tile::kMaxWarps];
  const int64_t row_idx = row_of_thread();
  if (row_idx >= p.num_rows) return;  // a whole warp; such blocks have no barrier
  tile::wait_for_previous(Arch{});

  const T* row = static_cast<const T*>(p.x) + row_idx * p.x_stride;
  const int num_vecs = count_vecs(p.cols, kSize);
  const int step = kReduceVecs * static_cast<int>(blockDim.x);
  float lanes[kSize];
  TESSERA_UNROLL
  for (int i = 0; i < kSize; ++i) lanes[i] = R::kIdentity;
  for (int first = vec_of_thread(0); first < num_vecs; first += step) {
    tile::Vec<T, kSize> x[kReduceVecs];
    TESSERA_UNROLL
    for (int j = 0; j < kReduceVecs; ++j) {
      x[j] =
          load_row_vec<kSize, kIsVectorized>(row, first + j * static_cast<int>(blockDim.x), p.cols);
    }
    TESSERA_UNROLL
    for (int j = 0; j < kReduceVecs; ++j) {
      const int count = p.cols - (first + j * static_cast<int>(blockDim.x)) * kSize;
      TESSERA_UNROLL
      for (int i = 0; i < kSize; ++i) {
        const float value = R::map(tile::to_float(x[j].values[i]));
        lanes[i] =
            R::Fold::apply(lanes[i], is_in_row<kIsVectorized>(i, count) ? value : R::kIdentity);
      }
    }
  }
  tile::release_next(Arch{});
  TESSERA_UNROLL
  for (int width = kSize / 2; width > 0; width /= 2) {
    TESSERA_UNROLL
    for (int i = 0; i < width; ++i) lanes[i] = R::Fold::apply(lanes[i], lanes[i + width]);
  }
  const float total = tile::block_reduce<typename R::Fold>(lanes[0], parts);
  if (threadIdx.x == 0) p.out[row_idx] = R::finish(total, p.cols);
}

template <class Arch, class T>
void launch_reduce(const ReduceArgs& args, const Context& ctx) {
  constexpr int kSize = tile::kVecSize<T>;
  const Rows x = as_rows(args.x, "reduce: x");
  if (x.num_rows == 0) return;
  const int cols = count_cols(x, "reduce: x");
  const ReduceParams p{.x = args.x.data,
                       .out = args.out.as<float>(),
                       .x_stride = x.row_stride,
                       .num_rows = x.num_rows,
                       .cols = cols,
                       .is_vectorized = can_vectorize<kSize>(args.x, x)};
  const RowBlock block = choose_row_block(count_vecs(cols, kSize), kReduceVecs, kReduceMaxThreads);
  const LaunchShape shape{
      .grid = block.grid(x.num_rows), .block = block.block(), .overlaps_previous = kOverlaps<Arch>};
  with_constant<Reduction::sum, Reduction::mean, Reduction::max, Reduction::min, Reduction::absmax>(
      args.kind, [&](auto kind) {
        with_constant<true, false>(p.is_vectorized, [&](auto is_vectorized) {
          launch(&reduce_kernel<Arch, T, kind(), is_vectorized()>, shape, p, ctx);
        });
      });
}

// A value and its column as one integer: the larger key is the better candidate. The high half
// orders values with NaN on top and -0 beside 0; the low half prefers the smaller column. 0 stands
// for "no candidate" and is below every key.
__device__ inline uint64_t argmax_key(float value, int col) {
  const float number = value + 0.0f;  // -0 becomes 0
  const uint32_t bits = __float_as_uint(number);
  const uint32_t order = bits ^ (bits >> 31 != 0 ? 0xffffffffu : 0x80000000u);
  const uint32_t high = number != number ? 0xffffffffu : order;
  return static_cast<uint64_t>(high) << 32 | ~static_cast<uint32_t>(col);
}

__device__ inline int argmax_col(uint64_t key) {
  return static_cast<int>(~static_cast<uint32_t>(key));
}

__device__ inline uint64_t warp_max(uint64_t key) {
  TESSERA_UNROLL
  for (int lane = tile::kWarpSize / 2; lane > 0; lane /= 2) {
    const uint64_t other = __shfl_xor_sync(0xffffffffu, key, lane);
    key = other > key ? other : key;
  }
  return key;
}

// Every thread of the row gets the largest key; one barrier if the row has several warps.
__device__ inline uint64_t block_max(uint64_t key, uint64_t* parts) {
  const int lane = static_cast<int>(threadIdx.x) % tile::kWarpSize;
  const int num_warps = static_cast<int>(blockDim.x) / tile::kWarpSize;
  key = warp_max(key);
  if (num_warps == 1) return key;
  if (lane == 0) parts[threadIdx.x / tile::kWarpSize] = key;
  __syncthreads();
  return warp_max(lane < num_warps ? parts[lane] : 0);
}

// The blocks that share a row: a cluster on sm_90, always one block elsewhere.
__device__ inline void meet_parts(Portable, int) {}
__device__ inline uint64_t fold_parts(Portable, uint64_t key, uint64_t*, int) { return key; }

// Announces that this block has started, so that others may write to its shared memory.
__device__ inline void meet_parts(Sm90, int num_parts) {
  if (num_parts > 1) tile::ptx::cluster_arrive_relaxed();
}

// Each block stores its key in the shared memory of the cluster's first block, which folds them.
__device__ inline uint64_t fold_parts(Sm90, uint64_t key, uint64_t* parts, int num_parts) {
  if (num_parts == 1) return key;
  tile::ptx::cluster_wait();
  if (threadIdx.x == 0) {
    const uint32_t mine = tile::ptx::shared_address(parts + tile::ptx::cluster_rank());
    const uint32_t address = tile::ptx::mapa(mine, 0);
    tile::ptx::store_cluster(address, static_cast<uint32_t>(key));
    tile::ptx::store_cluster(address + 4, static_cast<uint32_t>(key >> 32));
  }
  __syncwarp();  // the barrier takes whole warps
  tile::ptx::cluster_arrive();
  tile::ptx::cluster_wait();
  const int lane = static_cast<int>(threadIdx.x) % tile::kWarpSize;
  return warp_max(lane < num_parts ? parts[lane] : 0);
}

// The best of a thread's candidates so far. Columns come in ascending order.
struct BestCandidate {
  float value = -__builtin_huge_valf();
  int col = -1;  // -1: none yet

  // Most vectors hold nothing better; one comparison skips them.
  template <bool kIsVectorized, class T, int N>
  __device__ void include(const tile::Vec<T, N>& x, int first_col, int count) {
    float values[N];
    x.to_floats(values);
    float top = values[0];
    TESSERA_UNROLL
    for (int i = 1; i < N; ++i)
      top = tile::Max::apply(top, is_in_row<kIsVectorized>(i, count) ? values[i] : values[0]);
    if (col >= 0 && (top <= value || value != value)) return;
    int found = 0;
    TESSERA_UNROLL
    for (int i = N - 1; i >= 0; --i) {
      const bool is_top = values[i] == top || (top != top && values[i] != values[i]);
      found = is_in_row<kIsVectorized>(i, count) && is_top ? i : found;
    }
    value = top;
    col = first_col + found;
  }
};

// The column of each row's largest element.
//
//   out[row] = min { c : x[row, c] = max(x[row]) }
//
// Work      p.num_parts blocks per row; with one, a warp where a row is at most 128 vectors. A
//           thread walks vectors strided by all threads of the row.
// Pipeline  kReduceVecs loads are issued before the first is used.
// Output    Candidates meet as integer keys of value and column, so any order gives the same
//           answer. Blocks of a cluster send theirs to the first block's shared memory.
// Cost      Reads x once: 2 bytes and 1 comparison per element in bf16. Bandwidth is the limit, or
//           with few rows the latency of one block, which is why a row is split. A vocabulary of
//           128,256 in bf16 is 256 KB per row. docs/kernels/elementwise.md
// Needs     cols from 1 to 2^30; whole aligned vectors if kIsVectorized; num_parts 1 but on sm_90.
template <class Arch, class T, bool kIsVectorized>
__global__ void __launch_bounds__(kReduceMaxThreads)
    argmax_kernel(const __grid_constant__ ArgmaxParams p) {
  constexpr int kSize = tile::kVecSize<T>;
  __shared__ uint64_t warp_parts[tile::kMaxWarps];
  __shared__ uint64_t block_parts[kArgmaxMaxParts];
  meet_parts(Arch{}, p.num_parts);
  const int64_t row_idx = row_of_thread() / p.num_parts;
  if (row_idx >= p.num_rows) return;  // a whole warp; such blocks have no barrier
  tile::wait_for_previous(Arch{});

  const T* row = static_cast<const T*>(p.x) + row_idx * p.x_stride;
  const int part = static_cast<int>(blockIdx.x) % p.num_parts;
  const int num_vecs = count_vecs(p.cols, kSize);
  const int stride = p.num_parts * static_cast<int>(blockDim.x);
  BestCandidate best;
  for (int first = part * static_cast<int>(blockDim.x) + vec_of_thread(0); first < num_vecs;
       first += kReduceVecs * stride) {
    tile::Vec<T, kSize> x[kReduceVecs];
    TESSERA_UNROLL
    for (int j = 0; j < kReduceVecs; ++j) {
      x[j] = load_row_vec<kSize, kIsVectorized>(row, first + j * stride, p.cols);
    }
    TESSERA_UNROLL
    for (int j = 0; j < kReduceVecs; ++j) {
      const int first_col = (first + j * stride) * kSize;
      if (first_col < p.cols) best.include<kIsVectorized>(x[j], first_col, p.cols - first_col);
    }
  }
  tile::release_next(Arch{});
  uint64_t key = best.col >= 0 ? argmax_key(best.value, best.col) : 0;
  key = block_max(key, warp_parts);
  key = fold_parts(Arch{}, key, block_parts, p.num_parts);
  if (threadIdx.x != 0 || part != 0) return;
  if (p.has_wide_index) {
    static_cast<int64_t*>(p.out)[row_idx] = argmax_col(key);
  } else {
    static_cast<int32_t*>(p.out)[row_idx] = argmax_col(key);
  }
}

template <class Arch, class T>
void launch_argmax(const ArgmaxArgs& args, const Context& ctx) {
  constexpr int kSize = tile::kVecSize<T>;
  const Rows x = as_rows(args.x, "argmax: x");
  if (x.num_rows == 0) return;
  const int cols = count_cols(x, "argmax: x");
  const int num_vecs = count_vecs(cols, kSize);
  const int num_parts =
      Arch::library == Library::sm90 ? choose_argmax_parts(num_vecs, x.num_rows) : 1;
  const ArgmaxParams p{.x = args.x.data,
                       .out = args.out.data,
                       .x_stride = x.row_stride,
                       .num_rows = x.num_rows,
                       .cols = cols,
                       .num_parts = num_parts,
                       .has_wide_index = args.out.dtype == DType::i64,
                       .is_vectorized = can_vectorize<kSize>(args.x, x)};
  const RowBlock block =
      choose_row_block((num_vecs + num_parts - 1) / num_parts, kReduceVecs, kReduceMaxThreads);
  const LaunchShape shape{.grid = block.grid(x.num_rows * num_parts),
                          .block = block.block(),
                          .cluster = static_cast<unsigned>(num_parts),
                          .overlaps_previous = kOverlaps<Arch>};
  with_constant<true, false>(p.is_vectorized, [&](auto is_vectorized) {
    launch(&argmax_kernel<Arch, T, is_vectorized()>, shape, p, ctx);
  });
}

}  // namespace tessera::kernels
