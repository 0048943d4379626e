// The product with 4-bit weights on Hopper: 16-bit A, codes converted in registers.
// SPDX-License-Identifier: MIT
//
//   D^T = epilogue(W[n, k] . A[m, k]^T),   W = (codes - zero point) * scale,   sums in float
//
// Work      A block owns 256 rows of W, a strip of 64 for each of four warpgroups, by up to 64 rows
//           of A; or 128 by up to 128. W is the operand whose rows fill the instruction, so that 1
//           to 8 tokens cost an n of 8 and nothing is padded to 64. Where n has few blocks, a
//           cluster cuts k into parts, one for each block; with 128 rows of A a block has them all.
// Pipeline  One warp copies codes, scales and zero points into a ring by TMA, the first stages
//           before the kernel in front has finished if the weight is static. Another warp copies A:
//           few tokens by cp.async, which does not queue behind the codes in the TMA unit, many by
//           TMA. Consumers load 16 bytes and make four fragments of them. Up to 8 tokens each warp
//           multiplies by mma.sync; more by wgmma, while the next fragments are converted.
// Output    Codes become exact integers (times a power of two), the sum over one group is taken by
//           the tensor cores from zero, and its scale is applied to it in float: one fused
//           multiply-add per group. Parts of k are added in their order. Tile, group and parts
//           depend on n, k and the device alone, so a row of A has the same bits for every m.
// Cost      Per 8 codes: a shift, 4 ANDs and 4 packed multiply-adds. The bytes of W are read once:
//           4.25 bits a weight with groups of 128. docs/kernels/gemm_quantised.md
// Needs     Packing::fragments, n a multiple of 64, k a multiple of 128; rows of A that start at
//           multiples of 16 bytes.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/w4/convert.cuh"
#include "kernels/gemm/w4/launch.h"
#include "kernels/gemm/w4/plan.h"
#include "kernels/launch.h"
#include "tessera/ops/weight_packing.h"
#include "tile/arch.cuh"
#include "tile/descriptor.cuh"
#include "tile/fragment.cuh"
#include "tile/pipeline.cuh"
#include "tile/ptx/address.cuh"
#include "tile/ptx/cluster.cuh"
#include "tile/ptx/cluster_index.cuh"
#include "tile/ptx/cp_async.cuh"
#include "tile/ptx/ldmatrix.cuh"
#include "tile/ptx/mbarrier.cuh"
#include "tile/ptx/mma.cuh"
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
  const float* scale;   // [n / 64, k / group, 64]; [n] where a row has one
  const uint8_t* zero;  // like scale; null: 8 everywhere
  const char* a;        // [batch, m, k]
  int64_t a_row_bytes;
  int64_t a_batch_bytes;
  CUtensorMap a_map;  // the same, for TMA; read only if is_w4_copied_by_tma
  W4Layout layout;
  int num_k_blocks;  // of 128; at least 1
  int parts;         // of k
  int splits;        // of k over the blocks of a cluster: parts, or 1
  int num_m_tiles;
  int num_n_tiles;
  int num_tiles;
  int num_early;  // stages to load before the kernel in front has finished; 0: none
  // So that no block divides: the first block of 128 of each part of k; and, by rank in the
  // cluster, the first of the units of 16 rows that a block adds up. Each ends where the next
  // begins.
  int first_k_block[kW4MaxSplits + 1];
  int first_unit[kW4MaxSplits + 1];
  EpilogueParams epilogue;
};
static_assert(std::is_trivially_copyable_v<W4Params>);

using W4Ring = tile::Pipeline<kW4MaxStages>;

// The tile that a cluster computes. Consecutive tiles have the same rows of W.
struct W4Place {
  int n_tile;
  int m_tile;
  int batch;
};
__device__ inline W4Place w4_place(const W4Params& p, int index) {
  if (p.num_tiles == p.num_n_tiles) return {index, 0, 0};
  const int per_batch = p.num_m_tiles * p.num_n_tiles;
  const int batch = index / per_batch;
  index -= batch * per_batch;
  return {index / p.num_m_tiles, index % p.num_m_tiles, batch};
}
// A cluster that splits k has one tile; other blocks take tiles in turn.
struct W4Walk {
  int first;
  int step;
};
__device__ inline W4Walk w4_walk(const W4Params& p) {
  if (p.splits > 1) return {static_cast<int>(tile::ptx::cluster_index()), p.num_tiles};
  return {static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)};
}

// A block's rank in its cluster, and its blocks of k. Each role computes them anew: kept across the
// roles' branches they would be spilled.
__device__ inline int w4_rank(const W4Params& p) {
  return p.splits > 1 ? static_cast<int>(tile::ptx::cluster_rank()) : 0;
}
__device__ inline W4Range w4_k_range(const W4Params& p) {
  if (p.splits == 1) return {0, p.num_k_blocks};
  const int rank = w4_rank(p);
  return {p.first_k_block[rank], p.first_k_block[rank + 1]};
}

// Offsets in a stage.
template <class Tile>
struct W4Stage {
  static constexpr int kA = 0;
  static constexpr int kCodes = Tile::kTokens * kW4StageK * 2;
  static constexpr int kScales = kCodes + Tile::kStrips * kW4StripBytes;
  static constexpr int kZeros = kScales + Tile::kStrips * w4_scale_bytes(Tile::kGroup);
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
    constexpr int kScaleBytes = w4_scale_bytes(Tile::kGroup);
    constexpr int kZeroBytes = w4_zero_bytes(Tile::kGroup);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int strips = num_strips(at);
    const bool has_zeros = kZeroBytes > 0 && p.zero != nullptr;
    if (lane == 0) {
      ring.producer_expect(state,
                           strips * (kW4StripBytes + kScaleBytes + (has_zeros ? kZeroBytes : 0)));
    }
    __syncwarp();
    if (lane >= strips) return;
    const int64_t block =
        static_cast<int64_t>(at.n_tile * Tile::kStrips + lane) * p.num_k_blocks + k_block;
    const uint32_t stage = shared + p.layout.stage(state.index);
    const uint32_t barrier = ring.full(state);
    tile::ptx::bulk_load(stage + W4Stage<Tile>::kCodes + lane * kW4StripBytes,
                         p.codes + block * kW4StripBytes, kW4StripBytes, barrier);
    if constexpr (kScaleBytes > 0) {
      tile::ptx::bulk_load(stage + W4Stage<Tile>::kScales + lane * kScaleBytes,
                           reinterpret_cast<const char*>(p.scale) + block * kScaleBytes,
                           kScaleBytes, barrier);
      if (has_zeros) {
        tile::ptx::bulk_load(stage + W4Stage<Tile>::kZeros + lane * kZeroBytes,
                             p.zero + block * kZeroBytes, kZeroBytes, barrier);
      }
    }
  }

  // The first stages of a static weight, while the kernel in front still runs.
  __device__ void start_early() const {
    const W4Range range = w4_k_range(p);
    const W4Place first = w4_place(p, w4_walk(p).first);
    W4Ring::State state;
    for (int i = 0; i < min(p.num_early, range.end - range.begin); ++i) {
      load(state, first, range.begin + i);
      state.advance(p.layout.num_stages);
    }
  }

  __device__ void run() const {
    if (p.num_early == 0) tile::wait_for_previous(Sm90{});
    const W4Range range = w4_k_range(p);
    int num_early = min(p.num_early, range.end - range.begin);
    W4Ring::State state;
    const W4Walk walk = w4_walk(p);
    for (int i = walk.first; i < p.num_tiles; i += walk.step) {
      const W4Place at = w4_place(p, i);
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

// Copies A: one warp.
template <class Tile>
struct W4TokenProducer {
  const W4Params& p;
  const W4Ring& ring;
  uint32_t shared;

  // By TMA: one thread. Rows beyond m come as zeros.
  __device__ void copy(const W4Ring::State& state, W4Place at, int k_block) const {
    ring.producer_expect(state, W4Stage<Tile>::kCodes);
    tile::ptx::tensor_load(shared + p.layout.stage(state.index) + W4Stage<Tile>::kA, &p.a_map,
                           tile::ptx::Coord{0, at.m_tile * Tile::kTokens, k_block * 2, at.batch},
                           ring.full(state));
  }

  // By cp.async: half of the warp copies the 256 bytes of a row. Rows beyond m are not copied: what
  // lies in their place reaches results that are not stored.
  __device__ void load(const W4Ring::State& state, W4Place at, int k_block) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int piece = lane % 16;
    const int first = at.m_tile * Tile::kTokens;
    const int num_rows = min(Tile::kTokens, p.epilogue.m - first);
    const uint32_t slab = shared + p.layout.stage(state.index) + W4Stage<Tile>::kA +
                          piece / 8 * (Tile::kTokens * 128);
    const char* source = p.a + at.batch * p.a_batch_bytes + (first + lane / 16) * p.a_row_bytes +
                         k_block * (2 * kW4StageK) + piece * 16;
#pragma unroll 2  // more would need more registers than producers have
    for (int row = lane / 16; row < num_rows; row += 2, source += 2 * p.a_row_bytes) {
      tile::ptx::cp_async<16>(
          slab + tile::swizzled(tile::Swizzle::b128, row * 128 + piece % 8 * 16), source);
    }
    tile::ptx::cp_async_commit_group();
  }
  // Copies are done: tells the consumers, whose wgmma reads through the async proxy.
  __device__ void hand_over(W4Ring::State& state) const {
    tile::ptx::fence_proxy_async_shared();
    __syncwarp();
    if (threadIdx.x % 32 == 0) ring.producer_commit(state);
    state.advance(p.layout.num_stages);
  }

  __device__ void run() const {
    tile::wait_for_previous(Sm90{});
    const W4Range range = w4_k_range(p);
    W4Ring::State state, oldest;
    int num_waiting = 0;
    const W4Walk walk = w4_walk(p);
    for (int i = walk.first; i < p.num_tiles; i += walk.step) {
      const W4Place at = w4_place(p, i);
      for (int k_block = range.begin; k_block < range.end; ++k_block) {
        ring.producer_acquire(state);
        if constexpr (is_w4_copied_by_tma(Tile::kTokens)) {
          if (threadIdx.x % 32 == 0) copy(state, at, k_block);
          state.advance(p.layout.num_stages);
        } else {
          load(state, at, k_block);
          state.advance(p.layout.num_stages);
          if (++num_waiting <= kW4Lag) continue;
          tile::ptx::cp_async_wait_group<kW4Lag>();
          hand_over(oldest);
          --num_waiting;
        }
      }
    }
    tile::ptx::cp_async_wait_group<0>();
    for (; num_waiting > 0; --num_waiting) hand_over(oldest);
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
  static constexpr float kInverseUnit = 1.0f / W4Convert<T>::kUnit;

  const W4Params& p;
  const W4Ring& ring;
  uint32_t shared;
  int warpgroup;

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

  // One block of k by mma.sync. Sums of a group start at 0, as those of wgmma do.
  __device__ __forceinline__ void multiply_block_mma(float (&sums)[kRegs],
                                                     const W4Ring::State& state,
                                                     const uint32_t (&row_zero)[2]) const {
    const uint32_t stage = shared + p.layout.stage(state.index);
    ring.consumer_wait(state);
    float part[kRegs];
    float scale[2] = {};
    uint32_t zero[2] = {row_zero[0], row_zero[1]};
    // Everything is asked for at once, so that its latency is waited for once.
    uint32_t words[2][4];
    load_words(stage, 0, words[0]);
    load_words(stage, 1, words[1]);
    uint32_t tokens[4][kEights][4];
    TESSERA_UNROLL
    for (int i = 0; i < 4 * kEights; ++i) {
      load_tokens(stage, i % kEights, i / kEights, tokens[i / kEights][i % kEights]);
    }
    TESSERA_UNROLL
    for (int step = 0; step < 8; ++step) {
      if constexpr (kHasGroups) {
        if (step % kSteps == 0) {
          if (step > 0) add_part(sums, part, scale);
          load_group(stage, step / kSteps, zero, scale);
          TESSERA_UNROLL
          for (int i = 0; i < kRegs; ++i) part[i] = 0;
        }
      }
      uint32_t a[4];
      convert_word<T>(words[step / 4][step % 4], zero, a);
      float(&target)[kRegs] = kHasGroups ? part : sums;
      TESSERA_UNROLL
      for (int eight = 0; eight < kEights; ++eight) {
        float d[4];
        TESSERA_UNROLL
        for (int i = 0; i < 4; ++i) d[i] = target[4 * eight + i];
        const uint32_t(&pair)[4] = tokens[step / 2][eight];
        const uint32_t operand[2] = {pair[step % 2 * 2], pair[step % 2 * 2 + 1]};
        tile::ptx::mma<T>(d, a, operand);
        TESSERA_UNROLL
        for (int i = 0; i < 4; ++i) target[4 * eight + i] = d[i];
      }
    }
    if constexpr (kHasGroups) add_part(sums, part, scale);
    release(state);
  }

  // Eight tokens by 32 elements of k, as two operands of mma.
  __device__ __forceinline__ void load_tokens(uint32_t stage, int eight, int pair,
                                              uint32_t (&tokens)[4]) const {
    const int row = 8 * eight + lane() % 8;
    const int byte = pair % 2 * 64 + lane() / 8 * 16;
    tile::ptx::ldmatrix(tokens, stage + W4Stage<Tile>::kA + pair / 2 * (Tile::kTokens * 128) +
                                    tile::swizzled(tile::Swizzle::b128, row * 128 + byte));
  }

  // Steps converted at once, while the products of those before run; two sets of fragments.
  static constexpr int kAtOnce = kSteps < 4 || Tile::kTokens == 64 ? 2 : 4;

  // One block of k, its groups one after another.
  __device__ __forceinline__ void multiply_block(float (&sums)[kRegs], float (&part)[kRegs],
                                                 const W4Ring::State& state,
                                                 const uint32_t (&row_zero)[2]) const {
    const uint32_t stage = stage_of(state);
    const uint64_t b =
        tile::k_major_descriptor<tile::Swizzle::b128>(stage + W4Stage<Tile>::kA, Tile::kTokens);
    ring.consumer_wait(state);
    uint32_t words[4];  // of the four steps at hand
    TESSERA_UNROLL
    for (int group = 0; group < 8 / kSteps; ++group) {
      uint32_t zero[2] = {row_zero[0], row_zero[1]};
      float scale[2] = {};
      if constexpr (kHasGroups) load_group(stage, group, zero, scale);
      uint32_t a[2][kAtOnce][4];
      TESSERA_UNROLL
      for (int begin = 0; begin < kSteps; begin += kAtOnce) {
        uint32_t(&fragments)[kAtOnce][4] = a[begin / kAtOnce % 2];
        if ((group * kSteps + begin) % 4 == 0) {
          load_words(stage, (group * kSteps + begin) / 4, words);
        }
        if (begin >= 2 * kAtOnce) tile::ptx::wgmma_wait_group<1>();
        TESSERA_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          convert_word<T>(words[(group * kSteps + begin + i) % 4], zero, fragments[i]);
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
      tile::ptx::wgmma_wait_group<0>();
      tile::ptx::wgmma_hold(part);
      if constexpr (kHasGroups) add_part(sums, part, scale);
    }
    release(state);
  }

  // The thread's codes of 64 elements of k.
  __device__ __forceinline__ void load_words(uint32_t stage, int block,
                                             uint32_t (&words)[4]) const {
    const float4 loaded = tile::ptx::load_shared_v4(
        stage + W4Stage<Tile>::kCodes + warpgroup * kW4StripBytes +
        block * static_cast<int>(kFragmentBlockBytes) + threadIdx.x % 128 * 16);
    words[0] = __float_as_uint(loaded.x);
    words[1] = __float_as_uint(loaded.y);
    words[2] = __float_as_uint(loaded.z);
    words[3] = __float_as_uint(loaded.w);
  }

  // Scales and zero points of the lane's two rows. A scale carries the factor that convert_word
  // leaves out.
  __device__ __forceinline__ void load_group(uint32_t stage, int group, uint32_t (&zero)[2],
                                             float (&scale)[2]) const {
    constexpr int kScaleBytes = w4_scale_bytes(Tile::kGroup);
    constexpr int kZeroBytes = w4_zero_bytes(Tile::kGroup);
    const int row = unit() % 4 * 16 + lane() / 4;
    TESSERA_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int at = group * 64 + row + 8 * i;
      scale[i] = __uint_as_float(tile::ptx::load_shared(stage + W4Stage<Tile>::kScales +
                                                        warpgroup * kScaleBytes + at * 4)) *
                 kInverseUnit;
      if (p.zero != nullptr) {
        const uint32_t place = stage + W4Stage<Tile>::kZeros + warpgroup * kZeroBytes + at;
        const uint32_t word = tile::ptx::load_shared(place & ~3u);
        zero[i] = negated_zero<T>(static_cast<int>(word >> (8 * (place & 3)) & 0xff));
      }
    }
  }

  // Adds the blocks of k of one part, times their scales, to sums that are 0.
  __device__ __forceinline__ void multiply_range(float (&sums)[kRegs], W4Ring::State& state,
                                                 int count, const uint32_t (&zero)[2]) const {
    for (int block = 0; block < count; ++block) {
      if constexpr (Tile::kUsesMma) {
        multiply_block_mma(sums, state, zero);
      } else if constexpr (kHasGroups) {
        float part[kRegs];
        leave_unset(part);
        multiply_block(sums, part, state, zero);
      } else {
        multiply_block(sums, sums, state, zero);
      }
      state.advance(p.layout.num_stages);
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
      scale[0] = p.scale[row] * kInverseUnit;
      scale[1] = p.scale[row + 8] * kInverseUnit;
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
    clear();
    if constexpr (Tile::kTokens > 64) {  // parts one after another, their sum in shared memory
      for (int part = 0; part < p.parts; ++part) {
        multiply_range(sums, state, p.first_k_block[part + 1] - p.first_k_block[part], zero);
        apply_row_scale();
        if (p.parts == 1) return;
        add_to_total(sums, part);
        if (part + 1 < p.parts) clear();
      }
    } else {
      const W4Range range = w4_k_range(p);
      multiply_range(sums, state, range.end - range.begin, zero);
      apply_row_scale();
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

  // 16 rows of W by 8 or 16 tokens, finished and stored. In registers they lie as wgmma leaves
  // them, with W along the rows; the epilogue wants tokens there. `scratch` has room for them.
  template <int kValues>
  __device__ void store_block(const float (&values)[kValues], uint32_t scratch, W4Place at,
                              int unit, int block) const {
    static_assert(kValues == 4 || kValues == 8);
    __syncwarp();  // the lanes have read what lay there
    TESSERA_UNROLL
    for (int i = 0; i < kValues; ++i) {
      const tile::TileCoord coord = tile::mma_accumulator_coord(lane(), i % 4);
      const int token = 8 * (i / 4) + coord.col;
      tile::ptx::store_shared(scratch + (token * 16 + coord.row) * 4, __float_as_uint(values[i]));
    }
    __syncwarp();
    float d[8] = {};
    TESSERA_UNROLL
    for (int i = 0; i < 8; ++i) {
      if (kValues == 4 && i % 4 >= 2) continue;  // tokens 8 to 15
      const tile::TileCoord coord = tile::mma_accumulator_coord(lane(), i % 4);
      d[i] = __uint_as_float(
          tile::ptx::load_shared(scratch + (coord.row * 16 + 8 * (i / 4) + coord.col) * 4));
    }
    const BlockPlace place{at.m_tile * Tile::kTokens + 16 * block + lane() / 4,
                           at.n_tile * Tile::kRows + 16 * unit + 2 * (lane() % 4), at.batch};
    if (!p.epilogue.is_plain) transform<T>(d, p.epilogue, place);
    store_direct<T>(d, p.epilogue, place);
  }

  static constexpr int kBlockValues = Tile::kTokens == 8 ? 4 : 8;
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
    const int rank = w4_rank(p);
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
    const W4Walk walk = w4_walk(p);
    for (int i = walk.first; i < p.num_tiles; i += walk.step) {
      const W4Place at = w4_place(p, i);
      const int num_units = w4_num_units<Tile>(p, at);
      float sums[kRegs];
      if (unit() < num_units) {
        multiply(sums, state, at);
        if (p.splits == 1) finish_whole(sums, at);
      } else {  // a strip beyond n: keeps the ring going
        const W4Range range = w4_k_range(p);
        for (int k_block = range.begin; k_block < range.end; ++k_block) {
          ring.consumer_wait(state);
          release(state);
          state.advance(p.layout.num_stages);
        }
      }
      if (p.splits > 1) finish_parts(sums, at, num_units);
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
  const W4CodeProducer<Tile> codes{p, ring, shared};
  if (warp == kCodeWarp) {
    ring.init_by_warp(2, Tile::kUnits, p.layout.num_stages);
    if (threadIdx.x % 32 == 0 && p.splits > 1) {
      const uint32_t fold_barrier = shared + p.layout.fold_barrier();
      const int rank = w4_rank(p);
      tile::ptx::mbarrier_init(fold_barrier, 1);
      tile::ptx::fence_mbarrier_init();
      const W4Place at = w4_place(p, w4_walk(p).first);
      const int mine = min(p.first_unit[rank + 1], w4_num_units<Tile>(p, at)) - p.first_unit[rank];
      tile::ptx::mbarrier_arrive_expect_tx(fold_barrier,
                                           max(mine, 0) * p.parts * (Tile::kTokens / 8) * 512);
    }
    __syncwarp();
    codes.start_early();
  }
  // The fence of the barriers' initialisation is all that the other blocks need.
  if (p.splits > 1) tile::ptx::cluster_arrive_relaxed();
  __syncthreads();
  if (warp >= kCodeWarp) {
    tile::ptx::setmaxnreg_dec<Tile::kProducerRegisters>();
    if (warp == kCodeWarp) codes.run();
    if (warp == kCodeWarp + 1) W4TokenProducer<Tile>{p, ring, shared}.run();
    if (p.splits > 1) tile::ptx::cluster_wait();
  } else {
    tile::ptx::setmaxnreg_inc<Tile::kConsumerRegisters>();
    W4Consumer<T, Tile>{p, ring, shared, warp / 4}.run();
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
  p.scale = args.b.scale->as<float>();
  p.zero = args.b.zero_point ? args.b.zero_point->as<uint8_t>() : nullptr;
  p.a = static_cast<const char*>(args.a.data);
  p.a_row_bytes = args.a.stride(-2) * 2;
  p.a_batch_bytes = args.a.rank == 3 ? args.a.stride(0) * 2 : 0;
  p.layout = plan.layout;
  p.num_k_blocks = static_cast<int>(args.a.size(-1) / kW4StageK);
  p.parts = plan.parts;
  p.splits = plan.splits;
  p.num_m_tiles = plan.num_m_tiles;
  p.num_n_tiles = plan.num_n_tiles;
  p.num_tiles = plan.num_tiles;
  p.num_early = args.b.is_static ? plan.num_early : 0;
  for (int part = 0; part <= plan.parts; ++part) {
    p.first_k_block[part] = part * p.num_k_blocks / plan.parts;
    p.first_unit[part] = (part * Tile::kUnits + plan.parts - 1) / plan.parts;
  }
  if constexpr (is_w4_copied_by_tma(Tile::kTokens)) p.a_map = w4_token_map(args.a, Tile::kTokens);
  p.epilogue = epilogue_params(args);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(plan.num_blocks)),
                          .block = dim3(Tile::kThreads),
                          .shared_bytes = static_cast<size_t>(plan.layout.size()),
                          .cluster = static_cast<unsigned>(plan.splits),
                          .overlaps_previous = true};
  launch(&gemm_w4_sm90_kernel<T, Tile>, shape, p, ctx);
}

template <class T, int kGroup>
void launch_w4(const GemmArgs& args, const W4Plan& plan, const Context& ctx) {
  switch (plan.tokens) {
    case 8: return launch_w4_tile<T, W4Tile<8, kGroup>>(args, plan, ctx);
    case 16: return launch_w4_tile<T, W4Tile<16, kGroup>>(args, plan, ctx);
    case 32: return launch_w4_tile<T, W4Tile<32, kGroup>>(args, plan, ctx);
    case 64: return launch_w4_tile<T, W4Tile<64, kGroup>>(args, plan, ctx);
    default: return launch_w4_tile<T, W4Tile<128, kGroup>>(args, plan, ctx);
  }
}

}  // namespace tessera::kernels
