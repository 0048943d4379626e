// The product with 4-bit weights on Hopper for up to 16 tokens: one warp for 16 rows of W.
// SPDX-License-Identifier: MIT
//
//   D^T = epilogue(W[n, k] . A[m, k]^T),   W = (codes - zero point) * scale,   sums in float
//
// Work      A warp owns a unit, 16 rows of W, by one part of k; a block has several units, by all
//           parts of k or, in a cluster, by one of them. Rows are cut so that there is a block for
//           nearly every SM. mma.sync multiplies, with W as the operand of 16 rows.
// Pipeline  Each lane copies its own 16 bytes of codes for 64 of k into a ring that belongs to its
//           warp, by cp.async, and reads them back: warps never wait for one another. A static
//           weight's ring is filled before the kernel in front has finished. A comes by bulk copies
//           in chunks of k, each with a barrier, and stays.
// Output    As that of w4_sm90.cuh, bit for bit: the same parts of k, added in the same order, and
//           the same sums of groups.
// Cost      Per 8 codes: a shift, 4 ANDs and 4 packed multiply-adds; a ring holds 4 or 8 KB for
//           each warp. docs/kernels/gemm_quantised.md
// Needs     As w4_sm90.cuh; at most 16 tokens, whose part of k fits into shared memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/w4/convert.cuh"
#include "kernels/gemm/w4/few_plan.h"
#include "kernels/gemm/w4/finish.cuh"
#include "kernels/gemm/w4/launch.h"
#include "kernels/launch.h"
#include "tile/arch.cuh"
#include "tile/ptx/address.cuh"
#include "tile/ptx/cluster.cuh"
#include "tile/ptx/cluster_index.cuh"
#include "tile/ptx/cp_async.cuh"
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
  const float* scale;   // [n / 64, k / group, 64]; [n] where a row has one
  const uint8_t* zero;  // like scale; null: 8 everywhere
  const char* a;        // [batch, m, k]
  int64_t a_row_bytes;
  int64_t a_batch_bytes;
  W4FewLayout layout;
  int num_k_blocks;          // of 128; at least 1
  int parts;                 // of k
  int splits;                // of k over the blocks of a cluster: parts, or 1
  int units;                 // of a block
  int num_unit_blocks;       // of a batch
  bool releases_late;        // the next kernel may start once this one has multiplied
  bool is_static;            // the weight may be read before the kernel in front has finished
  int first_k_block[8 + 1];  // of each part; it ends where the next begins
  EpilogueParams epilogue;
};
static_assert(std::is_trivially_copyable_v<W4FewParams>);

template <class T, class Tile>
struct W4FewWarp {
  static constexpr int kEights = Tile::kTokens / 8;
  static constexpr int kRegs = 4 * kEights;
  static constexpr bool kHasGroups = Tile::kGroup != 0;
  static constexpr int kGroups = kHasGroups ? kW4StageK / Tile::kGroup : 0;  // of a block of k
  static constexpr int kSteps = kHasGroups ? Tile::kGroup / 16 : 8;          // under one scale
  static constexpr int kMaxGroups = kHasGroups ? kGroups : 1;
  static constexpr int kPair = Tile::kPair;
  static constexpr float kInverseUnit = 1.0f / W4Convert<T>::kUnit;
  static constexpr int kScales = kW4UnitBytes;  // offset in a slot
  static constexpr int kZeros = kScales + kGroups * 64;

  const W4FewParams& p;
  uint32_t shared;
  int unit;     // of the weight
  int count;    // blocks of k; 0: the unit lies beyond n
  int k_block;  // the first
  uint32_t ring;
  // Where the lane's next copies come from.
  const char* codes;
  const char* scales;
  const char* zeros;
  int num_left;  // blocks that are not yet requested

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  __device__ void start() {
    const int64_t block = static_cast<int64_t>(unit / 4) * p.num_k_blocks + k_block;
    codes = p.codes + block * (4 * kW4UnitBytes) + unit % 4 * 512 + lane() * 16;
    if constexpr (kHasGroups) {
      scales = reinterpret_cast<const char*>(p.scale) + block * (kGroups * 256) + lane() / 4 * 256 +
               unit % 4 * 64 + lane() % 4 * 16;
      zeros = reinterpret_cast<const char*>(p.zero) + block * (kGroups * 64) + lane() * 64 +
              unit % 4 * 16;
    }
    num_left = count;
  }

  // Requests the next kPair blocks of k into their slots, as one group of copies.
  __device__ __forceinline__ void request(uint32_t slot) {
    TESSERA_UNROLL
    for (int i = 0; i < kPair; ++i) {
      if (num_left > i) {
        const uint32_t to = slot + i * p.layout.slot_bytes;
        tile::ptx::cp_async<16>(to + lane() * 16, codes + i * 4 * kW4UnitBytes);
        tile::ptx::cp_async<16>(to + 512 + lane() * 16, codes + i * 4 * kW4UnitBytes + 2048);
        if constexpr (kHasGroups) {
          if (lane() < 4 * kGroups) {
            tile::ptx::cp_async<16>(to + kScales + lane() * 16, scales + i * kGroups * 256);
          }
          if (p.zero != nullptr && lane() < kGroups) {
            tile::ptx::cp_async<16>(to + kZeros + lane() * 16, zeros + i * kGroups * 64);
          }
        }
      }
    }
    tile::ptx::cp_async_commit_group();
    num_left -= kPair;
    codes += kPair * 4 * kW4UnitBytes;
    if constexpr (kHasGroups) {
      scales += kPair * kGroups * 256;
      if (p.zero != nullptr) zeros += kPair * kGroups * 64;
    }
  }

  __device__ void fill() {
    for (int slot = 0; slot < Tile::kSlots; slot += kPair) {
      request(ring + slot * p.layout.slot_bytes);
    }
  }

  // Scales and zero points of the lane's two rows, for all groups of a block of k. A scale carries
  // the factor that convert_word leaves out.
  __device__ __forceinline__ void load_scales(uint32_t slot, float (&scale)[kMaxGroups][2]) const {
    TESSERA_UNROLL
    for (int i = 0; i < 2 * kGroups; ++i) {
      const uint32_t at = slot + kScales + i / 2 * 64 + lane() / 4 * 4 + i % 2 * 32;
      scale[i / 2][i % 2] = __uint_as_float(tile::ptx::load_shared(at)) * kInverseUnit;
    }
  }
  __device__ __forceinline__ void load_zeros(uint32_t slot, uint32_t (&zero)[kMaxGroups][2]) const {
    TESSERA_UNROLL
    for (int i = 0; i < 2 * kGroups; ++i) {
      const int row = lane() / 4;
      const uint32_t word =
          tile::ptx::load_shared(slot + kZeros + i / 2 * 16 + i % 2 * 8 + (row & ~3));
      zero[i / 2][i % 2] = negated_zero<T>(static_cast<int>(word >> (8 * (row & 3)) & 0xff));
    }
  }

  // Eight tokens by 32 elements of k, as two operands of mma.
  __device__ __forceinline__ void load_tokens(const uint32_t (&tokens)[kEights], int block,
                                              int pair, uint32_t (&b)[kEights][4]) const {
    TESSERA_UNROLL
    for (int eight = 0; eight < kEights; ++eight) {
      tile::ptx::ldmatrix(b[eight], tokens[eight] + block * 256 + pair * 64);
    }
  }

  __device__ __forceinline__ static void add_part(float (&sums)[kRegs], const float (&part)[kRegs],
                                                  const float (&scale)[2]) {
    TESSERA_UNROLL
    for (int i = 0; i < kRegs; ++i) sums[i] = fmaf(part[i], scale[i / 2 % 2], sums[i]);
  }

  // The next kNow blocks of k, side by side: each is a chain of products.
  template <int kNow>
  __device__ __forceinline__ void multiply_blocks(float (&sums)[kRegs], uint32_t slot,
                                                  const uint32_t (&tokens)[kEights],
                                                  const uint32_t (&row_zero)[2]) {
    static_assert(kNow == 1 || kGroups == 1);
    tile::ptx::cp_async_wait_group<Tile::kSlots / kPair - 1>();
    __syncwarp();
    uint32_t words[kNow][2][4];
    uint32_t zero[kNow][kMaxGroups][2];
    float scale[kNow][kMaxGroups][2];
    TESSERA_UNROLL
    for (int i = 0; i < kNow; ++i) {
      const uint32_t from = slot + i * p.layout.slot_bytes;
      TESSERA_UNROLL
      for (int half = 0; half < 2; ++half) {
        const float4 loaded = tile::ptx::load_shared_v4(from + half * 512 + lane() * 16);
        words[i][half][0] = __float_as_uint(loaded.x);
        words[i][half][1] = __float_as_uint(loaded.y);
        words[i][half][2] = __float_as_uint(loaded.z);
        words[i][half][3] = __float_as_uint(loaded.w);
      }
      load_scales(from, scale[i]);
      TESSERA_UNROLL
      for (int group = 0; group < kMaxGroups; ++group) {
        zero[i][group][0] = row_zero[0];
        zero[i][group][1] = row_zero[1];
      }
    }
    if (kHasGroups && p.zero != nullptr) {
      TESSERA_UNROLL
      for (int i = 0; i < kNow; ++i) load_zeros(slot + i * p.layout.slot_bytes, zero[i]);
    }
    __syncwarp();  // all lanes have read the scales
    request(slot);

    float part[kNow][kRegs];
    uint32_t b[kNow][2][kEights][4];  // of two pairs of steps
    TESSERA_UNROLL
    for (int i = 0; i < kNow; ++i) load_tokens(tokens, i, 0, b[i][0]);
    TESSERA_UNROLL
    for (int step = 0; step < 8; ++step) {
      TESSERA_UNROLL
      for (int i = 0; i < kNow; ++i) {
        if (step % 2 == 0 && step < 6) {
          load_tokens(tokens, i, step / 2 + 1, b[i][(step / 2 + 1) % 2]);
        }
        const int group = kHasGroups ? step / kSteps : 0;
        if (kHasGroups && step % kSteps == 0) {
          TESSERA_UNROLL
          for (int j = 0; j < kRegs; ++j) part[i][j] = 0;
        }
        uint32_t a[4];
        convert_word<T>(words[i][step / 4][step % 4], zero[i][group], a);
        float(&target)[kRegs] = kHasGroups ? part[i] : sums;
        TESSERA_UNROLL
        for (int eight = 0; eight < kEights; ++eight) {
          float d[4];
          TESSERA_UNROLL
          for (int j = 0; j < 4; ++j) d[j] = target[4 * eight + j];
          const uint32_t(&pair)[4] = b[i][step / 2 % 2][eight];
          const uint32_t operand[2] = {pair[step % 2 * 2], pair[step % 2 * 2 + 1]};
          tile::ptx::mma<T>(d, a, operand);
          TESSERA_UNROLL
          for (int j = 0; j < 4; ++j) target[4 * eight + j] = d[j];
        }
        if (kHasGroups && kNow == 1 && step % kSteps == kSteps - 1) {
          add_part(sums, part[i], scale[i][group]);
        }
      }
    }
    if constexpr (kNow > 1) {
      TESSERA_UNROLL
      for (int i = 0; i < kNow; ++i) add_part(sums, part[i], scale[i][0]);
    }
  }

  // The sums of the warp's part of k; `begin` is the block's first block of k.
  __device__ void multiply(float (&sums)[kRegs], int begin) {
    const int first_row = unit * 16 + lane() / 4;
    uint32_t zero[2];
    float scale[2] = {1, 1};
    TESSERA_UNROLL
    for (int i = 0; i < 2; ++i) {
      const bool is_given = !kHasGroups && p.zero != nullptr;
      zero[i] = negated_zero<T>(is_given ? p.zero[first_row + 8 * i] : kFragmentZero);
      if constexpr (!kHasGroups) scale[i] = p.scale[first_row + 8 * i] * kInverseUnit;
    }
    // Rows beyond m repeat the last one: their results are not stored.
    const int first = k_block - begin;
    uint32_t tokens[kEights];
    TESSERA_UNROLL
    for (int eight = 0; eight < kEights; ++eight) {
      const int row = min(8 * eight + lane() % 8, p.layout.num_rows - 1);
      tokens[eight] =
          shared + p.layout.tokens() + row * p.layout.token_pitch() + first * 256 + lane() / 8 * 16;
    }
    int chunk = first >> p.layout.chunk_shift;  // the next to wait for
    int num_ready = 0;                          // blocks whose tokens are here
    const auto wait_for_tokens = [&](int end) {
      while (num_ready < end) {
        tile::ptx::mbarrier_wait(shared + p.layout.barrier(chunk), 0);
        num_ready = (++chunk << p.layout.chunk_shift) - first;
      }
    };
    uint32_t slot = ring;
    const uint32_t ring_end = ring + Tile::kSlots * p.layout.slot_bytes;
    int block = 0;
    for (; block + kPair <= count; block += kPair) {
      wait_for_tokens(block + kPair);
      multiply_blocks<kPair>(sums, slot, tokens, zero);
      TESSERA_UNROLL
      for (int eight = 0; eight < kEights; ++eight) tokens[eight] += kPair * 256;
      slot += kPair * p.layout.slot_bytes;
      if (slot == ring_end) slot = ring;
    }
    if (block < count) {
      wait_for_tokens(count);
      multiply_blocks<1>(sums, slot, tokens, zero);
    }
    if constexpr (!kHasGroups) {
      TESSERA_UNROLL
      for (int i = 0; i < kRegs; ++i) sums[i] *= scale[i / 2 % 2];
    }
  }
};

// Partial sums of a unit lie [part][8 tokens][lane] in pieces of 16 bytes.
template <int kRegs>
__device__ void add_pieces(float (&sums)[kRegs], uint32_t first, int parts, int part_bytes) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  TESSERA_UNROLL
  for (int i = 0; i < kRegs; ++i) sums[i] = 0;
  for (int part = 0; part < parts; ++part) {
    TESSERA_UNROLL
    for (int eight = 0; eight < kRegs / 4; ++eight) {
      const float4 piece =
          tile::ptx::load_shared_v4(first + part * part_bytes + eight * 512 + lane * 16);
      sums[4 * eight] += piece.x;
      sums[4 * eight + 1] += piece.y;
      sums[4 * eight + 2] += piece.z;
      sums[4 * eight + 3] += piece.w;
    }
  }
}
template <int kRegs>
__device__ uint4 piece_of(const float (&sums)[kRegs], int eight) {
  return make_uint4(__float_as_uint(sums[4 * eight]), __float_as_uint(sums[4 * eight + 1]),
                    __float_as_uint(sums[4 * eight + 2]), __float_as_uint(sums[4 * eight + 3]));
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

template <class T, class Tile>
__global__ void __launch_bounds__(kW4FewMaxWarps * 32, 1)
    gemm_w4_few_sm90_kernel(const __grid_constant__ W4FewParams p) {
  extern __shared__ __align__(1024) char dynamic[];
  using Warp = W4FewWarp<T, Tile>;
  const uint32_t shared = tile::ptx::shared_address(dynamic);
  const W4FewLayout& layout = p.layout;
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int rank = p.splits > 1 ? static_cast<int>(tile::ptx::cluster_rank()) : 0;
  const int index = static_cast<int>(p.splits > 1 ? tile::ptx::cluster_index() : blockIdx.x);
  const int batch = index < p.num_unit_blocks ? 0 : index / p.num_unit_blocks;
  const int first_unit = (index - batch * p.num_unit_blocks) * p.units;
  const int num_units = min(p.units, p.epilogue.n / 16 - first_unit);
  int part = rank;
  if (p.splits == 1) {  // no division in front of the first load
    TESSERA_UNROLL
    for (int i = 1; i < 8; ++i) part += warp >= i * p.units;
  }
  const int local = p.splits > 1 ? warp : warp - part * p.units;
  const int k_block = p.first_k_block[part];
  Warp work{.p = p,
            .shared = shared,
            .unit = first_unit + local,
            .count = local < num_units ? p.first_k_block[part + 1] - k_block : 0,
            .k_block = k_block,
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
      tile::ptx::mbarrier_arrive_expect_tx(fold_barrier,
                                           mine * p.parts * (Tile::kTokens / 8) * 512);
    }
    __syncwarp();
  }
  // Relaxed: the other blocks only need the barriers' initialisation, which has its own fence.
  if (p.splits > 1) tile::ptx::cluster_arrive_relaxed();
  __syncthreads();
  if (!p.releases_late) tile::release_next(Sm90{});
  tile::wait_for_previous(Sm90{});
  const int begin = p.splits > 1 ? k_block : 0;
  if (warp == 0) {
    const int end = p.splits > 1 ? p.first_k_block[rank + 1] : p.num_k_blocks;
    load_few_tokens(p, shared, begin, end, batch);
  }

  float sums[Warp::kRegs] = {};
  if (local < num_units) work.multiply(sums, begin);
  if (p.releases_late) tile::release_next(Sm90{});
  if (p.parts == 1) {
    if (local < num_units) {
      store_w4_block<T>(sums, work.ring, p.epilogue, 0, work.unit * 16, batch);
    }
    return;
  }
  constexpr int kPieceBytes = Warp::kEights * 512;
  if (p.splits == 1) {  // each warp leaves its sums in its ring
    __syncwarp();
    TESSERA_UNROLL
    for (int eight = 0; eight < Warp::kEights; ++eight) {
      tile::ptx::store_shared(work.ring + eight * 512 + lane * 16, piece_of(sums, eight));
    }
    __syncthreads();
    if (part > 0 || local >= num_units) return;
    add_pieces(sums, work.ring, p.parts, p.units * layout.ring_bytes());
    store_w4_block<T>(sums, work.ring + kPieceBytes, p.epilogue, 0, work.unit * 16, batch);
    return;
  }
  tile::ptx::cluster_wait();  // the barriers of all blocks are ready
  if (local < num_units) {
    const int owner = local % p.splits, place = local / p.splits;
    const uint32_t target = tile::ptx::mapa(
        shared + layout.fold() + (place * p.parts + rank) * kPieceBytes + lane * 16, owner);
    const uint32_t barrier = tile::ptx::mapa(fold_barrier, owner);
    TESSERA_UNROLL
    for (int eight = 0; eight < Warp::kEights; ++eight) {
      tile::ptx::store_async_cluster(target + eight * 512, piece_of(sums, eight), barrier);
    }
  }
  const int mine = rank + warp * p.splits;  // the unit that this warp adds up
  if (mine >= num_units) return;
  tile::ptx::mbarrier_wait_cluster(fold_barrier, 0);
  add_pieces(sums, shared + layout.fold() + warp * p.parts * kPieceBytes, p.parts, kPieceBytes);
  store_w4_block<T>(sums, work.ring, p.epilogue, 0, (first_unit + mine) * 16, batch);
}

template <class T, class Tile>
void launch_w4_few_tile(const GemmArgs& args, const W4FewPlan& plan, const Context& ctx) {
  W4FewParams p{};
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
  p.units = plan.units;
  p.num_unit_blocks = plan.num_unit_blocks;
  p.is_static = args.b.is_static;
  p.releases_late = plan.releases_late;
  for (int part = 0; part <= plan.parts; ++part) {
    p.first_k_block[part] = w4_first_k_block(p.num_k_blocks, plan.parts, part);
  }
  p.epilogue = epilogue_params(args);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(plan.num_blocks)),
                          .block = dim3(static_cast<unsigned>(plan.num_warps * 32)),
                          .shared_bytes = static_cast<size_t>(plan.shared_bytes),
                          .cluster = static_cast<unsigned>(plan.splits),
                          .overlaps_previous = true};
  launch(&gemm_w4_few_sm90_kernel<T, Tile>, shape, p, ctx);
}

template <class T, int kGroup>
void launch_w4_few(const GemmArgs& args, const W4FewPlan& plan, const Context& ctx) {
  const bool is_long = plan.layout.num_slots == 8;
  const auto launch_tokens = [&]<int kTokens>() {
    return is_long ? launch_w4_few_tile<T, W4FewTile<kTokens, kGroup, 8>>(args, plan, ctx)
                   : launch_w4_few_tile<T, W4FewTile<kTokens, kGroup, 4>>(args, plan, ctx);
  };
  if constexpr (kGroup != 32) {
    if (plan.tokens == 16) return launch_tokens.template operator()<16>();
  }
  launch_tokens.template operator()<8>();
}

}  // namespace tessera::kernels
