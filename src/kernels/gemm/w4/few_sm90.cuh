// The product with 4-bit weights on Hopper for up to 16 tokens: one warp for 16 or 32 rows of W.
// SPDX-License-Identifier: MIT
//
//   D^T = epilogue(W[n, k] . A[m, k]^T),   W = (codes - zero point) * scale,   sums in float
//
// Work      A warp owns a unit, 16 or 32 rows of W, by one part of k; a block has several units, by
//           all parts of k or, in a cluster, by its share of them. Rows are cut so that there is
//           equal work for nearly every SM. mma.sync multiplies, with W as the operand of 16 rows.
// Pipeline  Each lane copies its own 16 bytes of codes for 64 of k into a ring that belongs to its
//           warp, by cp.async, and reads them back: warps never wait for one another. A static
//           weight's ring is filled before the kernel in front has finished. A comes by bulk copies
//           in chunks of k, each with a barrier, and stays.
// Output    As that of w4_sm90.cuh, bit for bit: the same parts of k, added in the same order, and
//           the same sums of groups.
// Cost      Per 8 codes: a shift, 4 ANDs and 4 packed multiply-adds, and 4 more instructions with
//           up to 8 tokens. docs/kernels/gemm_quantised.md
// Needs     As w4_sm90.cuh; at most 16 tokens, whose share of k fits into shared memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/normed_row.cuh"
#include "kernels/gemm/w4/convert.cuh"
#include "kernels/gemm/w4/few_plan.h"
#include "kernels/gemm/w4/finish.cuh"
#include "kernels/gemm/w4/launch.h"
#include "kernels/gemm/w4/scales.cuh"
#include "kernels/launch.h"
#include "kernels/with_constant.h"
#include "tile/arch.cuh"
#include "tile/ptx/address.cuh"
#include "tile/ptx/cluster.cuh"
#include "tile/ptx/cluster_index.cuh"
#include "tile/ptx/cp_async.cuh"
#include "tile/ptx/ld_global.cuh"
#include "tile/ptx/ldmatrix.cuh"
#include "tile/ptx/mbarrier.cuh"
#include "tile/ptx/mma.cuh"
#include "tile/ptx/shared.cuh"
#include "tile/ptx/tma.cuh"
#include "tile/unroll.cuh"

namespace tessera::kernels {

// What the kernel reads: plain data.
struct W4FewParams {
  const char* codes;    // Packing::fragments of [n, k]
  W4Scales scales;      // [n / 64, k / group, 64]; [n] where a row has one
  const uint8_t* zero;  // like scales; null: 8 everywhere
  const char* a;        // [batch, m, k]
  int64_t a_row_bytes;
  int64_t a_batch_bytes;
  W4FewLayout layout;
  int num_k_blocks;     // of 128; at least 1
  int parts;            // of k
  int splits;           // blocks of a cluster
  int block_parts;      // of k, of a block: parts / splits
  int units;            // of a block
  int num_unit_blocks;  // of a batch
  int scale_lanes;      // lanes that copy the scales of a slot
  int scale_step;       // bytes from the scales of one slot to those of the next
  bool is_static;       // the weight may be read before the kernel in front has finished
  int first_k_block[kW4MaxParts + 1];  // of each part; it ends where the next begins
  EpilogueParams epilogue;
  NormedParams normed;
};
static_assert(std::is_trivially_copyable_v<W4FewParams>);

template <class T, class Tile>
struct W4FewWarp {
  static constexpr int kWide = Tile::kWide;
  static constexpr int kEights = Tile::kTokens / 8;
  static constexpr int kRegs = 4 * kEights;  // of 16 rows
  static constexpr int kSums = kWide * kRegs;
  static constexpr bool kHasGroups = Tile::kGroup != 0;
  static constexpr int kGroups = Tile::kGroups;                      // of a block of k
  static constexpr int kSteps = kHasGroups ? Tile::kGroup / 16 : 8;  // under one scale
  static constexpr int kMaxGroups = kHasGroups ? kGroups : 1;
  static constexpr int kPair = Tile::kPair;
  static constexpr float kInverseUnit = 1.0f / W4Convert<T>::kUnit;
  static constexpr int kScales = Tile::kCodeBytes;  // offsets in a slot
  static constexpr int kZeros = kScales + Tile::kScaleBytes;

  const W4FewParams& p;
  uint32_t shared;
  int unit;     // of the weight
  int count;    // blocks of k; 0: the unit lies beyond n
  int k_block;  // the first
  int begin;    // the first of the block's share of k
  uint32_t ring;
  // Where the lane's next copies come from.
  const char* codes;
  const char* scales;
  const char* zeros;
  int num_left;   // blocks that are not yet requested
  int my_scales;  // from the start of a slot's scales to those that the lane reads

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  // A block of 128 of k, of 64 rows, has 4 KB of codes, and 64 scales and 64 bytes of zero points
  // for each group.
  __device__ void start() {
    const int piece = unit * kWide % 4;  // of 16 rows
    const int64_t block = static_cast<int64_t>(unit * kWide / 4) * p.num_k_blocks + k_block;
    codes = p.codes + block * 4096 + piece * 512 + lane() * 16;
    if constexpr (kHasGroups) {
      const int shift = p.scales.shift, lanes = kWide << shift;  // for a group
      scales = p.scales.data + (block * (kGroups * 64) << shift) +
               ((lane() >> (shift + kWide - 1)) * 64 + piece * 16 << shift) +
               (lane() & (lanes - 1)) * 16;
      zeros = reinterpret_cast<const char*>(p.zero) + block * (kGroups * 64) + lane() / kWide * 64 +
              piece * 16 + lane() % kWide * 16;
    }
    num_left = count;
    my_scales = lane_scales<16>(p.scales);
  }

  __device__ __forceinline__ void request_blocks(uint32_t slot, int num_blocks) {
    TESSERA_UNROLL
    for (int i = 0; i < kPair; ++i) {
      if (i < num_blocks) {
        TESSERA_UNROLL
        for (int piece = 0; piece < 2 * kWide; ++piece) {  // [64 of k][16 rows]
          tile::ptx::cp_async<16>(slot + (i * 2 * kWide + piece) * 512 + lane() * 16,
                                  codes + i * 4096 + piece / kWide * 2048 + piece % kWide * 512);
        }
      }
    }
    if constexpr (kHasGroups) {
      static_assert(kPair * kGroups * kWide * 4 <= 32, "a lane copies one piece of the scales");
      if (lane() < p.scale_lanes * num_blocks / kPair) {
        tile::ptx::cp_async<16>(slot + kScales + lane() * 16, scales);
      }
      if (p.zero != nullptr && lane() < num_blocks * (kGroups * kWide)) {
        tile::ptx::cp_async<16>(slot + kZeros + lane() * 16, zeros);
      }
    }
  }

  // Requests the next kPair blocks of k into a slot, as one group of copies.
  __device__ __forceinline__ void request(uint32_t slot) {
    if (num_left >= kPair) {
      request_blocks(slot, kPair);
    } else if (num_left > 0) {
      request_blocks(slot, num_left);
    }
    tile::ptx::cp_async_commit_group();
    num_left -= kPair;
    codes += kPair * 4096;
    if constexpr (kHasGroups) {
      scales += p.scale_step;
      zeros += kPair * kGroups * 64;
    }
  }

  __device__ void fill() {
    TESSERA_UNROLL
    for (int slot = 0; slot < Tile::kSlots; ++slot) request(ring + slot * Tile::kSlotBytes);
  }

  // What a warp reads of a slot for kNow blocks of k: one chain of products for each of them and
  // each 16 rows.
  template <int kNow>
  struct Operands {
    uint32_t words[kNow * kWide][2][4];         // codes, [64 of k][16 of k]
    float scale[kNow * kMaxGroups * kWide][2];  // of the lane's two rows, in a slot's order
    uint32_t zero[kNow * kWide][kMaxGroups][2];

    __device__ const float (&scale_of(int chain, int group) const)[2] {
      return scale[(chain / kWide * kMaxGroups + group) * kWide + chain % kWide];
    }
  };

  // From block `first` of a slot. A scale carries the factor that convert_word leaves out.
  template <int kNow>
  __device__ __forceinline__ void load(Operands<kNow>& operands, uint32_t slot, int first,
                                       const uint32_t (&row_zero)[kWide][2]) const {
    const uint32_t from = slot + first * (kWide * 1024) + lane() * 16;
    const int row = lane() / 4;
    if constexpr (kHasGroups) {
      load_scales<16>(p.scales, slot + kScales + my_scales, first * (kGroups * kWide),
                      operands.scale);
    }
    TESSERA_UNROLL
    for (int chain = 0; chain < kNow * kWide; ++chain) {
      const int i = chain / kWide, wide = chain % kWide;
      TESSERA_UNROLL
      for (int half = 0; half < 2; ++half) {
        const float4 loaded =
            tile::ptx::load_shared_v4(from + ((i * 2 + half) * kWide + wide) * 512);
        operands.words[chain][half][0] = __float_as_uint(loaded.x);
        operands.words[chain][half][1] = __float_as_uint(loaded.y);
        operands.words[chain][half][2] = __float_as_uint(loaded.z);
        operands.words[chain][half][3] = __float_as_uint(loaded.w);
      }
      TESSERA_UNROLL
      for (int group = 0; group < kMaxGroups; ++group) {
        TESSERA_UNROLL
        for (int j = 0; j < 2; ++j) {
          operands.zero[chain][group][j] = row_zero[wide][j];
        }
      }
    }
    if (kHasGroups && p.zero != nullptr) {
      const uint32_t zero_from = slot + kZeros + first * (kGroups * kWide * 16) + (row & ~3);
      TESSERA_UNROLL
      for (int chain = 0; chain < kNow * kWide; ++chain) {
        TESSERA_UNROLL
        for (int j = 0; j < 2 * kMaxGroups; ++j) {
          const int at = (chain / kWide * kGroups + j / 2) * kWide + chain % kWide;
          const uint32_t word = tile::ptx::load_shared(zero_from + at * 16 + j % 2 * 8);
          operands.zero[chain][j / 2][j % 2] =
              negated_zero<T>(static_cast<int>(word >> (8 * (row & 3)) & 0xff));
        }
      }
    }
    if constexpr (kHasGroups) widen_scales(p.scales, kInverseUnit, operands.scale);
  }

  // kNow blocks of k, side by side.
  template <int kNow>
  __device__ __forceinline__ void multiply_blocks(float (&sums)[kSums],
                                                  const Operands<kNow>& operands,
                                                  const uint32_t (&rows)[kEights]) const {
    static_assert(kNow == 1 || kGroups == 1);
    constexpr int kChains = kNow * kWide;
    float part[kChains][kRegs];
    uint32_t b[kNow][2][kEights][4];  // one pair of steps is multiplied while the next is loaded
    // Eight tokens by 32 elements of k are two operands of mma.
    const auto load_tokens = [&](int i, int pair) {
      TESSERA_UNROLL
      for (int eight = 0; eight < kEights; ++eight) {
        tile::ptx::ldmatrix(b[i][pair % 2][eight], rows[eight] + i * 256 + pair * 64);
      }
    };
    TESSERA_UNROLL
    for (int i = 0; i < kNow; ++i) load_tokens(i, 0);
    TESSERA_UNROLL
    for (int step = 0; step < 8; ++step) {
      const int group = kHasGroups ? step / kSteps : 0;
      TESSERA_UNROLL
      for (int chain = 0; chain < kChains; ++chain) {
        const int i = chain / kWide, wide = chain % kWide;
        if (step % 2 == 0 && step < 6 && wide == 0) load_tokens(i, step / 2 + 1);
        uint32_t a[4];
        convert_word<T>(operands.words[chain][step / 4][step % 4], operands.zero[chain][group], a);
        TESSERA_UNROLL
        for (int eight = 0; eight < kEights; ++eight) {
          float d[4];
          TESSERA_UNROLL
          for (int j = 0; j < 4; ++j) {
            const int at = 4 * eight + j;
            d[j] =
                !kHasGroups ? sums[wide * kRegs + at] : (step % kSteps == 0 ? 0 : part[chain][at]);
          }
          const uint32_t(&pair)[4] = b[i][step / 2 % 2][eight];
          const uint32_t operand[2] = {pair[step % 2 * 2], pair[step % 2 * 2 + 1]};
          tile::ptx::mma<T>(d, a, operand);
          TESSERA_UNROLL
          for (int j = 0; j < 4; ++j) {
            const int at = 4 * eight + j;
            (kHasGroups ? part[chain][at] : sums[wide * kRegs + at]) = d[j];
          }
        }
        if (kHasGroups && kNow == 1 && step % kSteps == kSteps - 1) {
          add_part(sums, wide, part[chain], operands.scale_of(chain, group));
        }
      }
    }
    if constexpr (kNow > 1) {  // one group to a block: in the order of k
      TESSERA_UNROLL
      for (int chain = 0; chain < kChains; ++chain) {
        add_part(sums, chain % kWide, part[chain], operands.scale_of(chain, 0));
      }
    }
  }

  __device__ __forceinline__ static void add_part(float (&sums)[kSums], int wide,
                                                  const float (&part)[kRegs],
                                                  const float (&scale)[2]) {
    TESSERA_UNROLL
    for (int i = 0; i < kRegs; ++i) {
      float& sum = sums[wide * kRegs + i];
      sum = fmaf(part[i], scale[i / 2 % 2], sum);
    }
  }

  // The sums of the warp's part of k.
  __device__ void multiply(float (&sums)[kSums]) {
    const int first_row = unit * (16 * kWide) + lane() / 4;
    uint32_t zero[kWide][2];
    float scale[kWide][2];
    TESSERA_UNROLL
    for (int i = 0; i < 2 * kWide; ++i) {
      const bool is_given = !kHasGroups && p.zero != nullptr;
      zero[i / 2][i % 2] = negated_zero<T>(is_given ? p.zero[first_row + 8 * i] : kFragmentZero);
      if constexpr (!kHasGroups) {
        scale[i / 2][i % 2] = p.scales.at(first_row + 8 * i) * kInverseUnit;
      }
    }
    // Rows beyond m repeat the last: their results are not stored.
    const int first = k_block - begin;
    uint32_t rows[kEights];
    TESSERA_UNROLL
    for (int eight = 0; eight < kEights; ++eight) {
      const int row = min(8 * eight + lane() % 8, p.layout.num_rows - 1);
      rows[eight] =
          shared + p.layout.tokens() + row * p.layout.token_pitch() + first * 256 + lane() / 8 * 16;
    }
    int chunk = first >> p.layout.chunk_shift;      // the next to wait for
    int num_ready = p.normed.is_given ? count : 0;  // blocks whose tokens are here
    const auto wait_for_tokens = [&](int end) {
      while (num_ready < end) {
        tile::ptx::mbarrier_wait(shared + p.layout.barrier(chunk), 0);
        num_ready = (++chunk << p.layout.chunk_shift) - first;
      }
    };
    const auto advance = [&](int num_blocks) {
      TESSERA_UNROLL
      for (int eight = 0; eight < kEights; ++eight) rows[eight] += num_blocks * 256;
    };
    uint32_t slot = ring;
    const uint32_t ring_end = ring + Tile::kSlots * Tile::kSlotBytes;
    int block = 0;
    for (; block + kPair <= count; block += kPair) {
      wait_for_tokens(block + kPair);
      tile::ptx::cp_async_wait_group<Tile::kSlots - 1>();
      __syncwarp();  // the copies of all lanes are here
      Operands<kPair> operands;
      load(operands, slot, 0, zero);
      __syncwarp();  // all lanes have read the scales
      request(slot);
      multiply_blocks<kPair>(sums, operands, rows);
      advance(kPair);
      slot += Tile::kSlotBytes;
      if (slot == ring_end) slot = ring;
    }
    if constexpr (kPair > 1) {  // what is left, in one slot
      if (block < count) {
        wait_for_tokens(count);
        tile::ptx::cp_async_wait_group<Tile::kSlots - 1>();
        __syncwarp();
        for (int i = 0; i < count - block; ++i) {
          Operands<1> operands;
          load(operands, slot, i, zero);
          multiply_blocks<1>(sums, operands, rows);
          advance(1);
        }
      }
    }
    if constexpr (!kHasGroups) {
      TESSERA_UNROLL
      for (int i = 0; i < kSums; ++i) sums[i] *= scale[i / kRegs][i / 2 % 2];
    }
  }

  // Finishes and stores the sums, 16 rows at a time. A loop that moves the sums down, so that the
  // epilogue is compiled once.
  __device__ void store(float (&sums)[kSums], int of_unit, int batch) const {
    const int end_row = min(p.epilogue.n, (of_unit + 1) * (16 * kWide));
    for (int row = of_unit * (16 * kWide); row < end_row; row += 16) {
      float values[kRegs];
      TESSERA_UNROLL
      for (int i = 0; i < kRegs; ++i) values[i] = sums[i];
      store_w4_block<T>(values, ring, p.epilogue, 0, row, batch);
      TESSERA_UNROLL
      for (int i = 0; i + kRegs < kSums; ++i) sums[i] = sums[i + kRegs];
    }
  }
};

// Partial sums of a unit lie [part][4 sums][lane] in pieces of 16 bytes.
template <int kSums>
__device__ void add_pieces(float (&sums)[kSums], uint32_t first, int parts, int part_bytes) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  TESSERA_UNROLL
  for (int i = 0; i < kSums; ++i) sums[i] = 0;
  for (int part = 0; part < parts; ++part) {
    TESSERA_UNROLL
    for (int four = 0; four < kSums / 4; ++four) {
      const float4 piece =
          tile::ptx::load_shared_v4(first + part * part_bytes + four * 512 + lane * 16);
      sums[4 * four] += piece.x;
      sums[4 * four + 1] += piece.y;
      sums[4 * four + 2] += piece.z;
      sums[4 * four + 3] += piece.w;
    }
  }
}
template <int kSums>
__device__ uint4 piece_of(const float (&sums)[kSums], int four) {
  return make_uint4(__float_as_uint(sums[4 * four]), __float_as_uint(sums[4 * four + 1]),
                    __float_as_uint(sums[4 * four + 2]), __float_as_uint(sums[4 * four + 3]));
}

// Brings the residual of a warp's unit into L1: a lane asks for 16 rows of one token. While weights
// are streamed a load takes microseconds, too long to wait for it at the end.
template <class T, class Tile>
__device__ uint32_t touch_residual(const EpilogueParams& p, int unit, int batch) {
  const int lane = static_cast<int>(threadIdx.x) % 32, token = lane % 16, row = lane / 16 * 16;
  const int64_t col = int64_t{unit} * (16 * Tile::kWide) + row;
  if (p.residual == nullptr || p.is_gated || token >= p.m || row >= 16 * Tile::kWide) return 0;
  const T* at = static_cast<const T*>(p.residual) + batch * p.residual_batch_stride +
                token * p.residual_stride + col;
  return tile::ptx::ld_global_word(at - reinterpret_cast<uintptr_t>(at) % 4 / sizeof(T));
}

// The tokens' part of k, in chunks: one warp.
__device__ inline void load_few_tokens(const W4FewParams& p, uint32_t shared, int begin, int end,
                                       int batch) {
  const W4FewLayout& layout = p.layout;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int chunk_bytes = 256 << layout.chunk_shift;
  const int row_bytes = (end - begin) * 256;
  const int num_chunks = (end - begin - 1 >> layout.chunk_shift) + 1;
  if (lane < num_chunks) {
    const int bytes = min(chunk_bytes, row_bytes - lane * chunk_bytes);
    tile::ptx::mbarrier_arrive_expect_tx(shared + layout.barrier(lane), layout.num_rows * bytes);
  }
  __syncwarp();
  const char* a = p.a + batch * p.a_batch_bytes + static_cast<int64_t>(begin) * 256;
  for (int item = lane; item < num_chunks * layout.num_rows; item += 32) {
    const int chunk = item / layout.num_rows, row = item % layout.num_rows;
    const int offset = chunk * chunk_bytes;
    tile::ptx::bulk_load(shared + layout.tokens() + row * layout.token_pitch() + offset,
                         a + row * p.a_row_bytes + offset, min(chunk_bytes, row_bytes - offset),
                         shared + layout.barrier(chunk));
  }
}

// The tokens' part of k, where there is one token and it is normalised first: all warps. The sums
// need all of it.
template <class T>
__device__ void make_few_tokens(const W4FewParams& p, char* dynamic, int begin, int end) {
  const W4FewLayout& layout = p.layout;
  NormedRow<T, T> row(p.normed, static_cast<int>(threadIdx.x) / 32, layout.num_warps);
  tile::wait_for_previous(Sm90{});
  const uint32_t tokens = tile::ptx::shared_address(dynamic + layout.tokens());
  row.run(
      *reinterpret_cast<NormReductions*>(dynamic + layout.reductions()), [] { __syncthreads(); },
      [&](int v, const auto& vec) {
        const int byte = v * 16 - begin * 256;
        if (byte >= 0 && byte < (end - begin) * 256) store_vec(tokens + byte, vec);
      });
  __syncthreads();
}

template <class T, class Tile>
__global__ void __launch_bounds__(kW4FewMaxWarps * 32, 1)
    gemm_w4_few_sm90_kernel(const __grid_constant__ W4FewParams p) {
  extern __shared__ __align__(1024) char dynamic[];
  using Warp = W4FewWarp<T, Tile>;
  constexpr int kPieceBytes = Warp::kSums * 128;
  const uint32_t shared = tile::ptx::shared_address(dynamic);
  const W4FewLayout& layout = p.layout;
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int rank = p.splits > 1 ? static_cast<int>(tile::ptx::cluster_rank()) : 0;
  const int index = static_cast<int>(p.splits > 1 ? tile::ptx::cluster_index() : blockIdx.x);
  const int batch = index < p.num_unit_blocks ? 0 : index / p.num_unit_blocks;
  const int first_unit = (index - batch * p.num_unit_blocks) * p.units;
  const int num_units = min(p.units, p.epilogue.n / (16 * Tile::kWide) - first_unit);
  int block_part = 0;  // no division in front of the first load
  TESSERA_UNROLL
  for (int i = 1; i < kW4MaxParts; ++i) block_part += warp >= i * p.units;
  const int local = warp - block_part * p.units;
  const int first_part = rank * p.block_parts, part = first_part + block_part;
  const int k_block = p.first_k_block[part];
  Warp work{.p = p,
            .shared = shared,
            .unit = first_unit + local,
            .count = local < num_units ? p.first_k_block[part + 1] - k_block : 0,
            .k_block = k_block,
            .begin = p.first_k_block[first_part],
            .ring = shared + layout.ring(warp)};
  work.start();
  if (!p.is_static) tile::wait_for_previous(Sm90{});
  work.fill();

  const uint32_t fold_barrier = shared + layout.fold_barrier();
  if (warp == 0) {
    if (lane < kW4FewMaxChunks) {
      tile::ptx::mbarrier_init(shared + layout.barrier(lane), 1);
    } else if (lane == kW4FewMaxChunks) {
      tile::ptx::mbarrier_init(fold_barrier, 1);
    }
    tile::ptx::fence_mbarrier_init();
    if (lane == kW4FewMaxChunks && p.splits > 1) {
      const int mine = (num_units - rank + p.splits - 1) / p.splits;  // at least 0
      tile::ptx::mbarrier_arrive_expect_tx(fold_barrier, mine * p.parts * kPieceBytes);
    }
    __syncwarp();
  }
  // Relaxed: the other blocks only need the barriers' initialisation, which has its own fence.
  if (p.splits > 1) tile::ptx::cluster_arrive_relaxed();
  __syncthreads();
  tile::release_next(Sm90{});
  const int end = p.first_k_block[first_part + p.block_parts];
  if (p.normed.is_given) {
    make_few_tokens<T>(p, dynamic, work.begin, end);
  } else {
    tile::wait_for_previous(Sm90{});
    if (warp == 0) load_few_tokens(p, shared, work.begin, end, batch);
  }

  // The unit of the block that this warp stores, if any.
  const int stored = p.splits > 1 ? rank + warp * p.splits : local;
  uint32_t touched = 0;
  if (stored < num_units && (p.splits > 1 || part == 0)) {
    touched = touch_residual<T, Tile>(p.epilogue, first_unit + stored, batch);
  }
  float sums[Warp::kSums] = {};
  if (local < num_units) work.multiply(sums);
  if (p.splits > 1) {
    tile::ptx::cluster_wait();  // the barriers of all blocks are ready
    if (local < num_units) {
      const int owner = local % p.splits, place = local / p.splits;
      const uint32_t target = tile::ptx::mapa(
          shared + layout.fold() + (place * p.parts + part) * kPieceBytes + lane * 16, owner);
      const uint32_t barrier = tile::ptx::mapa(fold_barrier, owner);
      TESSERA_UNROLL
      for (int four = 0; four < Warp::kSums / 4; ++four) {
        tile::ptx::store_async_cluster(target + four * 512, piece_of(sums, four), barrier);
      }
    }
    if (stored >= num_units) return;
    tile::ptx::mbarrier_wait_cluster(fold_barrier, 0);
    add_pieces(sums, shared + layout.fold() + warp * p.parts * kPieceBytes, p.parts, kPieceBytes);
  } else if (p.parts > 1) {  // each warp leaves its sums in its ring
    __syncwarp();
    TESSERA_UNROLL
    for (int four = 0; four < Warp::kSums / 4; ++four) {
      tile::ptx::store_shared(work.ring + four * 512 + lane * 16, piece_of(sums, four));
    }
    __syncthreads();
    if (part > 0) return;
    add_pieces(sums, work.ring, p.parts, p.units * layout.ring_bytes);
  }
  tile::ptx::keep(touched);
  if (stored < num_units) work.store(sums, first_unit + stored, batch);
}

template <class T, class Tile>
void launch_w4_few_tile(const GemmArgs& args, const RmsNormArgs* norm, const W4FewPlan& plan,
                        const Context& ctx) {
  W4FewParams p{};
  p.codes = static_cast<const char*>(args.b.values.data);
  p.scales = w4_scales(*args.b.scale);
  p.scale_lanes = Tile::kPair * Tile::kGroups * Tile::kWide << p.scales.shift;
  p.scale_step = Tile::kPair * Tile::kGroups * 64 << p.scales.shift;
  p.zero = args.b.zero_point ? args.b.zero_point->as<uint8_t>() : nullptr;
  p.a = static_cast<const char*>(args.a.data);
  p.a_row_bytes = args.a.stride(-2) * 2;
  p.a_batch_bytes = args.a.rank == 3 ? args.a.stride(0) * 2 : 0;
  p.layout = plan.layout;
  p.num_k_blocks = static_cast<int>(args.a.size(-1) / kW4StageK);
  p.parts = plan.parts;
  p.splits = plan.splits;
  p.block_parts = plan.parts / plan.splits;
  p.units = plan.units;
  p.num_unit_blocks = plan.num_unit_blocks;
  p.is_static = args.b.is_static;
  for (int part = 0; part <= plan.parts; ++part) {
    p.first_k_block[part] = w4_first_k_block(p.num_k_blocks, plan.parts, part);
  }
  p.epilogue = epilogue_params(args);
  p.normed = normed_params(norm);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(plan.num_blocks)),
                          .block = dim3(static_cast<unsigned>(plan.num_warps * 32)),
                          .shared_bytes = static_cast<size_t>(plan.shared_bytes),
                          .cluster = static_cast<unsigned>(plan.splits),
                          .overlaps_previous = true};
  launch(&gemm_w4_few_sm90_kernel<T, Tile>, shape, p, ctx);
}

template <class T, int kGroup>
void launch_w4_few(const GemmArgs& args, const RmsNormArgs* norm, const W4FewPlan& plan,
                   const Context& ctx) {
  const bool is_found = with_constant<8, 16>(plan.tokens, [&](auto tokens) {
    const bool is_wide = with_constant<1, 2>(plan.wide, [&](auto wide) {
      if constexpr (has_w4_few_tile(tokens(), kGroup, wide())) {
        launch_w4_few_tile<T, W4FewTile<tokens(), kGroup, wide()>>(args, norm, plan, ctx);
      }
    });
    expects(is_wide, "gemm: the plan names a unit that is not compiled");
  });
  expects(is_found, "gemm: the plan names a tile that is not compiled");
}

}  // namespace tessera::kernels
