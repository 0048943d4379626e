// The product with 4-bit weights on Hopper: 16-bit A, codes converted in registers.
// SPDX-License-Identifier: MIT
//
//   D^T = epilogue(W[n, k] . A[m, k]^T),   W = (codes - zero point) * scale,   sums in float
//
// Work      A block owns 192 or 256 rows of W, a strip of 64 for each of its consumer warpgroups,
//           by up to 64 rows of A; or 128 rows by up to 128. W is the operand whose rows fill the
//           instruction, so tokens are padded to 32, 64 or 128 only. k is cut into parts: where n
//           has few blocks, a cluster has one for each block, or several blocks share those of a
//           large tile; with many tiles a block has them all, one after another. Up to 16 tokens
//           few_sm90.cuh serves.
// Pipeline  One warp copies codes, scales and zero points into a ring by TMA, the first stages
//           before the kernel in front has finished if the weight is static. Another warp copies A
//           by TMA. Consumers load 16 bytes, make four fragments of them and multiply by wgmma,
//           while the next fragments are converted.
// Output    Codes become exact integers (times a power of two), the sum over one group is taken by
//           the tensor cores from zero, and its scale is applied to it in float: one fused
//           multiply-add per group. Each part of k is summed from zero, and the sums are added in
//           their order. The parts depend on n and k alone, so a row of A has the same bits for
//           every m.
// Cost      Per 8 codes: a shift, 4 ANDs and 4 packed multiply-adds. The bytes of W are read once:
//           4.125 bits a weight with 16-bit scales for groups of 128.
//           docs/kernels/gemm_quantised.md
// Needs     Packing::fragments, n a multiple of 64, k a multiple of 128; rows of A that start at
//           multiples of 16 bytes.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/w4/convert.cuh"
#include "kernels/gemm/w4/finish.cuh"
#include "kernels/gemm/w4/launch.h"
#include "kernels/gemm/w4/plan.h"
#include "kernels/gemm/w4/scales.cuh"
#include "kernels/launch.h"
#include "kernels/stream_scratch.h"
#include "kernels/with_constant.h"
#include "tessera/ops/weight_packing.h"
#include "tile/arch.cuh"
#include "tile/descriptor.cuh"
#include "tile/fragment.cuh"
#include "tile/pipeline.cuh"
#include "tile/ptx/address.cuh"
#include "tile/ptx/barrier.cuh"
#include "tile/ptx/cluster.cuh"
#include "tile/ptx/cluster_index.cuh"
#include "tile/ptx/mbarrier.cuh"
#include "tile/ptx/shared.cuh"
#include "tile/ptx/tma.cuh"
#include "tile/ptx/tma_tensor.cuh"
#include "tile/ptx/warp.cuh"
#include "tile/ptx/wgmma.cuh"
#include "tile/swizzle.cuh"
#include "tile/tensor_map.h"
#include "tile/unroll.cuh"

namespace tessera::kernels {

// What the kernel reads: plain data.
struct W4Params {
  const char* codes;    // Packing::fragments of [n, k]
  W4Scales scales;      // [n / 64, k / group, 64]; [n] where a row has one
  const uint8_t* zero;  // like scales; null: 8 everywhere
  CUtensorMap a_map;    // A [batch, m, k]
  W4Layout layout;
  int num_k_blocks;  // of 128; at least 1
  int parts;         // of k
  int splits;        // blocks that share them
  int block_parts;   // parts / splits
  int num_m_tiles;
  int num_n_tiles;
  int num_tiles;
  int num_items;
  int num_early;  // stages to load before the kernel in front has finished; 0: none
  // So that no block divides: the first block of 128 of each part of k; and, by rank in the
  // cluster, the first of the units of 16 rows that a block adds up. Each ends where the next
  // begins.
  int first_k_block[kW4MaxParts + 1];
  int first_unit[kW4MaxParts + 1];
  float4* partial;    // sums of the parts, where blocks share those of a large tile
  uint32_t* tickets;  // of its tiles
  EpilogueParams epilogue;
};
static_assert(std::is_trivially_copyable_v<W4Params>);

using W4Ring = tile::Pipeline<kW4MaxStages>;

// A tile and a share of its k. Consecutive tiles have the same rows of W.
struct W4Place {
  int n_tile;
  int m_tile;
  int batch;
  int split;
};
template <class Tile>
__device__ W4Place w4_place(const W4Params& p, int item) {
  int split = 0, index = item;
  if (p.splits > 1) {
    if constexpr (Tile::kIsLarge) {
      split = item % p.splits;
      index = item / p.splits;
    } else {
      split = static_cast<int>(tile::ptx::cluster_rank());
    }
  }
  if (p.num_tiles == p.num_n_tiles) return {index, 0, 0, split};
  const int per_batch = p.num_m_tiles * p.num_n_tiles;
  const int batch = index / per_batch;
  index -= batch * per_batch;
  return {index / p.num_m_tiles, index % p.num_m_tiles, batch, split};
}
// A cluster has one tile; other blocks take items in turn.
struct W4Walk {
  int first;
  int step;
};
template <class Tile>
__device__ W4Walk w4_walk(const W4Params& p) {
  if (!Tile::kIsLarge && p.splits > 1) {
    return {static_cast<int>(tile::ptx::cluster_index()), p.num_items};
  }
  return {static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)};
}

// Blocks of k. Each role computes them anew: kept across the roles' branches they would be spilled.
__device__ inline W4Range w4_k_range(const W4Params& p, W4Place at) {
  if (p.splits == 1) return {0, p.num_k_blocks};
  const int part = at.split * p.block_parts;
  return {p.first_k_block[part], p.first_k_block[part + p.block_parts]};
}

// Offsets in a stage.
template <class Tile>
struct W4Stage {
  static constexpr int kA = 0;
  static constexpr int kCodes = Tile::kTokens * kW4StageK * 2;
  static constexpr int kScales = kCodes + Tile::kStrips * kW4StripBytes;
  static constexpr int kZeros = kScales + Tile::kStrips * w4_scale_room(Tile::kGroup);
};

// Units of 16 rows in a tile, less those beyond n.
template <class Tile>
__device__ int w4_num_units(const W4Params& p, W4Place at) {
  return min(Tile::kUnits, p.epilogue.n / 16 - at.n_tile * Tile::kUnits);
}

// Copies codes, scales and zero points: one warp, a lane for each strip.
template <class Tile>
struct W4CodeProducer {
  const W4Params& p;
  const W4Ring& ring;
  uint32_t shared;

  __device__ int num_strips(W4Place at) const {
    return min(Tile::kStrips, p.epilogue.n / 64 - at.n_tile * Tile::kStrips);
  }

  __device__ void load(const W4Ring::State& state, W4Place at, int k_block) const {
    constexpr int kZeroBytes = w4_num_scales(Tile::kGroup);
    const int scale_bytes = w4_num_scales(Tile::kGroup) << p.scales.shift;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int strips = num_strips(at);
    const bool has_zeros = kZeroBytes > 0 && p.zero != nullptr;
    if (lane == 0) {
      ring.producer_expect(state,
                           strips * (kW4StripBytes + scale_bytes + (has_zeros ? kZeroBytes : 0)));
    }
    __syncwarp();
    if (lane >= strips) return;
    const int64_t block =
        static_cast<int64_t>(at.n_tile * Tile::kStrips + lane) * p.num_k_blocks + k_block;
    const uint32_t stage = shared + p.layout.stage(state.index);
    const uint32_t barrier = ring.full(state);
    tile::ptx::bulk_load(stage + W4Stage<Tile>::kCodes + lane * kW4StripBytes,
                         p.codes + block * kW4StripBytes, kW4StripBytes, barrier);
    if constexpr (Tile::kGroup != 0) {
      tile::ptx::bulk_load(stage + W4Stage<Tile>::kScales + lane * w4_scale_room(Tile::kGroup),
                           p.scales.data + block * scale_bytes, scale_bytes, barrier);
      if (has_zeros) {
        tile::ptx::bulk_load(stage + W4Stage<Tile>::kZeros + lane * kZeroBytes,
                             p.zero + block * kZeroBytes, kZeroBytes, barrier);
      }
    }
  }

  // The first stages of a static weight, while the kernel in front still runs.
  __device__ void start_early() const {
    const W4Place first = w4_place<Tile>(p, w4_walk<Tile>(p).first);
    const W4Range range = w4_k_range(p, first);
    W4Ring::State state;
    for (int i = 0; i < min(p.num_early, range.end - range.begin); ++i) {
      load(state, first, range.begin + i);
      state.advance(p.layout.num_stages);
    }
  }

  __device__ void run() const {
    if (p.num_early == 0) tile::wait_for_previous(Sm90{});
    int num_early = p.num_early;
    W4Ring::State state;
    const W4Walk walk = w4_walk<Tile>(p);
    for (int i = walk.first; i < p.num_items; i += walk.step) {
      const W4Place at = w4_place<Tile>(p, i);
      const W4Range range = w4_k_range(p, at);
      num_early = min(num_early, range.end - range.begin);
      for (int k_block = range.begin; k_block < range.end; ++k_block) {
        if (num_early > 0) {
          --num_early;
        } else {
          ring.producer_acquire(state);
          load(state, at, k_block);
        }
        state.advance(p.layout.num_stages);
      }
    }
    // Released only now: the next kernel's first loads then run while this kernel has none, instead
    // of competing with it.
    tile::release_next(Sm90{});
  }
};

// Copies A: one thread. Rows beyond m come as zeros.
template <class Tile>
struct W4TokenProducer {
  const W4Params& p;
  const W4Ring& ring;
  uint32_t shared;

  __device__ void copy(const W4Ring::State& state, W4Place at, int k_block) const {
    ring.producer_expect(state, W4Stage<Tile>::kCodes);
    tile::ptx::tensor_load(shared + p.layout.stage(state.index) + W4Stage<Tile>::kA, &p.a_map,
                           tile::ptx::Coord{0, at.m_tile * Tile::kTokens, k_block * 2, at.batch},
                           ring.full(state));
  }

  __device__ void run() const {
    tile::wait_for_previous(Sm90{});
    W4Ring::State state;
    const W4Walk walk = w4_walk<Tile>(p);
    for (int i = walk.first; i < p.num_items; i += walk.step) {
      const W4Place at = w4_place<Tile>(p, i);
      const W4Range range = w4_k_range(p, at);
      for (int k_block = range.begin; k_block < range.end; ++k_block) {
        ring.producer_acquire(state);
        copy(state, at, k_block);
        state.advance(p.layout.num_stages);
      }
    }
  }
};

// No instruction: registers whose first product overwrites them need no zeros.
template <int kRegs>
__device__ __forceinline__ void leave_unset(float (&d)[kRegs]) {
  TESSERA_UNROLL
  for (int i = 0; i < kRegs; ++i) asm volatile("" : "=f"(d[i]));
}

// Multiplies from the ring, adds the parts of k, applies the epilogue and stores.
template <class T, class Tile>
struct W4Consumer {
  static constexpr int kRegs = Tile::kTokens / 2;
  static constexpr int kEights = Tile::kTokens / 8;
  static constexpr int kSteps = Tile::kGroup == 0 ? 8 : Tile::kGroup / 16;  // of k under one scale
  static constexpr bool kHasGroups = Tile::kGroup != 0;
  static constexpr int kNumGroups = kHasGroups ? kW4StageK / Tile::kGroup : 1;  // of a stage
  static constexpr float kInverseUnit = 1.0f / W4Convert<T>::kUnit;

  const W4Params& p;
  const W4Ring& ring;
  uint32_t shared;
  int warpgroup;
  int my_scales;  // from the start of a stage's scales to those that the lane reads

  __device__ int lane() const { return static_cast<int>(threadIdx.x) % 32; }
  __device__ int unit() const { return static_cast<int>(threadIdx.x) / 32; }

  __device__ void release(const W4Ring::State& state) const {
    __syncwarp();
    if (lane() == 0) ring.consumer_release(state);
  }

  // The shuffle tells the compiler that the stage is the same in all lanes, so that descriptors are
  // computed in uniform registers.
  __device__ __forceinline__ uint32_t stage_of(const W4Ring::State& state) const {
    return shared + p.layout.stage(__shfl_sync(~0u, state.index, 0));
  }

  __device__ __forceinline__ static void add_part(float (&sums)[kRegs], const float (&part)[kRegs],
                                                  const float (&scale)[2]) {
    TESSERA_UNROLL
    for (int i = 0; i < kRegs; ++i) sums[i] = fmaf(part[i], scale[i / 2 % 2], sums[i]);
  }

  // What a lane reads of a stage for a block of k, but for the tokens.
  struct Operands {
    uint32_t words[2][4];           // codes, [64 of k][16 of k]
    float scale[kNumGroups][1][2];  // of the lane's two rows, as load_scales has them
    uint32_t zero[kNumGroups][2];
  };
  // Operands are loaded while the products of the block before run. With four strips there are no
  // registers for that; scales are then loaded while the products of their own group run.
  static constexpr bool kLoadsAhead = Tile::kStrips < 4;

  // Steps converted at once, while the products of those before run; two sets of fragments. Large
  // tiles, which have the registers, convert a whole group.
  static constexpr int kAtOnce = Tile::kIsLarge                      ? kSteps
                                 : kSteps < 4 || Tile::kTokens == 64 ? 2
                                                                     : 4;
  static constexpr int kSets = kSteps > kAtOnce ? 2 : 1;

  // One block of k, its groups one after another. `load_next` is called while the last one runs.
  template <class LoadNext>
  __device__ __forceinline__ void multiply_block(float (&sums)[kRegs], float (&part)[kRegs],
                                                 const W4Ring::State& state, Operands& operands,
                                                 LoadNext load_next) const {
    const uint32_t stage = stage_of(state);
    const uint64_t b =
        tile::k_major_descriptor<tile::Swizzle::b128>(stage + W4Stage<Tile>::kA, Tile::kTokens);
    TESSERA_UNROLL
    for (int group = 0; group < 8 / kSteps; ++group) {
      if constexpr (kHasGroups && !kLoadsAhead) load_zeros(stage, group, operands);
      uint32_t a[kSets][kAtOnce][4];
      TESSERA_UNROLL
      for (int begin = 0; begin < kSteps; begin += kAtOnce) {
        uint32_t(&fragments)[kAtOnce][4] = a[begin / kAtOnce % kSets];
        if (begin >= 2 * kAtOnce) tile::ptx::wgmma_wait_group<1>();
        TESSERA_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const int at = group * kSteps + begin + i;
          if (!kLoadsAhead && at % 4 == 0) load_words(stage, at / 4, operands);
          convert_word<T>(operands.words[at / 4][at % 4], operands.zero[group % kNumGroups],
                          fragments[i]);
        }
        tile::ptx::wgmma_fence();
        TESSERA_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const int at = group * kSteps + begin + i;
          const uint64_t b_step = tile::advance(b, at / 4 * Tile::kTokens * 128 + at % 4 * 32);
          tile::ptx::wgmma_rs<T, T>(part, fragments[i], b_step, !kHasGroups || begin + i > 0);
        }
        tile::ptx::wgmma_commit_group();
      }
      // A scale carries the factor that convert_word leaves out.
      if constexpr (kHasGroups && !kLoadsAhead) load_scale_bits(stage, group, operands);
      if constexpr (kHasGroups) widen_scales(p.scales, kInverseUnit, operands.scale[group]);
      if (group == 8 / kSteps - 1) load_next();
      tile::ptx::wgmma_wait_group<0>();
      tile::ptx::wgmma_hold(part);
      if constexpr (kHasGroups) add_part(sums, part, operands.scale[group][0]);
    }
    release(state);
  }

  // The codes of 64 elements of k.
  __device__ __forceinline__ void load_words(uint32_t stage, int half, Operands& operands) const {
    const float4 loaded = tile::ptx::load_shared_v4(
        stage + W4Stage<Tile>::kCodes + warpgroup * kW4StripBytes +
        half * static_cast<int>(kFragmentBlockBytes) + threadIdx.x % 128 * 16);
    operands.words[half][0] = __float_as_uint(loaded.x);
    operands.words[half][1] = __float_as_uint(loaded.y);
    operands.words[half][2] = __float_as_uint(loaded.z);
    operands.words[half][3] = __float_as_uint(loaded.w);
  }

  __device__ __forceinline__ void load_scale_bits(uint32_t stage, int group,
                                                  Operands& operands) const {
    load_scales<64>(p.scales, stage + W4Stage<Tile>::kScales + my_scales, group,
                    operands.scale[group]);
  }
  __device__ __forceinline__ void load_zeros(uint32_t stage, int group, Operands& operands) const {
    constexpr int kZeroBytes = w4_num_scales(Tile::kGroup);
    const int row = unit() % 4 * 16 + lane() / 4;
    TESSERA_UNROLL
    for (int i = 0; i < 2; ++i) {
      operands.zero[group][i] = negated_zero<T>(kFragmentZero);
      if (p.zero != nullptr) {
        const uint32_t place =
            stage + W4Stage<Tile>::kZeros + warpgroup * kZeroBytes + group * 64 + row + 8 * i;
        const uint32_t word = tile::ptx::load_shared(place & ~3u);
        operands.zero[group][i] =
            negated_zero<T>(static_cast<int>(word >> (8 * (place & 3)) & 0xff));
      }
    }
  }

  // Adds the blocks of k of one part, times their scales, to sums that are 0.
  __device__ __forceinline__ void multiply_range(float (&sums)[kRegs], W4Ring::State& state,
                                                 int count, const uint32_t (&row_zero)[2]) const {
    Operands operands;
    if constexpr (!kHasGroups) {
      operands.zero[0][0] = row_zero[0];
      operands.zero[0][1] = row_zero[1];
    }
    const auto load = [&](const W4Ring::State& from, Operands& to) {
      ring.consumer_wait(from);
      if constexpr (!kLoadsAhead) return;
      const uint32_t stage = stage_of(from);
      for (int half = 0; half < 2; ++half) load_words(stage, half, to);
      if constexpr (kHasGroups) {
        TESSERA_UNROLL
        for (int group = 0; group < kNumGroups; ++group) {
          load_scale_bits(stage, group, to);
          load_zeros(stage, group, to);
        }
      }
    };
    if (kLoadsAhead) load(state, operands);
    for (int block = 1; block <= count; ++block) {
      const W4Ring::State current = state;
      state.advance(p.layout.num_stages);
      if (!kLoadsAhead) load(current, operands);
      Operands next = operands;
      const auto load_next = [&] {
        if (kLoadsAhead && block < count) load(state, next);
      };
      if constexpr (kHasGroups) {
        float part[kRegs];
        leave_unset(part);
        multiply_block(sums, part, current, operands, load_next);
      } else {
        multiply_block(sums, sums, current, operands, load_next);
      }
      if (kLoadsAhead) operands = next;
    }
  }

  // The sums of this block's part of k, or of all parts, for its 16 rows of W.
  __device__ void multiply(float (&sums)[kRegs], W4Ring::State& state, W4Place at) const {
    const int row = at.n_tile * Tile::kRows + unit() * 16 + lane() / 4;
    uint32_t zero[2];
    TESSERA_UNROLL
    for (int i = 0; i < 2; ++i) {
      const bool is_given = !kHasGroups && p.zero != nullptr;
      zero[i] = negated_zero<T>(is_given ? p.zero[row + 8 * i] : kFragmentZero);
    }
    float scale[2] = {1, 1};
    if constexpr (!kHasGroups) {
      scale[0] = p.scales.at(row) * kInverseUnit;
      scale[1] = p.scales.at(row + 8) * kInverseUnit;
    }
    const auto clear = [&] {
      TESSERA_UNROLL
      for (int i = 0; i < kRegs; ++i) sums[i] = 0;
    };
    const auto apply_row_scale = [&] {
      if constexpr (!kHasGroups) {
        TESSERA_UNROLL
        for (int i = 0; i < kRegs; ++i) sums[i] *= scale[i / 2 % 2];
      }
    };
    // One part after another. A block that has them all keeps their sum in shared memory.
    const int first = at.split * p.block_parts;
    for (int part = first; part < first + p.block_parts; ++part) {
      clear();
      multiply_range(sums, state, p.first_k_block[part + 1] - p.first_k_block[part], zero);
      apply_row_scale();
      if (p.splits == 1) {
        if (p.parts > 1) add_to_total(sums, part);
      } else if constexpr (Tile::kIsLarge) {
        leave_part(sums, at, part);
      }
    }
  }

  // Keeps the ring going for a strip beyond n.
  __device__ void pass(W4Ring::State& state, W4Place at) const {
    const W4Range range = w4_k_range(p, at);
    for (int k_block = range.begin; k_block < range.end; ++k_block) {
      ring.consumer_wait(state);
      release(state);
      state.advance(p.layout.num_stages);
    }
  }

  // sums = total + sums; the total of the parts so far, from 0, is kept in shared memory, each
  // thread its own.
  __device__ void add_to_total(float (&sums)[kRegs], int part) const {
    const uint32_t mine = shared + threadIdx.x * 16;
    TESSERA_UNROLL
    for (int i = 0; i < kRegs; i += 4) {
      const uint32_t place = mine + i / 4 * (Tile::kStrips * 128 * 16);
      float4 total = make_float4(0, 0, 0, 0);
      if (part > 0) total = tile::ptx::load_shared_v4(place);
      sums[i] = total.x + sums[i];
      sums[i + 1] = total.y + sums[i + 1];
      sums[i + 2] = total.z + sums[i + 2];
      sums[i + 3] = total.w + sums[i + 3];
      tile::ptx::store_shared(
          place, make_uint4(__float_as_uint(sums[i]), __float_as_uint(sums[i + 1]),
                            __float_as_uint(sums[i + 2]), __float_as_uint(sums[i + 3])));
    }
  }

  // Where the lane's sums of a part of a large tile lie: [tile][part][unit][4 sums][lane].
  __device__ float4* partial_of(W4Place at, int part) const {
    const int64_t tile = (at.batch * p.num_n_tiles + at.n_tile) * p.num_m_tiles + at.m_tile;
    return p.partial + ((tile * p.parts + part) * Tile::kUnits + unit()) * (kRegs / 4 * 32) +
           lane();
  }
  __device__ void leave_part(const float (&sums)[kRegs], W4Place at, int part) const {
    float4* to = partial_of(at, part);
    TESSERA_UNROLL
    for (int i = 0; i < kRegs; i += 4) {
      __stcg(to + i / 4 * 32, make_float4(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]));
    }
  }
  // Whether all parts of the tile are there. All consumers call it.
  static constexpr int kFoldBarrier = 1;
  __device__ bool is_last(W4Place at) const {
    const int tile = (at.batch * p.num_n_tiles + at.n_tile) * p.num_m_tiles + at.m_tile;
    const uint32_t answer = shared + p.layout.fold_barrier();
    __threadfence();
    tile::ptx::bar_sync(kFoldBarrier, 128 * Tile::kStrips);
    if (threadIdx.x == 0) {
      const auto last = static_cast<uint32_t>(p.splits - 1);
      tile::ptx::store_shared(answer, atomicInc(p.tickets + tile, last) == last ? 1u : 0u);
      __threadfence();
    }
    tile::ptx::bar_sync(kFoldBarrier, 128 * Tile::kStrips);
    return tile::ptx::load_shared(answer) != 0;
  }
  // Two parts are loaded at once, as loads take longer than additions; large tiles that are shared
  // have an even number.
  __device__ void add_parts(float (&sums)[kRegs], W4Place at) const {
    TESSERA_UNROLL
    for (int i = 0; i < kRegs; ++i) sums[i] = 0;
    for (int part = 0; part < p.parts; part += 2) {
      float4 pieces[2][kRegs / 4];
      TESSERA_UNROLL
      for (int i = 0; i < 2 * (kRegs / 4); ++i) {
        pieces[i / (kRegs / 4)][i % (kRegs / 4)] =
            __ldcg(partial_of(at, part + i / (kRegs / 4)) + i % (kRegs / 4) * 32);
      }
      TESSERA_UNROLL
      for (int i = 0; i < 2 * (kRegs / 4); ++i) {
        const float4 piece = pieces[i / (kRegs / 4)][i % (kRegs / 4)];
        float* four = sums + i % (kRegs / 4) * 4;
        four[0] += piece.x;
        four[1] += piece.y;
        four[2] += piece.z;
        four[3] += piece.w;
      }
    }
  }

  // 16 rows of W by 16 tokens, finished and stored.
  __device__ void store_block(const float (&values)[8], uint32_t scratch, W4Place at, int unit,
                              int block) const {
    store_w4_block<T>(values, scratch, p.epilogue, at.m_tile * Tile::kTokens + 16 * block,
                      at.n_tile * Tile::kRows + 16 * unit, at.batch);
  }

  static constexpr int kBlockValues = 8;
  static constexpr int kBlocks = kRegs / kBlockValues;

  // The blocks of 16 tokens that exist. A loop with one copy of the epilogue: the sums move down.
  __device__ void finish_whole(float (&sums)[kRegs], W4Place at) const {
    const int num_tokens = min(Tile::kTokens, p.epilogue.m - at.m_tile * Tile::kTokens);
    const uint32_t scratch = shared + p.layout.fold_bytes - (Tile::kUnits - unit()) * 1024;
    for (int block = 0; 16 * block < num_tokens; ++block) {
      float values[kBlockValues];
      TESSERA_UNROLL
      for (int i = 0; i < kBlockValues; ++i) values[i] = sums[i];
      store_block(values, scratch, at, unit(), block);
      TESSERA_UNROLL
      for (int i = 0; i + kBlockValues < kRegs; ++i) sums[i] = sums[i + kBlockValues];
    }
  }

  // Every warp sends its partial sums to the block that adds up its unit, where they lie side by
  // side: [unit][part][8 tokens][lane] in pieces of 16 bytes.
  __device__ void finish_parts(const float (&sums)[kRegs], W4Place at, int num_units) const {
    const int rank = at.split;
    const uint32_t fold_barrier = shared + p.layout.fold_barrier();
    tile::ptx::cluster_wait();  // the barriers of all blocks are ready
    if (unit() < num_units) {
      const int owner = unit() * p.splits / (Tile::kUnits);
      const int local = unit() - p.first_unit[owner];
      const uint32_t target =
          tile::ptx::mapa(shared + ((local * p.parts + rank) * kEights) * 512 + lane() * 16, owner);
      const uint32_t barrier = tile::ptx::mapa(fold_barrier, owner);
      TESSERA_UNROLL
      for (int eight = 0; eight < kEights; ++eight) {
        const uint4 piece =
            make_uint4(__float_as_uint(sums[4 * eight]), __float_as_uint(sums[4 * eight + 1]),
                       __float_as_uint(sums[4 * eight + 2]), __float_as_uint(sums[4 * eight + 3]));
        tile::ptx::store_async_cluster(target + eight * 512, piece, barrier);
      }
    }
    const W4Range units{p.first_unit[rank], min(p.first_unit[rank + 1], num_units)};
    const int num_items = (units.end - units.begin) * kBlocks;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (warp >= num_items) return;
    tile::ptx::mbarrier_wait_cluster(fold_barrier, 0);
    for (int item = warp; item < num_items; item += Tile::kUnits) {
      const int local = item / kBlocks, block = item % kBlocks;
      const uint32_t first =
          shared + (local * p.parts * kEights + block * (kBlockValues / 4)) * 512;
      float values[kBlockValues];
      TESSERA_UNROLL
      for (int i = 0; i < kBlockValues; ++i) values[i] = 0;
      for (int part = 0; part < p.parts; ++part) {
        TESSERA_UNROLL
        for (int four = 0; four < kBlockValues / 4; ++four) {
          const float4 piece =
              tile::ptx::load_shared_v4(first + (part * kEights + four) * 512 + lane() * 16);
          values[4 * four] += piece.x;
          values[4 * four + 1] += piece.y;
          values[4 * four + 2] += piece.z;
          values[4 * four + 3] += piece.w;
        }
      }
      store_block(values, first, at, units.begin + local, block);
    }
  }

  __device__ void run() const {
    tile::wait_for_previous(Sm90{});
    W4Ring::State state;
    const W4Walk walk = w4_walk<Tile>(p);
    for (int i = walk.first; i < p.num_items; i += walk.step) {
      const W4Place at = w4_place<Tile>(p, i);
      const int num_units = w4_num_units<Tile>(p, at);
      const bool is_there = unit() < num_units;
      float sums[kRegs];
      if (is_there) {
        multiply(sums, state, at);
      } else {
        pass(state, at);
      }
      if constexpr (Tile::kIsLarge) {
        if (p.splits > 1) {
          if (!is_last(at)) continue;
          if (is_there) add_parts(sums, at);
        }
        if (is_there) finish_whole(sums, at);
      } else if (p.splits > 1) {
        finish_parts(sums, at, num_units);
      } else if (is_there) {
        finish_whole(sums, at);
      }
    }
  }
};

template <class T, class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    gemm_w4_sm90_kernel(const __grid_constant__ W4Params p) {
  extern __shared__ __align__(1024) char dynamic[];
  const uint32_t shared = tile::ptx::shared_address(dynamic);
  W4Ring ring(*reinterpret_cast<W4Ring::Barriers*>(dynamic + p.layout.barriers()));
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
  constexpr int kCodeWarp = Tile::kUnits;
  const bool is_in_cluster = !Tile::kIsLarge && p.splits > 1;
  const W4CodeProducer<Tile> codes{p, ring, shared};
  if (warp == kCodeWarp) {
    ring.init_by_warp(2, Tile::kUnits, p.layout.num_stages);
    if (threadIdx.x % 32 == 0 && is_in_cluster) {
      const uint32_t fold_barrier = shared + p.layout.fold_barrier();
      const W4Place at = w4_place<Tile>(p, w4_walk<Tile>(p).first);
      const int rank = at.split;
      tile::ptx::mbarrier_init(fold_barrier, 1);
      tile::ptx::fence_mbarrier_init();
      const int mine = min(p.first_unit[rank + 1], w4_num_units<Tile>(p, at)) - p.first_unit[rank];
      tile::ptx::mbarrier_arrive_expect_tx(fold_barrier,
                                           max(mine, 0) * p.parts * (Tile::kTokens / 8) * 512);
    }
    __syncwarp();
    codes.start_early();
  }
  // The fence of the barriers' initialisation is all that the other blocks need.
  if (is_in_cluster) tile::ptx::cluster_arrive_relaxed();
  __syncthreads();
  if (warp >= kCodeWarp) {
    tile::ptx::setmaxnreg_dec<Tile::kProducerRegisters>();
    if (warp == kCodeWarp) codes.run();
    if (warp == kCodeWarp + 1 && threadIdx.x % 32 == 0) {
      W4TokenProducer<Tile>{p, ring, shared}.run();
    }
    __syncwarp();
    if (is_in_cluster) tile::ptx::cluster_wait();
  } else {
    tile::ptx::setmaxnreg_inc<Tile::kConsumerRegisters>();
    const int my_scales = warp / 4 * w4_scale_room(Tile::kGroup) +
                          (warp % 4 * 16 << p.scales.shift) + lane_scales<64>(p.scales);
    W4Consumer<T, Tile>{p, ring, shared, warp / 4, my_scales}.run();
  }
}

// A [batch, m, k] as slabs of 128 bytes of k, two to a copy, with coordinates
// (in slab, row, slab, batch).
inline CUtensorMap w4_token_map(const TensorView& a, int tokens) {
  const bool is_batched = a.rank == 3;
  return tile::make_tensor_map(
      {.data = a.data,
       .dtype = a.dtype,
       .rank = 4,
       .dims = {64, a.size(-2), a.size(-1) / 64, is_batched ? a.size(0) : 1},
       .strides = {1, a.stride(-2), 64, is_batched ? a.stride(0) : a.stride(-2)},
       .box = {64, tokens, 2, 1},
       .swizzle = tile::Swizzle::b128});
}

template <class T, class Tile>
void launch_w4_tile(const GemmArgs& args, const W4Plan& plan, const Context& ctx) {
  W4Params p{};
  p.codes = static_cast<const char*>(args.b.values.data);
  p.scales = w4_scales(*args.b.scale);
  p.zero = args.b.zero_point ? args.b.zero_point->as<uint8_t>() : nullptr;
  p.layout = plan.layout;
  p.num_k_blocks = static_cast<int>(args.a.size(-1) / kW4StageK);
  p.parts = plan.parts;
  p.splits = plan.splits;
  p.block_parts = plan.parts / plan.splits;
  p.num_m_tiles = plan.num_m_tiles;
  p.num_n_tiles = plan.num_n_tiles;
  p.num_tiles = plan.num_tiles;
  p.num_items = plan.num_items;
  p.num_early = args.b.is_static ? plan.num_early : 0;
  for (int part = 0; part <= plan.parts; ++part) {
    p.first_k_block[part] = w4_first_k_block(p.num_k_blocks, plan.parts, part);
    p.first_unit[part] = (part * Tile::kUnits + plan.parts - 1) / plan.parts;
  }
  p.a_map = w4_token_map(args.a, Tile::kTokens);
  p.epilogue = epilogue_params(args);
  const bool shares_tiles = Tile::kIsLarge && plan.splits > 1;
  const auto num_tiles = static_cast<size_t>(shares_tiles ? plan.num_tiles : 0);
  const StreamScratch scratch(
      args.a.device, ctx.stream,
      {.num_bytes = num_tiles * plan.parts * Tile::kRows * Tile::kTokens * sizeof(float),
       .num_tickets = num_tiles});
  p.partial = static_cast<float4*>(scratch.data());
  p.tickets = scratch.tickets();
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(plan.num_blocks)),
                          .block = dim3(Tile::kThreads),
                          .shared_bytes = static_cast<size_t>(plan.layout.size()),
                          .cluster = Tile::kIsLarge ? 1u : static_cast<unsigned>(plan.splits),
                          .overlaps_previous = true};
  launch(&gemm_w4_sm90_kernel<T, Tile>, shape, p, ctx);
}

template <class T, int kGroup>
void launch_w4(const GemmArgs& args, const W4Plan& plan, const Context& ctx) {
  if (plan.tokens == 128) return launch_w4_tile<T, W4Tile<128, kGroup, 2>>(args, plan, ctx);
  const bool is_found = with_constant<3, 4>(plan.strips, [&](auto strips) {
    if (plan.tokens == 32) {
      launch_w4_tile<T, W4Tile<32, kGroup, strips()>>(args, plan, ctx);
    } else {
      launch_w4_tile<T, W4Tile<64, kGroup, strips()>>(args, plan, ctx);
    }
  });
  expects(is_found, "gemm: the plan names a tile that is not compiled");
}

}  // namespace tessera::kernels
