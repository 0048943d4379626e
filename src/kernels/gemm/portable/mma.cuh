// The matrix product on tensor cores by mma.sync: sm_80 up.
// SPDX-License-Identifier: MIT
//
//   D = epilogue(A[m, k] . B[n, k]^T)     m16n8k16 for 16 bits, m16n8k8 for tf32; sums in float
//
// Work      A block computes kTile.m x kTile.n of one product, each warp a part of it in registers.
//           Blocks are numbered in strips of 8 tiles (tile_at).
// Pipeline  A ring of num_stages steps of k, filled by cp.async while earlier steps are multiplied.
//           One barrier per step says both that the next step has landed and that the slot to be
//           filled next has been read. Rows are swizzled, so ldmatrix has no bank conflicts.
// Output    Each element is one chain of products over k in order, in steps of 32 bytes, with zeros
//           beyond k. Its bits depend on its rows of A and B alone, not on the tile.
// Cost      2 m n k flop, and (m + n) k elements per tile, most of them from L2.
//           docs/kernels/gemm_portable.md
// Needs     Rows of A and B that start at multiples of 16 bytes for ChunkLoader; nothing for
//           ElementLoader.
#pragma once

#include <type_traits>

#include "kernels/gemm/portable/product.cuh"
#include "tile/fragment.cuh"
#include "tile/ptx/address.cuh"
#include "tile/ptx/cp_async.cuh"
#include "tile/ptx/ld_global.cuh"
#include "tile/ptx/ldmatrix.cuh"
#include "tile/ptx/mma.cuh"
#include "tile/swizzle.cuh"
#include "tile/unroll.cuh"

namespace tessera::kernels {

// The rows of one operand that a tile needs, contiguous along k.
template <class T>
struct OperandRows {
  const T* data;   // the tile's first row
  int64_t stride;  // elements from row to row
  int num_rows;    // rows that exist; the rest reads as zeros
  int k;           // elements beyond it read as zeros
};

template <int kRowBytes>
inline constexpr tile::Swizzle kRowSwizzle =
    kRowBytes == 128 ? tile::Swizzle::b128 : tile::Swizzle::b64;

// Copies a step of k of one operand from global to shared memory: fetch starts it, deposit ends it
// once the current step is computed. This loader copies chunks of 16 bytes by cp.async, without
// registers. Rows must start at multiples of 16 bytes; k may end within a chunk.
template <class T, int kRows, int kRowBytes, int kThreads>
class ChunkLoader {
  static constexpr int kChunks = kRowBytes / 16;
  static constexpr int kRowsAtOnce = kThreads / kChunks;
  static constexpr int kPasses = kRows / kRowsAtOnce;
  static constexpr int kElements = kRowBytes / static_cast<int>(sizeof(T));
  static constexpr int kChunkElements = 16 / static_cast<int>(sizeof(T));
  static_assert(kRows % kRowsAtOnce == 0 && kRowsAtOnce % 8 == 0,
                "passes are whole periods of the swizzle apart");

 public:
  __device__ ChunkLoader(const OperandRows<T>& rows, int thread) {
    const int row = thread / kChunks;
    const int chunk = thread % kChunks;
    source_ = rows.data + row * rows.stride + chunk * kChunkElements;
    pass_stride_ = kRowsAtOnce * rows.stride;
    rows_left_ = rows.num_rows - row;
    k_left_ = rows.k - chunk * kChunkElements;
    offset_ =
        tile::swizzled(kRowSwizzle<kRowBytes>, static_cast<uint32_t>(row * kRowBytes + chunk * 16));
  }

  // Starts the copies of the next step into the stage at this shared address.
  __device__ void fetch(uint32_t stage) {
    const int num_elements = k_left_ < kChunkElements ? max(k_left_, 0) : kChunkElements;
    const int num_bytes = num_elements * static_cast<int>(sizeof(T));
    TESSERA_UNROLL
    for (int pass = 0; pass < kPasses; ++pass) {
      const bool is_inside = pass * kRowsAtOnce < rows_left_;
      tile::ptx::cp_async<16>(stage + offset_ + pass * kRowsAtOnce * kRowBytes,
                              source_ + pass * pass_stride_,
                              static_cast<uint32_t>(is_inside ? num_bytes : 0));
    }
    source_ += kElements;
    k_left_ -= kElements;
  }
  __device__ void deposit(uint32_t) const {}

 private:
  const T* source_;  // this thread's chunk of its first row
  int64_t pass_stride_;
  int rows_left_;
  int k_left_;
  uint32_t offset_;  // in a stage
};

// The same from any address, with the same result in shared memory: neighbouring lanes load
// neighbouring elements into registers and store them after the current step.
template <class T, int kRows, int kRowBytes, int kThreads>
class ElementLoader {
  static_assert(sizeof(T) == 2);
  static constexpr int kElements = kRowBytes / 2;
  static constexpr int kRowsAtOnce = kThreads / kElements;
  static constexpr int kPasses = kRows / kRowsAtOnce;
  static_assert(kThreads % kElements == 0 && kRows % kRowsAtOnce == 0);

 public:
  __device__ ElementLoader(const OperandRows<T>& rows, int thread)
      : row_(thread / kElements), element_(thread % kElements) {
    source_ = rows.data + row_ * rows.stride + element_;
    pass_stride_ = kRowsAtOnce * rows.stride;
    rows_left_ = rows.num_rows - row_;
    k_left_ = rows.k - element_;
  }

  __device__ void fetch(uint32_t) {
    TESSERA_UNROLL
    for (int pass = 0; pass < kPasses; ++pass) {
      tile::ptx::ld_global_if(source_ + pass * pass_stride_,
                              k_left_ > 0 && pass * kRowsAtOnce < rows_left_, values_[pass]);
    }
    source_ += kElements;
    k_left_ -= kElements;
  }
  __device__ void deposit(uint32_t stage) const {
    TESSERA_UNROLL
    for (int pass = 0; pass < kPasses; ++pass) {
      const int row = row_ + pass * kRowsAtOnce;
      const uint32_t offset = tile::swizzled(kRowSwizzle<kRowBytes>,
                                             static_cast<uint32_t>(row * kRowBytes + element_ * 2));
      asm volatile("st.shared.b16 [%0], %1;" ::"r"(stage + offset), "h"(values_[pass][0])
                   : "memory");
    }
  }

 private:
  const T* source_;  // this thread's element of its first row
  int64_t pass_stride_;
  int row_;
  int element_;
  int rows_left_;
  int k_left_;
  uint16_t values_[kPasses][1];
};

// The operand type of mma.sync for elements of type T.
template <class T>
using MmaOperand = std::conditional_t<std::is_same_v<T, float>, tile::ptx::Tf32, T>;

// Rounds floats to tf32 to nearest instead of truncating them; NaN stays NaN.
// PTX: cvt.rna.tf32.f32.
template <class T, int kRegs>
__device__ void round_operand(uint32_t (&fragment)[kRegs]) {
  if constexpr (std::is_same_v<T, float>) {
    TESSERA_UNROLL
    for (int i = 0; i < kRegs; ++i) {
      asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(fragment[i]) : "f"(__uint_as_float(fragment[i])));
    }
  }
}

// A warp's part of a tile: the accumulators, and the fragments of one step.
template <class T, MmaTile kTile>
class WarpProduct {
  static constexpr int kBlocksM = kTile.warp_m() / 16;
  static constexpr int kBlocksN = kTile.warp_n() / 8;
  static constexpr int kSubsteps = kTile.k_bytes / 32;
  static_assert(kTile.warp_m() % 16 == 0 && kTile.warp_n() % 16 == 0);

 public:
  __device__ explicit WarpProduct(int thread) : lane_(thread % 32) {
    const int warp = thread / 32;
    row_ = warp / kTile.warps_n * kTile.warp_m();
    col_ = warp % kTile.warps_n * kTile.warp_n();
    a_offset_ = offset_of(row_, tile::matrix_row_16x32(lane_));
    b_offset_ = kTile.m * kTile.k_bytes + offset_of(col_, tile::matrix_row_two_8x32(lane_));
  }

  // Adds the stage at this shared address, 32 bytes of k at a time. The next fragments are loaded
  // while the current ones are multiplied.
  __device__ void add(uint32_t stage) {
    load(stage, 0);
    TESSERA_UNROLL
    for (int substep = 0; substep < kSubsteps; ++substep) {
      if (substep + 1 < kSubsteps) load(stage, substep + 1);
      multiply(substep % 2);
    }
  }

  __device__ void stage(StagedTile<kTile.m, kTile.n>& tile) const {
    stage_accumulators(d_, tile, row_, col_, lane_);
  }

 private:
  __device__ static uint32_t offset_of(int first_row, tile::MatrixRow at) {
    return tile::swizzled(kRowSwizzle<kTile.k_bytes>,
                          static_cast<uint32_t>((first_row + at.row) * kTile.k_bytes + at.byte));
  }

  // Blocks are 16 rows apart, a multiple of the swizzle's period, and a substep is a whole pair of
  // chunks. So all addresses follow from the offset of the first by an addition and an xor.
  __device__ void load(uint32_t stage, int substep) {
    const int buffer = substep % 2;
    const uint32_t a = stage + (a_offset_ ^ static_cast<uint32_t>(32 * substep));
    const uint32_t b = stage + (b_offset_ ^ static_cast<uint32_t>(32 * substep));
    TESSERA_UNROLL
    for (int i = 0; i < kBlocksM; ++i) {
      tile::ptx::ldmatrix(a_[buffer][i], a + i * 16 * kTile.k_bytes);
    }
    TESSERA_UNROLL
    for (int j = 0; j < kBlocksN / 2; ++j) {
      tile::ptx::ldmatrix(b_[buffer][j], b + j * 16 * kTile.k_bytes);
    }
  }

  __device__ void multiply(int buffer) {
    TESSERA_UNROLL
    for (int i = 0; i < kBlocksM; ++i) round_operand<T>(a_[buffer][i]);
    TESSERA_UNROLL
    for (int j = 0; j < kBlocksN / 2; ++j) round_operand<T>(b_[buffer][j]);
    TESSERA_UNROLL
    for (int j = 0; j < kBlocksN; ++j) {
      const uint32_t(&pair)[4] = b_[buffer][j / 2];
      const uint32_t b[2] = {pair[j % 2 * 2], pair[j % 2 * 2 + 1]};
      TESSERA_UNROLL
      for (int i = 0; i < kBlocksM; ++i) {
        tile::ptx::mma<MmaOperand<T>>(d_[i][j], a_[buffer][i], b);
      }
    }
  }

  int lane_;
  int row_;  // the warp's first row and column in the tile
  int col_;
  uint32_t a_offset_;  // in a stage: the row of a, or b, that this lane gives to ldmatrix
  uint32_t b_offset_;
  uint32_t a_[2][kBlocksM][4];
  uint32_t b_[2][kBlocksN / 2][4];
  float d_[kBlocksM][kBlocksN][4] = {};
};

template <MmaTile kTile>
union MmaShared {
  alignas(128) unsigned char stages[kTile.num_stages][kTile.stage_bytes()];
  StagedTile<kTile.m, kTile.n> out;
};

template <class T, class Tile, template <class, int, int, int> class Loader>
__global__ void __launch_bounds__(Tile::kShape.num_threads(), Tile::kShape.min_blocks)
    gemm_mma_kernel(const __grid_constant__ PortableGemmParams p) {
  constexpr MmaTile kTile = Tile::kShape;
  using Shared = MmaShared<kTile>;
  constexpr int kThreads = kTile.num_threads();
  constexpr int kStepElements = kTile.k_bytes / static_cast<int>(sizeof(T));
  extern __shared__ __align__(128) unsigned char dynamic[];
  Shared& shared = *reinterpret_cast<Shared*>(dynamic);
  const int thread = static_cast<int>(threadIdx.x);
  const TileIndex tile = tile_at(static_cast<int>(blockIdx.x), p.tiles_m, p.tiles_n);
  const int row = tile.m * kTile.m;
  const int col = tile.n * kTile.n;
  const T* a = static_cast<const T*>(p.a) + tile.batch * p.a_batch_stride + row * p.a_stride;
  const T* b = static_cast<const T*>(p.b) + tile.batch * p.b_batch_stride + col * p.b_stride;
  Loader<T, kTile.m, kTile.k_bytes, kThreads> a_loader({a, p.a_stride, p.epilogue.m - row, p.k},
                                                       thread);
  Loader<T, kTile.n, kTile.k_bytes, kThreads> b_loader({b, p.b_stride, p.epilogue.n - col, p.k},
                                                       thread);
  WarpProduct<T, kTile> product(thread);

  const uint32_t first_stage = tile::ptx::shared_address(shared.stages);
  const auto stage_at = [&](int slot) { return first_stage + slot * kTile.stage_bytes(); };
  const auto fetch = [&](uint32_t stage) {
    a_loader.fetch(stage);
    b_loader.fetch(stage + kTile.m * kTile.k_bytes);
  };
  const auto deposit = [&](uint32_t stage) {
    a_loader.deposit(stage);
    b_loader.deposit(stage + kTile.m * kTile.k_bytes);
  };

  // A group is committed even if nothing is left to fetch: the number of groups in flight then
  // tells which step has landed.
  const int num_steps = (p.k + kStepElements - 1) / kStepElements;
  TESSERA_UNROLL
  for (int slot = 0; slot < kTile.num_stages - 1; ++slot) {
    if (slot < num_steps) {
      fetch(stage_at(slot));
      deposit(stage_at(slot));
    }
    tile::ptx::cp_async_commit_group();
  }
  int read_slot = 0;
  int write_slot = kTile.num_stages - 1;
  const auto advance = [&](int slot) { return slot + 1 == kTile.num_stages ? 0 : slot + 1; };
  for (int step = 0; step < num_steps; ++step) {
    tile::ptx::cp_async_wait_group<kTile.num_stages - 2>();
    __syncthreads();
    const bool has_next = step + kTile.num_stages - 1 < num_steps;
    if (has_next) fetch(stage_at(write_slot));
    tile::ptx::cp_async_commit_group();
    product.add(stage_at(read_slot));
    if (has_next) deposit(stage_at(write_slot));
    read_slot = advance(read_slot);
    write_slot = advance(write_slot);
  }

  __syncthreads();  // every warp has read the last stage
  product.stage(shared.out);
  __syncthreads();
  finish_tile<T>(shared.out, p.epilogue, row, col, tile.batch);
}

template <class T, class Tile, template <class, int, int, int> class Loader>
void launch_mma_tile(const GemmArgs& args, const Context& ctx) {
  constexpr MmaTile kTile = Tile::kShape;
  const TileCounts tiles = count_tiles(product_size(args), kTile.m, kTile.n);
  if (tiles.total() == 0) return;
  launch(&gemm_mma_kernel<T, Tile, Loader>,
         {.grid = dim3(static_cast<unsigned>(tiles.total())),
          .block = dim3(kTile.num_threads()),
          .shared_bytes = sizeof(MmaShared<kTile>)},
         portable_gemm_params(args, tiles), ctx);
}

template <class T>
void launch_gemm_mma(const GemmArgs& args, const Context& ctx) {
  const MmaTile tile = choose_mma_tile(product_size(args), device_info(args.a.device).num_sms);
  if (tile == MmaLarge::kShape) return launch_mma_tile<T, MmaLarge, ChunkLoader>(args, ctx);
  if (tile == MmaSmall::kShape) return launch_mma_tile<T, MmaSmall, ChunkLoader>(args, ctx);
  launch_mma_tile<T, MmaNarrow, ChunkLoader>(args, ctx);
}

// One tile: unaligned operands must run, but need not be fast.
template <class T>
void launch_gemm_mma_unaligned(const GemmArgs& args, const Context& ctx) {
  launch_mma_tile<T, MmaSmall, ElementLoader>(args, ctx);
}

}  // namespace tessera::kernels
