// The product with a 2:4 sparse weight by mma.sp: the weight is the sparse operand, the tokens are
// the dense one.
// SPDX-License-Identifier: MIT
//
//   out[m, n] = a[m, k] . w[n, k]^T          over the two in four elements of w that are kept
//
// Work      A block computes n x m of the transposed product: rows of the weight by tokens. Strips
//           of 8 tiles of m are walked along n, so that blocks in flight share operands in L2.
// Pipeline  A ring of stages of 128 of k, filled by cp.async: values and tokens swizzled, meta as
//           it is in memory, which is the order the lanes need. One barrier per stage.
// Output    Rounded, transposed in shared memory and written along n. Every tile sums k in order in
//           steps of 32, so a row of out has the same bits in any m.
// Cost      1.125 bytes per weight instead of 2: at small m, where the weight is all the traffic,
//           at most 1.78 times as fast as dense. At large m half the products of a dense mma.sync
//           kernel, for which shared memory is just fast enough. docs/kernels/gemm_sparse.md
// Needs     k a multiple of 32; a, values and meta aligned to 16 bytes.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/gemm/portable/tile.h"
#include "kernels/gemm/sparse/launch.h"
#include "kernels/gemm/sparse/tile.h"
#include "kernels/launch.h"
#include "tessera/core/device.h"
#include "tile/convert.cuh"
#include "tile/fragment.cuh"
#include "tile/ptx/address.cuh"
#include "tile/ptx/cp_async.cuh"
#include "tile/ptx/ldmatrix.cuh"
#include "tile/ptx/mma_sp.cuh"
#include "tile/swizzle.cuh"
#include "tile/unroll.cuh"

namespace tessera::kernels {

// What the kernel reads: plain data, copied by value into constant memory. Strides count elements.
struct SparseGemmParams {
  const void* a;         // [m, k]
  const void* values;    // [n, k / 2]
  const uint32_t* meta;  // [ceil(n / 32), k / 32, 32]
  void* out;             // [m, n]
  int64_t a_stride;
  int64_t out_stride;
  int m;
  int n;
  int k;  // a multiple of 32
  int tiles_m;
  int tiles_n;
  bool has_vectors;  // out may be written 16 bytes at a time
};
static_assert(std::is_trivially_copyable_v<SparseGemmParams>);

inline constexpr int kSparseSteps = kSparseStageK / kSparseStepK;

// Rows of 128 bytes, swizzled; the 256 bytes of a token per stage are a row in each of two slabs.
template <class Tile>
struct SparseStage {
  unsigned char values[Tile::kShape.n * 128];
  unsigned char tokens[2][Tile::kShape.m * 128];
  uint32_t meta[Tile::kShape.n / 32][kSparseSteps][32];
};

// The ring, and after the last stage the product as [token][row of the weight]. 16 bytes of padding
// per row avoid bank conflicts both when it is written down a column and when it is read.
template <class T, class Tile>
union SparseStorage {
  SparseStage<Tile> stages[Tile::kShape.num_stages];
  T out[Tile::kShape.m][Tile::kShape.n + 8];
};

// Where a block's tile begins: row of the weight, token.
struct SparseOrigin {
  int n;
  int m;
};

__device__ inline uint32_t swizzled_chunk(int row, int chunk) {
  return tile::swizzled(tile::Swizzle::b128, static_cast<uint32_t>(row * 128 + chunk * 16));
}

// Copies kRows rows of kChunks chunks of 16 bytes per stage; each slab takes 8 chunks of a row.
template <int kRows, int kChunks, int kThreads>
class RowCopier {
  static constexpr int kRowsAtOnce = kThreads / kChunks;
  static_assert(kThreads % kChunks == 0);

 public:
  // `rows` is the first row; num_rows rows of num_bytes each exist from there on.
  __device__ RowCopier(const void* rows, int64_t row_bytes, int num_rows, int64_t num_bytes)
      : row_(static_cast<int>(threadIdx.x) / kChunks),
        chunk_(static_cast<int>(threadIdx.x) % kChunks),
        source_(static_cast<const char*>(rows) + row_ * row_bytes + 16 * chunk_),
        pass_bytes_(kRowsAtOnce * row_bytes),
        rows_left_(num_rows - row_),
        bytes_left_(num_bytes - 16 * chunk_),
        offset_(offset_of(row_)) {}

  // Starts the copies of the next stage to this shared address; beyond the operand it writes zeros.
  __device__ void fetch(uint32_t stage) {
    TESSERA_UNROLL
    for (int first = 0; first < kRows; first += kRowsAtOnce) {
      if (first + kRowsAtOnce > kRows && row_ + first >= kRows) break;
      // Passes a multiple of the swizzle's period apart share one offset.
      const uint32_t offset = kRowsAtOnce % 8 == 0 ? offset_ + static_cast<uint32_t>(first * 128)
                                                   : offset_of(row_ + first);
      const bool is_inside = first < rows_left_ && bytes_left_ > 0;
      tile::ptx::cp_async<16>(stage + offset, source_ + first / kRowsAtOnce * pass_bytes_,
                              is_inside ? 16 : 0);
    }
    source_ += 16 * kChunks;
    bytes_left_ -= 16 * kChunks;
  }

 private:
  __device__ uint32_t offset_of(int row) const {
    return static_cast<uint32_t>(chunk_ / 8 * kRows * 128) + swizzled_chunk(row, chunk_ % 8);
  }

  int row_;
  int chunk_;
  const char* source_;
  int64_t pass_bytes_;
  int rows_left_;
  int64_t bytes_left_;
  uint32_t offset_;
};

// Copies the meta of a stage, 16 bytes per thread. Beyond n the last block of rows is repeated,
// because not every bit pattern is valid meta; beyond k nothing is copied or read.
template <class Tile>
class MetaCopier {
  static constexpr int kChunks = Tile::kShape.n / 32 * kSparseSteps * 8;
  static_assert(kChunks <= Tile::kShape.num_threads());

 public:
  __device__ MetaCopier(const SparseGemmParams& p, int first_row) {
    const int chunk = static_cast<int>(threadIdx.x);
    const int num_col_blocks = p.k / 32;
    const int block = first_row / 32 + chunk / (8 * kSparseSteps);
    const int64_t row_block = min(block, (p.n + 31) / 32 - 1);
    const int col_block = chunk / 8 % kSparseSteps;
    source_ = p.meta + (row_block * num_col_blocks + col_block) * 32 + chunk % 8 * 4;
    blocks_left_ = chunk < kChunks ? num_col_blocks - col_block : 0;
    offset_ = static_cast<uint32_t>(16 * chunk);
  }

  __device__ void fetch(uint32_t stage) {
    if (blocks_left_ > 0) tile::ptx::cp_async<16>(stage + offset_, source_);
    source_ += kSparseSteps * 32;
    blocks_left_ -= kSparseSteps;
  }

 private:
  const uint32_t* source_;
  int blocks_left_;
  uint32_t offset_;
};

// Everything one thread copies per stage.
template <class Tile>
class StageCopier {
  static constexpr SparseTile kShape = Tile::kShape;

 public:
  __device__ StageCopier(const SparseGemmParams& p, SparseOrigin at)
      : values_(static_cast<const char*>(p.values) + static_cast<int64_t>(at.n) * p.k, p.k,
                p.n - at.n, p.k),
        tokens_(static_cast<const char*>(p.a) + 2 * p.a_stride * at.m, 2 * p.a_stride, p.m - at.m,
                2 * static_cast<int64_t>(p.k)),
        meta_(p, at.n) {}

  __device__ void fetch(SparseStage<Tile>& stage) {
    values_.fetch(tile::ptx::shared_address(stage.values));
    tokens_.fetch(tile::ptx::shared_address(stage.tokens));
    meta_.fetch(tile::ptx::shared_address(stage.meta));
  }

 private:
  RowCopier<kShape.n, 8, kShape.num_threads()> values_;  // a row of values has k bytes
  RowCopier<kShape.m, 16, kShape.num_threads()> tokens_;
  MetaCopier<Tile> meta_;
};

// d[i][j]: rows 16 i to 16 i + 15 of the warp's part of the weight by tokens 8 j to 8 j + 7.
template <class Tile>
struct SparseAccumulators {
  static constexpr int kRows = Tile::kShape.warp_n() / 16;
  static constexpr int kTokens = Tile::kShape.warp_m() / 8;
  static_assert(kRows % 2 == 0, "a word of meta serves 32 rows");
  float d[kRows][kTokens][4];
};

// Adds the first `num_steps` steps of a stage. `row` and `token` are the first of the warp.
template <class T, class Tile>
__device__ void consume_stage(const SparseStage<Tile>& stage, int num_steps, int row, int token,
                              SparseAccumulators<Tile>& sum) {
  using Sum = SparseAccumulators<Tile>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t values = tile::ptx::shared_address(stage.values);
  const uint32_t tokens = tile::ptx::shared_address(stage.tokens);
  const tile::MatrixRow at = tile::matrix_row_16x32(lane);
  TESSERA_UNROLL
  for (int step = 0; step < kSparseSteps; ++step) {
    if (step >= num_steps) break;
    uint32_t a[Sum::kRows][4];
    TESSERA_UNROLL
    for (int i = 0; i < Sum::kRows; ++i) {
      tile::ptx::ldmatrix(a[i],
                          values + swizzled_chunk(row + 16 * i + at.row, 2 * step + at.byte / 16));
    }
    uint32_t meta[Sum::kRows / 2];
    TESSERA_UNROLL
    for (int i = 0; i < Sum::kRows / 2; ++i) meta[i] = stage.meta[row / 32 + i][step][lane];
    TESSERA_UNROLL
    for (int j = 0; j < Sum::kTokens; ++j) {
      uint32_t b[4];  // 8 tokens by 64 bytes: lanes 8 c to 8 c + 7 point at chunk c
      tile::ptx::ldmatrix(b, tokens + step / 2 * Tile::kShape.m * 128 +
                                 swizzled_chunk(token + 8 * j + lane % 8, step % 2 * 4 + lane / 8));
      TESSERA_UNROLL
      for (int i = 0; i < Sum::kRows; i += 2) {
        tile::ptx::mma_sp<T, 0>(sum.d[i][j], a[i], b, meta[i / 2]);
        tile::ptx::mma_sp<T, 1>(sum.d[i + 1][j], a[i + 1], b, meta[i / 2]);
      }
    }
  }
}

// Rounds this warp's part and stores it transposed in shared memory.
template <class T, class Tile>
__device__ void stage_out(const SparseAccumulators<Tile>& sum, int row, int token,
                          T (&out)[Tile::kShape.m][Tile::kShape.n + 8]) {
  using Sum = SparseAccumulators<Tile>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  TESSERA_UNROLL
  for (int i = 0; i < Sum::kRows; ++i) {
    TESSERA_UNROLL
    for (int j = 0; j < Sum::kTokens; ++j) {
      TESSERA_UNROLL
      for (int h = 0; h < 2; ++h) {
        const tile::TileCoord at = tile::mma_accumulator_coord(lane, 2 * h);
        T pair[2];
        tile::from_floats(sum.d[i][j][2 * h], sum.d[i][j][2 * h + 1], pair);
        out[token + 8 * j + at.col][row + 16 * i + at.row] = pair[0];
        out[token + 8 * j + at.col + 1][row + 16 * i + at.row] = pair[1];
      }
    }
  }
}

// Writes the tile along n, 16 bytes at a time if out is aligned.
template <class T, class Tile>
__device__ void store_out(const T (&out)[Tile::kShape.m][Tile::kShape.n + 8],
                          const SparseGemmParams& p, SparseOrigin at) {
  constexpr SparseTile kShape = Tile::kShape;
  constexpr int kChunks = kShape.n / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kShape.m * kChunks; i += kShape.num_threads()) {
    const int token = i / kChunks, chunk = i % kChunks;
    const int col = at.n + 8 * chunk;
    if (at.m + token >= p.m || col >= p.n) continue;
    T* to = static_cast<T*>(p.out) + (at.m + token) * p.out_stride + col;
    const T* from = &out[token][8 * chunk];
    if (p.has_vectors && col + 8 <= p.n) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    } else {
      for (int j = 0; j < min(8, p.n - col); ++j) to[j] = from[j];
    }
  }
}

template <class T, class Tile>
__global__ void __launch_bounds__(Tile::kShape.num_threads(), 1)
    gemm_2_4_kernel(const __grid_constant__ SparseGemmParams p) {
  constexpr SparseTile kShape = Tile::kShape;
  constexpr int kStages = kShape.num_stages;
  extern __shared__ __align__(128) unsigned char shared[];
  auto& storage = *reinterpret_cast<SparseStorage<T, Tile>*>(shared);

  const TileIndex tile = tile_at(static_cast<int>(blockIdx.x), p.tiles_m, p.tiles_n);
  const SparseOrigin at{tile.n * kShape.n, tile.m * kShape.m};
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row = warp / kShape.warps_m * kShape.warp_n();
  const int token = warp % kShape.warps_m * kShape.warp_m();
  const int num_stages = (p.k + kSparseStageK - 1) / kSparseStageK;

  // A group is committed for every stage, even beyond k, so that the count in the wait is constant.
  StageCopier<Tile> copier(p, at);
  for (int i = 0; i < kStages - 1; ++i) {
    if (i < num_stages) copier.fetch(storage.stages[i]);
    tile::ptx::cp_async_commit_group();
  }
  SparseAccumulators<Tile> sum{};
  int slot = 0;
  for (int i = 0; i < num_stages; ++i) {
    tile::ptx::cp_async_wait_group<kStages - 2>();
    __syncthreads();  // stage i has landed, and every thread has read the stage before it
    const int free_slot = slot == 0 ? kStages - 1 : slot - 1;
    if (i + kStages - 1 < num_stages) copier.fetch(storage.stages[free_slot]);
    tile::ptx::cp_async_commit_group();
    const int num_steps = (p.k - i * kSparseStageK) / kSparseStepK;
    consume_stage<T>(storage.stages[slot], num_steps, row, token, sum);
    slot = slot + 1 == kStages ? 0 : slot + 1;
  }
  tile::ptx::cp_async_wait_group<0>();
  __syncthreads();  // the ring is no longer read; out takes its place
  stage_out<T, Tile>(sum, row, token, storage.out);
  __syncthreads();
  store_out<T, Tile>(storage.out, p, at);
}

template <class T, class Tile>
void launch_sparse_tile(const Gemm24Args& args, const Context& ctx) {
  const int64_t m = args.a.size(0), n = args.values.size(0), k = args.a.size(1);
  const TileCounts tiles = count_tiles({m, n, 1}, Tile::kShape.m, Tile::kShape.n);
  const TensorView& out = args.out;
  const bool has_vectors =
      reinterpret_cast<uintptr_t>(out.data) % 16 == 0 && (m == 1 || out.stride(0) % 8 == 0);
  const SparseGemmParams params{.a = args.a.data,
                                .values = args.values.data,
                                .meta = args.meta.as<uint32_t>(),
                                .out = out.data,
                                .a_stride = args.a.stride(0),
                                .out_stride = out.stride(0),
                                .m = static_cast<int>(m),
                                .n = static_cast<int>(n),
                                .k = static_cast<int>(k),
                                .tiles_m = static_cast<int>(tiles.m),
                                .tiles_n = static_cast<int>(tiles.n),
                                .has_vectors = has_vectors};
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(tiles.total())),
                          .block = dim3(static_cast<unsigned>(Tile::kShape.num_threads())),
                          .shared_bytes = sizeof(SparseStorage<T, Tile>)};
  static_assert(sizeof(SparseStorage<T, Tile>) == Tile::kShape.shared_bytes());
  launch(&gemm_2_4_kernel<T, Tile>, shape, params, ctx);
}

template <class T>
void launch_gemm_2_4(const Gemm24Args& args, const Context& ctx) {
  const int64_t m = args.a.size(0), n = args.values.size(0), k = args.a.size(1);
  if (m == 0 || n == 0) return;
  const DeviceInfo& info = device_info(args.a.device);
  const SparseTile tile = choose_sparse_tile(m, n, k, info.num_sms, info.shared_bytes_per_block);
  if (tile == SparseLarge::kShape) return launch_sparse_tile<T, SparseLarge>(args, ctx);
  if (tile == SparseSmall::kShape) return launch_sparse_tile<T, SparseSmall>(args, ctx);
  if (tile == SparseWide::kShape) return launch_sparse_tile<T, SparseWide>(args, ctx);
  if (tile == SparseMiddle::kShape) return launch_sparse_tile<T, SparseMiddle>(args, ctx);
  launch_sparse_tile<T, SparseNarrow>(args, ctx);
}

}  // namespace tessera::kernels
