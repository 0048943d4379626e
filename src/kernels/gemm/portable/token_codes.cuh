// The matrix product of codes with codes on tensor cores: W8A8, W4A8 and W4A4, sm_80 up.
// SPDX-License-Identifier: MIT
//
//   D = epilogue(sum over segments s of k: a_scale[m, s] * b_scale[n, s] * (A . B^T over s))
//
// Work      A block computes kTile.m x kTile.n of one product, each warp a part of it in registers.
// Pipeline  A ring of steps of 128 elements of k, filled by cp.async with codes as they lie in
//           memory. A lane takes eight neighbouring codes of a row at once: the order of k within
//           32 elements is free as long as both operands share it. Integers become int8 and meet
//           in m16n8k32; e4m3 and the codes beside it become f16, for two m16n8k16. The scales of a
//           segment are loaded while its codes are multiplied.
// Output    Sums of integers over a segment are exact, products of e4m3 and int4 too. Segments are
//           added times their scales, in order of k. Scales of whole rows are the epilogue's. So
//           an element's bits depend on its rows of A and B alone.
// Cost      2 m n k operations. Up to 16 rows reading B is the limit.
//           docs/kernels/gemm_portable.md
// Needs     Rows of A and B that start at multiples of 16 bytes; segments of a multiple of 32; int4
//           without zero points.
#pragma once

#include <cuda_fp8.h>

#include <type_traits>

#include "kernels/gemm/portable/code_loader.cuh"
#include "kernels/gemm/portable/product.cuh"
#include "tile/ptx/address.cuh"
#include "tile/ptx/mma.cuh"

namespace tessera::kernels {

inline constexpr int kTokenStep = 128;  // elements of k in a stage
inline constexpr int kTokenSubstep = 32;

struct TokenCodesWide {
  static constexpr MmaTile kShape{64, 64, kTokenStep, 2, 2, 4, 2};
};
struct TokenCodesNarrow {
  static constexpr MmaTile kShape{16, 32, kTokenStep, 1, 2, 8, 4};
};

// What the kernel reads: the operands as in mma.cuh, and the scales that change along k.
struct TokenCodesParams {
  PortableGemmParams product;  // a_stride and b_stride in bytes
  const float* a_scale;        // [m, a_scales_per_row]; null: the epilogue has them
  const float* b_scale;        // [n / rows_per_scale, b_scales_per_row]; null: the epilogue does
  int segment;                 // elements of k under one scale of each side
  int a_segments;              // segments under one scale of a, and of b
  int b_segments;
  int a_scales_per_row;
  int b_scales_per_row;
  int rows_per_scale;
};
static_assert(std::is_trivially_copyable_v<TokenCodesParams>);

// Bytes of a row in a stage, and from row to row: 32 or 16 more, so that the words of the lanes
// that are served at once, 32 or 16 bytes in 4 or 8 rows, lie in different banks.
template <class Code>
inline constexpr int kTokenRowBytes = kTokenStep* kCodeBits<Code> / 8;
template <class Code>
inline constexpr int kTokenRowStride = kTokenRowBytes<Code> + (kCodeBits<Code> == 4 ? 16 : 32);

// Whether codes are multiplied as f16, not as int8.
template <class A>
inline constexpr bool kMultipliesHalves = std::is_same_v<A, E4m3>;

// What a unit of the int8 operand stands for. A code of 4 bits goes into the upper half of its
// byte, which keeps its sign and makes it 16 times as large.
template <class Code>
inline constexpr float kCodeUnit = kCodeBits<Code> == 4 ? 1.0f / 16 : 1.0f;

// Eight neighbouring codes of a row in shared memory as operands of kRegs registers: int8 in the
// order of k, or f16 in pairs of the i-th and the (i + 4)-th.
template <class Code, int kRegs>
__device__ __forceinline__ void load_eight(const unsigned char* at, uint32_t (&eight)[kRegs]) {
  if constexpr (std::is_same_v<Code, E4m3>) {
    static_assert(kRegs == 4);
    const uint2 raw = *reinterpret_cast<const uint2*>(at);
    TESSERA_UNROLL
    for (int i = 0; i < 4; ++i) {
      const auto pair = static_cast<__nv_fp8x2_storage_t>(
          __byte_perm(raw.x, raw.y, static_cast<uint32_t>(i | (i + 4) << 4)));
      const __half2_raw halves = __nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3);
      eight[i] = *reinterpret_cast<const uint32_t*>(&halves);
    }
  } else if constexpr (std::is_same_v<Code, I4x2> && kRegs == 4) {
    // 0x6400 is 1024 in f16, whose last bit counts 1: with code + 8 there it is 1032 plus the code.
    const uint32_t raw = *reinterpret_cast<const uint32_t*>(at);
    const __half2_raw offset_bits{0x6408, 0x6408};
    TESSERA_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t bits = ((raw >> 4 * i) & 0x000f000fu) ^ 0x64086408u;
      const __half2 pair = __hsub2(*reinterpret_cast<const __half2*>(&bits), __half2(offset_bits));
      eight[i] = *reinterpret_cast<const uint32_t*>(&pair);
    }
  } else if constexpr (std::is_same_v<Code, I4x2>) {
    const uint32_t raw = *reinterpret_cast<const uint32_t*>(at);
    const uint32_t even = (raw << 4) & 0xf0f0f0f0u;
    const uint32_t odd = raw & 0xf0f0f0f0u;
    eight[0] = __byte_perm(even, odd, 0x5140);
    eight[1] = __byte_perm(even, odd, 0x7362);
  } else {
    static_assert(kRegs == 2);
    const uint2 raw = *reinterpret_cast<const uint2*>(at);
    eight[0] = raw.x;
    eight[1] = raw.y;
  }
}

// A warp's part of a tile: the sums over the segment at hand, and those of all segments before.
template <class A, class B, MmaTile kTile>
class TokenProduct {
  static constexpr int kBlocksM = kTile.warp_m() / 16;
  static constexpr int kBlocksN = kTile.warp_n() / 8;
  static constexpr bool kHalves = kMultipliesHalves<A>;
  static constexpr int kRegs = kHalves ? 4 : 2;  // of eight codes
  static constexpr bool kIsUnsigned = std::is_same_v<A, uint8_t>;
  static constexpr float kUnit = kHalves ? 1.0f : kCodeUnit<A> * kCodeUnit<B>;
  using Sum = std::conditional_t<kHalves, float, int32_t>;

 public:
  // The tile begins at (first_row, first_col) of the product.
  __device__ TokenProduct(const TokenCodesParams& p, int first_row, int first_col, int thread)
      : p_(p), lane_(thread % 32), left_(p.segment) {
    const int warp = thread / 32;
    row_ = warp / kTile.warps_n * kTile.warp_m();
    col_ = warp % kTile.warps_n * kTile.warp_n();
    first_row_ = first_row + row_;
    first_col_ = first_col + col_;
    a_offset_ = (row_ + lane_ / 4) * kTokenRowStride<A> + lane_ % 4 * kCodeBits<A>;
    b_offset_ = kTile.m * kTokenRowStride<A> + (col_ + lane_ / 4) * kTokenRowStride<B> +
                lane_ % 4 * kCodeBits<B>;
    TESSERA_UNROLL
    for (int i = 0; i < 2 * kBlocksM; ++i) a_scale_[i / 2][i % 2] = 1.0f;
    TESSERA_UNROLL
    for (int j = 0; j < 2 * kBlocksN; ++j) b_scale_[j / 2][j % 2] = kUnit;
    begin_segment();
  }

  __device__ void add(const unsigned char* stage) {
    TESSERA_UNROLL
    for (int substep = 0; substep < kTokenStep / kTokenSubstep; ++substep) {
      multiply(stage, substep);
      if constexpr (!kIsUnsigned) {  // codes with zero points have one segment
        left_ -= kTokenSubstep;
        if (left_ == 0) end_segment();
      }
    }
  }

  // After the last stage: the segment of whole rows, which is longer than k.
  __device__ void finish() {
    if (kIsUnsigned || left_ != p_.segment) end_segment();
  }
  __device__ void stage(StagedTile<kTile.m, kTile.n>& tile) const {
    stage_accumulators(d_, tile, row_, col_, lane_);
  }

 private:
  // Adds 32 elements of k. Of A, registers 0 and 2 of an MMA are a lane's first row, 1 and 3 its
  // second.
  __device__ void multiply(const unsigned char* stage, int substep) {
    uint32_t a[kBlocksM][2][kRegs];
    TESSERA_UNROLL
    for (int i = 0; i < kBlocksM; ++i) {
      TESSERA_UNROLL
      for (int h = 0; h < 2; ++h) {
        load_eight<A>(stage + a_offset_ + (16 * i + 8 * h) * kTokenRowStride<A> +
                          substep * kTokenSubstep * kCodeBits<A> / 8,
                      a[i][h]);
      }
    }
    TESSERA_UNROLL
    for (int j = 0; j < kBlocksN; ++j) {
      uint32_t b[kRegs];
      load_eight<B>(stage + b_offset_ + 8 * j * kTokenRowStride<B> +
                        substep * kTokenSubstep * kCodeBits<B> / 8,
                    b);
      TESSERA_UNROLL
      for (int i = 0; i < kBlocksM; ++i) {
        TESSERA_UNROLL
        for (int r = 0; r < kRegs; r += 2) {
          const uint32_t a_part[4] = {a[i][0][r], a[i][1][r], a[i][0][r + 1], a[i][1][r + 1]};
          const uint32_t b_part[2] = {b[r], b[r + 1]};
          if constexpr (kHalves) {
            tile::ptx::mma<F16>(part_[i][j], a_part, b_part);
          } else if constexpr (kIsUnsigned) {
            tile::ptx::mma_u8_s8(part_[i][j], a_part, b_part);
          } else {
            tile::ptx::mma<int8_t>(part_[i][j], a_part, b_part);
          }
        }
      }
    }
  }

  // The scales of the segment at hand. Beyond m, n and the last segment they are some that exist:
  // what they multiply is not stored, or 0.
  __device__ void begin_segment() {
    if (p_.b_scale != nullptr) {
      const int group = min(segment_ / p_.b_segments, p_.b_scales_per_row - 1);
      TESSERA_UNROLL
      for (int j = 0; j < kBlocksN; ++j) {
        TESSERA_UNROLL
        for (int c = 0; c < 2; ++c) {
          const int col = min(first_col_ + 8 * j + 2 * (lane_ % 4) + c, p_.product.epilogue.n - 1);
          const int64_t row = col / p_.rows_per_scale;
          b_scale_[j][c] = kUnit * __ldg(p_.b_scale + row * p_.b_scales_per_row + group);
        }
      }
    }
    if (p_.a_scale != nullptr) {
      const int group = min(segment_ / p_.a_segments, p_.a_scales_per_row - 1);
      TESSERA_UNROLL
      for (int i = 0; i < kBlocksM; ++i) {
        TESSERA_UNROLL
        for (int h = 0; h < 2; ++h) {
          const int row = min(first_row_ + 16 * i + 8 * h + lane_ / 4, p_.product.epilogue.m - 1);
          a_scale_[i][h] = p_.a_scale[int64_t{row} * p_.a_scales_per_row + group];
        }
      }
    }
  }
  __device__ void end_segment() {
    TESSERA_UNROLL
    for (int i = 0; i < kBlocksM; ++i) {
      TESSERA_UNROLL
      for (int j = 0; j < kBlocksN; ++j) {
        if constexpr (kIsUnsigned) {
          subtract_zero_points(
              part_[i][j], p_.product.epilogue,
              {first_row_ + 16 * i + lane_ / 4, first_col_ + 8 * j + 2 * (lane_ % 4), 0});
        }
        TESSERA_UNROLL
        for (int r = 0; r < 4; ++r) {
          const float scale = a_scale_[i][r / 2] * b_scale_[j][r % 2];
          d_[i][j][r] = fmaf(static_cast<float>(part_[i][j][r]), scale, d_[i][j][r]);
          part_[i][j][r] = 0;
        }
      }
    }
    left_ = p_.segment;
    ++segment_;
    begin_segment();
  }

  const TokenCodesParams& p_;
  int lane_;
  int row_;  // the warp's first row and column in the tile
  int col_;
  int first_row_;  // and in the product
  int first_col_;
  int left_;  // elements of k until the segment ends
  int segment_ = 0;
  int a_offset_;  // in a stage: the lane's first codes
  int b_offset_;
  float a_scale_[kBlocksM][2];  // of the segment; 1 where the epilogue has them
  float b_scale_[kBlocksN][2];  // the same, times kUnit
  Sum part_[kBlocksM][kBlocksN][4] = {};
  float d_[kBlocksM][kBlocksN][4] = {};
};

template <class A, class B, MmaTile kTile>
union TokenCodesShared {
  static constexpr int kStageBytes = kTile.m * kTokenRowStride<A> + kTile.n * kTokenRowStride<B>;
  alignas(128) unsigned char stages[kTile.num_stages][kStageBytes];
  StagedTile<kTile.m, kTile.n> out;
};

template <class A, class B, class T, class Tile>
__global__ void __launch_bounds__(Tile::kShape.num_threads(), Tile::kShape.min_blocks)
    gemm_token_codes_kernel(const __grid_constant__ TokenCodesParams p) {
  constexpr MmaTile kTile = Tile::kShape;
  using Shared = TokenCodesShared<A, B, kTile>;
  constexpr int kThreads = kTile.num_threads();
  extern __shared__ __align__(128) unsigned char dynamic[];
  Shared& shared = *reinterpret_cast<Shared*>(dynamic);
  const int thread = static_cast<int>(threadIdx.x);
  const PortableGemmParams& g = p.product;
  const TileIndex tile = tile_at(static_cast<int>(blockIdx.x), g.tiles_m, g.tiles_n);
  const int row = tile.m * kTile.m;
  const int col = tile.n * kTile.n;
  CodeLoader<kTokenRowBytes<A>, kTokenRowStride<A>, kTile.m, kThreads> a_loader(
      static_cast<const unsigned char*>(g.a) + row * g.a_stride, g.a_stride, g.epilogue.m - row,
      g.k * kCodeBits<A> / 8, thread);
  CodeLoader<kTokenRowBytes<B>, kTokenRowStride<B>, kTile.n, kThreads> b_loader(
      static_cast<const unsigned char*>(g.b) + col * g.b_stride, g.b_stride, g.epilogue.n - col,
      g.k * kCodeBits<B> / 8, thread);
  TokenProduct<A, B, kTile> product(p, row, col, thread);

  const uint32_t first_stage = tile::ptx::shared_address(shared.stages);
  const auto fetch = [&](int slot) {
    const uint32_t stage = first_stage + slot * Shared::kStageBytes;
    a_loader.fetch(stage);
    b_loader.fetch(stage + kTile.m * kTokenRowStride<A>);
  };
  // A group is committed even if nothing is left to fetch, as in gemm_mma_kernel.
  const int num_steps = (g.k + kTokenStep - 1) / kTokenStep;
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
    product.add(shared.stages[read_slot]);
    read_slot = advance(read_slot);
    write_slot = advance(write_slot);
  }
  product.finish();

  __syncthreads();  // every warp has read the last stage
  product.stage(shared.out);
  __syncthreads();
  finish_tile<T>(shared.out, g.epilogue, row, col, 0);
}

// From checked arguments.
template <class A, class B>
TokenCodesParams token_codes_params(const GemmArgs& args, const TileCounts& tiles) {
  const Weight& b = args.b;
  const ScaleLayout scales = scale_layout(b);
  const int64_t k = args.a.size(-1), segment = token_segment(args);
  TokenCodesParams p{};
  p.product = portable_gemm_params(args, tiles);
  p.product.a_stride = args.a.stride(-2) * kCodeBits<A> / 8;
  p.product.b_stride = b.values.stride(-2) * kCodeBits<B> / 8;
  p.segment = static_cast<int>(segment < k ? segment : k + kTokenStep + kTokenSubstep);
  if (args.a_scale->rank == 2) {
    p.a_scale = args.a_scale->as<float>();
    p.a_scales_per_row = static_cast<int>(args.a_scale->size(1));
    p.a_segments = static_cast<int>(kTokenGroup / segment);
  }
  if (b.scale->rank == 2) {
    p.b_scale = b.scale->as<float>();
    p.b_scales_per_row = static_cast<int>(scales.scales_per_row);
    p.b_segments = static_cast<int>(scales.cols_per_scale / segment);
    p.rows_per_scale = static_cast<int>(scales.rows_per_scale);
  }
  return p;
}

template <class A, class B, class T, class Tile>
void launch_token_codes_tile(const GemmArgs& args, const Context& ctx) {
  constexpr MmaTile kTile = Tile::kShape;
  const TileCounts tiles = count_tiles(product_size(args), kTile.m, kTile.n);
  if (tiles.total() == 0) return;
  launch(&gemm_token_codes_kernel<A, B, T, Tile>,
         {.grid = dim3(static_cast<unsigned>(tiles.total())),
          .block = dim3(kTile.num_threads()),
          .shared_bytes = sizeof(TokenCodesShared<A, B, kTile>)},
         token_codes_params<A, B>(args, tiles), ctx);
}

template <class A, class B, class T>
void launch_token_codes(const GemmArgs& args, const Context& ctx) {
  if (args.a.size(-2) <= TokenCodesNarrow::kShape.m) {
    return launch_token_codes_tile<A, B, T, TokenCodesNarrow>(args, ctx);
  }
  launch_token_codes_tile<A, B, T, TokenCodesWide>(args, ctx);
}

}  // namespace tessera::kernels
