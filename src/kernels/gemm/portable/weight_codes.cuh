// The matrix product of 16-bit activations with a weight of 4-bit or 8-bit codes: sm_80 up.
// SPDX-License-Identifier: MIT
//
//   D = epilogue(sum over groups of k: scale[n, g] * (A . (codes - zero)[n]^T over the group))
//
// or with table[codes] in the place of codes - zero.
//
// Work      A block computes kTile.m x kTile.n of one product, each warp a part of it in registers,
//           as the kernel of dense operands does (mma.cuh).
// Pipeline  A ring of steps of 64 elements of k, filled by cp.async: rows of A, and codes as they
//           lie in memory. A lane takes the codes of its operand from shared memory, two at a time,
//           and makes 16-bit numbers of them. Scales and zero points of a group are loaded while
//           the group before is multiplied.
//           A table of 16 values is expanded once into 256 pairs in shared memory, 1 KB, so that
//           one load turns a byte of two codes into an operand register.
// Output    codes - zero is a whole number of at most 9 bits, or an e4m3, so the operands are
//           exact; the values of a table are rounded to A's type, once. The sum over a group is one
//           chain of products in order of k; groups are added times their scale, in order. So a
//           row's bits depend on its rows of A and B alone.
// Cost      2 m n k flop, and some 3 instructions a code; with a table one load from shared memory
//           for two codes, in which lanes whose words share a bank wait for each other. Up to 16
//           rows reading the codes is the limit. docs/kernels/gemm_portable.md
// Needs     Rows of A and of codes that start at multiples of 16 bytes; groups of a multiple of 16;
//           zero points of u8.
#pragma once

#include <cuda_fp8.h>

#include <algorithm>
#include <type_traits>

#include "kernels/gemm/portable/code_loader.cuh"
#include "kernels/gemm/portable/mma.cuh"

namespace tessera::kernels {

inline constexpr int kCodesStep = 64;  // elements of k in a stage
inline constexpr int kCodesStepBytes = 2 * kCodesStep;

struct CodesWide {
  static constexpr MmaTile kShape{64, 64, kCodesStepBytes, 2, 2, 4, 2};
};
struct CodesNarrow {
  static constexpr MmaTile kShape{16, 32, kCodesStepBytes, 1, 2, 8, 4};
};

// What the kernel reads: the operands as in mma.cuh, and how the codes stand for numbers.
struct WeightCodesParams {
  PortableGemmParams product;  // b: codes, with b_stride in bytes
  const float* scale;          // [n / rows_per_scale, scales_per_row]
  const float* table;          // [16], which 4-bit codes are indices of; null: they are numbers
  const uint8_t* zero;         // the same; null: `no_zero`
  int group;                   // elements of k under one scale; 64 divides it where a row has one
  int rows_per_scale;
  int scales_per_row;
  uint32_t flip;  // bits of a pair of codes that are inverted, so that signed codes become unsigned
  int no_zero;    // what then stands for 0
};
static_assert(std::is_trivially_copyable_v<WeightCodesParams>);

// Bytes of a row in a stage; codes have 4 bits (I4x2, TableIndex), or 8: uint8_t, signed or not, or
// E4m3.
template <class Code>
inline constexpr int kCodeRowBytes = kCodesStep* kCodeBits<Code> / 8;
// From row to row in a stage: 16 bytes more, so that the words that the lanes of a warp read, in 8
// rows, lie in different banks.
template <class Code>
inline constexpr int kCodeRowStride = kCodeRowBytes<Code> + 16;

// What a block keeps beside the stages: nothing, or for a table the two elements of every byte.
template <class Code>
struct DecodedPairs {};
template <>
struct DecodedPairs<TableIndex> {
  static constexpr int kCodes = kTableSize;
  uint32_t pairs[kCodes * kCodes];

  // By all threads; a barrier must follow.
  template <class T, int kThreads>
  __device__ void fill(const float* table, int thread) {
    for (int byte = thread; byte < kCodes * kCodes; byte += kThreads) {
      pairs[byte] = tile::pack_pair<T>(__ldg(table + byte % kCodes), __ldg(table + byte / kCodes));
    }
  }
};

// Two neighbouring codes, as they lie in memory, as two elements of an operand. `zero` is 2^23 plus
// the zero point: a code in the low bits of 2^23 is 2^23 plus the code.
template <class T, class Code>
__device__ __forceinline__ uint32_t decode_pair(uint32_t raw, uint32_t flip, float zero) {
  if constexpr (std::is_same_v<Code, E4m3>) {
    const __half2_raw halves =
        __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(raw), __NV_E4M3);
    if constexpr (std::is_same_v<T, F16>) return *reinterpret_cast<const uint32_t*>(&halves);
    const float2 floats = __half22float2(__half2(halves));
    return tile::pack_pair<T>(floats.x, floats.y);
  } else {
    constexpr int kBits = kCodeBits<Code>;
    constexpr uint32_t kMask = (1u << kBits) - 1, kMagic = 0x4b000000;
    const uint32_t codes = raw ^ flip;
    return tile::pack_pair<T>(__uint_as_float((codes & kMask) | kMagic) - zero,
                              __uint_as_float((codes >> kBits & kMask) | kMagic) - zero);
  }
}

// A warp's part of a tile: the sums over the group at hand, and those of all groups before.
template <class T, class Code, MmaTile kTile>
class CodesProduct {
  static constexpr int kBlocksM = kTile.warp_m() / 16;
  static constexpr int kBlocksN = kTile.warp_n() / 8;
  static constexpr int kSubstep = 16;  // elements of k in one MMA
  static constexpr int kPairBytes = kCodeBits<Code> / 4;
  using Pair = std::conditional_t<kPairBytes == 1, uint8_t, uint16_t>;

 public:
  // `first_col` is where the tile begins in the product.
  __device__ CodesProduct(const WeightCodesParams& p, const DecodedPairs<Code>& decoded,
                          int first_col, int thread)
      : p_(p), decoded_(decoded), lane_(thread % 32), left_(p.group) {
    const int warp = thread / 32;
    row_ = warp / kTile.warps_n * kTile.warp_m();
    col_ = warp % kTile.warps_n * kTile.warp_n();
    first_col_ = first_col + col_;
    const tile::MatrixRow at = tile::matrix_row_16x32(lane_);
    a_offset_ = tile::swizzled(kRowSwizzle<kCodesStepBytes>,
                               static_cast<uint32_t>((row_ + at.row) * kCodesStepBytes + at.byte));
    b_offset_ = kTile.m * kCodesStepBytes + (col_ + lane_ / 4) * kCodeRowStride<Code> +
                lane_ % 4 * kPairBytes;
    load_zeros(0, next_zero_);
    begin_group();
  }

  // Adds a stage, given as its shared address and as a pointer.
  __device__ void add(uint32_t address, const unsigned char* stage) {
    TESSERA_UNROLL
    for (int substep = 0; substep < kCodesStep / kSubstep; ++substep) {
      uint32_t a[kBlocksM][4];
      TESSERA_UNROLL
      for (int i = 0; i < kBlocksM; ++i) {
        tile::ptx::ldmatrix(a[i], address + (a_offset_ ^ static_cast<uint32_t>(32 * substep)) +
                                      i * 16 * kCodesStepBytes);
      }
      TESSERA_UNROLL
      for (int j = 0; j < kBlocksN; ++j) {
        const unsigned char* codes =
            stage + b_offset_ + j * 8 * kCodeRowStride<Code> + substep * kSubstep / 2 * kPairBytes;
        uint32_t b[2];
        TESSERA_UNROLL
        for (int half = 0; half < 2; ++half) {
          const Pair raw = *reinterpret_cast<const Pair*>(codes + half * 4 * kPairBytes);
          b[half] = decode(raw, zero_[j]);
        }
        TESSERA_UNROLL
        for (int i = 0; i < kBlocksM; ++i) tile::ptx::mma<T>(part_[i][j], a[i], b);
      }
      left_ -= kSubstep;
      if (left_ == 0) end_group();
    }
  }

  // After the last stage: a group that k ends within.
  __device__ void finish() {
    if (left_ != p_.group) end_group();
  }
  __device__ void stage(StagedTile<kTile.m, kTile.n>& tile) const {
    stage_accumulators(d_, tile, row_, col_, lane_);
  }

 private:
  __device__ uint32_t decode(uint32_t raw, float zero) const {
    if constexpr (std::is_same_v<Code, TableIndex>) {
      return decoded_.pairs[raw];
    } else {
      return decode_pair<T, Code>(raw, p_.flip, zero);
    }
  }
  // The index of the scale of a column of the product. Beyond n, and beyond the last group, one
  // that exists: what it multiplies is not stored, or 0.
  __device__ int64_t scale_index(int col, int group) const {
    const int row = min(col, p_.product.epilogue.n - 1) / p_.rows_per_scale;
    return int64_t{row} * p_.scales_per_row + min(group, p_.scales_per_row - 1);
  }
  __device__ void load_zeros(int group, float (&zeros)[kBlocksN]) const {
    TESSERA_UNROLL
    for (int j = 0; j < kBlocksN; ++j) {
      const int64_t index = scale_index(first_col_ + 8 * j + lane_ / 4, group);
      const int zero = p_.zero != nullptr ? __ldg(p_.zero + index) : p_.no_zero;
      zeros[j] = static_cast<float>(0x800000 + zero);
    }
  }
  __device__ void begin_group() {
    TESSERA_UNROLL
    for (int j = 0; j < kBlocksN; ++j) {
      zero_[j] = next_zero_[j];
      TESSERA_UNROLL
      for (int c = 0; c < 2; ++c) {
        scale_[j][c] =
            __ldg(p_.scale + scale_index(first_col_ + 8 * j + 2 * (lane_ % 4) + c, group_));
      }
    }
    if (p_.zero != nullptr) load_zeros(group_ + 1, next_zero_);
  }
  __device__ void end_group() {
    TESSERA_UNROLL
    for (int i = 0; i < kBlocksM; ++i) {
      TESSERA_UNROLL
      for (int j = 0; j < kBlocksN; ++j) {
        TESSERA_UNROLL
        for (int r = 0; r < 4; ++r) {
          d_[i][j][r] = fmaf(part_[i][j][r], scale_[j][r % 2], d_[i][j][r]);
          part_[i][j][r] = 0;
        }
      }
    }
    left_ = p_.group;
    ++group_;
    begin_group();
  }

  const WeightCodesParams& p_;
  const DecodedPairs<Code>& decoded_;
  int lane_;
  int row_;  // the warp's first row and column in the tile
  int col_;
  int first_col_;  // and in the product
  int left_;       // elements of k until the group ends
  int group_ = 0;
  uint32_t a_offset_;  // in a stage: the row of A that this lane gives to ldmatrix
  int b_offset_;       // in a stage: the lane's first pair of codes
  float zero_[kBlocksN];
  float next_zero_[kBlocksN];
  float scale_[kBlocksN][2];
  float part_[kBlocksM][kBlocksN][4] = {};
  float d_[kBlocksM][kBlocksN][4] = {};
};

template <class Code, MmaTile kTile>
struct WeightCodesShared : DecodedPairs<Code> {
  static constexpr int kStageBytes = kTile.m * kCodesStepBytes + kTile.n * kCodeRowStride<Code>;
  union {
    alignas(128) unsigned char stages[kTile.num_stages][kStageBytes];
    StagedTile<kTile.m, kTile.n> out;
  };
  static_assert(kStageBytes % 128 == 0, "the swizzle of A needs aligned stages");
};

template <class T, class Code, class Tile>
__global__ void __launch_bounds__(Tile::kShape.num_threads(), Tile::kShape.min_blocks)
    gemm_weight_codes_kernel(const __grid_constant__ WeightCodesParams p) {
  constexpr MmaTile kTile = Tile::kShape;
  using Shared = WeightCodesShared<Code, kTile>;
  constexpr int kThreads = kTile.num_threads();
  extern __shared__ __align__(128) unsigned char dynamic[];
  Shared& shared = *reinterpret_cast<Shared*>(dynamic);
  const int thread = static_cast<int>(threadIdx.x);
  const PortableGemmParams& g = p.product;
  const TileIndex tile = tile_at(static_cast<int>(blockIdx.x), g.tiles_m, g.tiles_n);
  const int row = tile.m * kTile.m;
  const int col = tile.n * kTile.n;
  const T* a = static_cast<const T*>(g.a) + tile.batch * g.a_batch_stride + row * g.a_stride;
  const auto* b = static_cast<const unsigned char*>(g.b) + col * g.b_stride;
  ChunkLoader<T, kTile.m, kCodesStepBytes, kThreads> a_loader(
      {a, g.a_stride, g.epilogue.m - row, g.k}, thread);
  CodeLoader<kCodeRowBytes<Code>, kCodeRowStride<Code>, kTile.n, kThreads> b_loader(
      b, g.b_stride, g.epilogue.n - col, g.k * kCodeBits<Code> / 8, thread);
  CodesProduct<T, Code, kTile> product(p, shared, col, thread);
  if constexpr (std::is_same_v<Code, TableIndex>) {
    shared.template fill<T, kThreads>(p.table, thread);
  }

  const uint32_t first_stage = tile::ptx::shared_address(shared.stages);
  const auto fetch = [&](int slot) {
    const uint32_t stage = first_stage + slot * Shared::kStageBytes;
    a_loader.fetch(stage);
    b_loader.fetch(stage + kTile.m * kCodesStepBytes);
  };
  // The first step's barrier shows the filled pairs to all threads, as it does the stage.
  // A group is committed even if nothing is left to fetch, as in gemm_mma_kernel.
  const int num_steps = (g.k + kCodesStep - 1) / kCodesStep;
  TESSERA_UNROLL
  for (int slot = 0; slot < kTile.num_stages - 1; ++slot) {
    if (slot < num_steps) fetch(slot);
    tile::ptx::cp_async_commit_group();
  }
  int read_slot = 0;
  int write_slot = kTile.num_stages - 1;
  const auto advance = [&](int slot) { return slot + 1 == kTile.num_stages ? 0 : slot + 1; };
  for (int step = 0; step < num_steps; ++step) {
    tile::ptx::cp_async_wait_group<kTile.num_stages - 2>();
    __syncthreads();
    if (step + kTile.num_stages - 1 < num_steps) fetch(write_slot);
    tile::ptx::cp_async_commit_group();
    product.add(first_stage + read_slot * Shared::kStageBytes, shared.stages[read_slot]);
    read_slot = advance(read_slot);
    write_slot = advance(write_slot);
  }
  product.finish();

  __syncthreads();  // every warp has read the last stage
  product.stage(shared.out);
  __syncthreads();
  finish_tile<T>(shared.out, g.epilogue, row, col, tile.batch);
}

// From checked arguments.
template <class Code>
WeightCodesParams weight_codes_params(const GemmArgs& args, const TileCounts& tiles) {
  const Weight& b = args.b;
  const ScaleLayout scales = scale_layout(b);
  WeightCodesParams p{};
  p.product = portable_gemm_params(args, tiles);
  p.product.b_stride = b.values.stride(0) * kCodeBits<Code> / 8;
  p.scale = b.scale->as<float>();
  p.table = b.table ? b.table->as<float>() : nullptr;
  p.zero = b.zero_point ? b.zero_point->as<uint8_t>() : nullptr;
  const auto whole = (b.k() + kCodesStep - 1) / kCodesStep * kCodesStep;
  p.group = static_cast<int>(scales.scales_per_row == 1 ? whole : scales.cols_per_scale);
  p.rows_per_scale = static_cast<int>(scales.rows_per_scale);
  p.scales_per_row = static_cast<int>(scales.scales_per_row);
  if (!b.zero_point) {
    p.flip = kCodeBits<Code> == 4 ? 0x88 : 0x8080;
    p.no_zero = kCodeBits<Code> == 4 ? 8 : 128;
  }
  return p;
}

template <class T, class Code, class Tile>
void launch_weight_codes_tile(const GemmArgs& args, const Context& ctx) {
  constexpr MmaTile kTile = Tile::kShape;
  const TileCounts tiles = count_tiles(product_size(args), kTile.m, kTile.n);
  if (tiles.total() == 0) return;
  launch(&gemm_weight_codes_kernel<T, Code, Tile>,
         {.grid = dim3(static_cast<unsigned>(tiles.total())),
          .block = dim3(kTile.num_threads()),
          .shared_bytes = sizeof(WeightCodesShared<Code, kTile>)},
         weight_codes_params<Code>(args, tiles), ctx);
}

template <class T, class Code>
void launch_weight_codes(const GemmArgs& args, const Context& ctx) {
  if (args.a.size(-2) <= CodesNarrow::kShape.m) {
    return launch_weight_codes_tile<T, Code, CodesNarrow>(args, ctx);
  }
  launch_weight_codes_tile<T, Code, CodesWide>(args, ctx);
}

}  // namespace tessera::kernels
