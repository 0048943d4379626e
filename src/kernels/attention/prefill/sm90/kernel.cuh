// Prefill attention on Hopper: the kernel, and how a call becomes a launch of it.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <bit>
#include <numeric>

#include "kernels/attention/prefill/sm90/consume.cuh"
#include "kernels/attention/prefill/sm90/launch.h"
#include "kernels/launch.h"
#include "tessera/core/device.h"
#include "tile/ptx/warp.cuh"
#include "tile/tensor_map.h"

namespace tessera::kernels::prefill_sm90 {

// Attention of whole prompts, or chunks of them, in every layout and with every mask.
//
//   out = softmax(score(Q K^T) + mask) V                     for one tile of queries at a time
//
// Work      Persistent blocks, one per SM, process tiles of kRows queries of one head in an order
//           that balances them and keeps keys in L2 (plan.h). A tile visits the blocks of kKeys
//           keys that some of its queries see, from right to left.
// Pipeline  One warpgroup of producers loads q, k and v by TMA into rings and transposes 8-bit
//           values; two to four warpgroups of consumers compute with WGMMA, 64 queries each.
//           Scores, weights and sums stay in registers, and exponentials overlap with products
//           (consume.cuh).
// Output    Stored by TMA over the queries' shared memory, or from registers. A row's bits do not
//           depend on the tile, the chunk or the batch it is in.
// Cost      4 q_len kv_len d flop per head: the tensor cores are the limit, for small and for 8-bit
//           heads the exponential unit. docs/kernels/attention.md
// Needs     heads on 16 bytes, positive strides, pages of a power of two of at least 16 tokens, at
//           most 2^20 keys.
template <class T, class Tile, bool kIsGeneral>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    attention_prefill_sm90_kernel(const __grid_constant__ Sm90PrefillParams p) {
  using Shared = PrefillShared<T, Tile>;
  extern __shared__ __align__(1024) char dynamic[];
  Shared& shared = *reinterpret_cast<Shared*>(dynamic);
  PrefillRings<T, Tile> rings(shared);
  // The shuffle tells the compiler that the value is uniform in a warp, so that descriptors derived
  // from it are kept in uniform registers, which WGMMA needs.
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
  if (threadIdx.x == 0) rings.init(p.num_loaders);
  if (threadIdx.x == 32) {
    tile::ptx::prefetch_tensormap(&p.q);
    tile::ptx::prefetch_tensormap(&p.k);
    tile::ptx::prefetch_tensormap(&p.v);
    if constexpr (Shared::kStagesOut) tile::ptx::prefetch_tensormap(&p.out);
  }
  __syncthreads();
  if (warp < 4) {
    tile::ptx::setmaxnreg_dec<Tile::kProducerRegisters>();
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (warp == 0) {
      PrefillProducer<T, Tile>{p, shared, rings, 0, lane}.run();
    } else if constexpr (Shared::kTurnsV) {
      PrefillTurner<T, Tile>{p, shared, rings, warp - 1, lane}.run();
    } else if (warp == 1) {
      PrefillProducer<T, Tile>{p, shared, rings, 0, lane}.template run_beside<false>();
    } else if (p.num_loaders == 2) {
      PrefillProducer<T, Tile> producer{p, shared, rings, 1, lane};
      if (warp == 2) {
        producer.template run_beside<true>();
      } else {
        producer.template run_beside<false>();
      }
    }
  } else {
    tile::ptx::setmaxnreg_inc<Tile::kConsumerRegisters>();
    PrefillConsumer<T, Tile, kIsGeneral>{p, shared, rings, warp / 4 - 1}.run();
  }
}

// An axis of one needs no stride, but TMA demands a valid one.
inline int64_t stride_of(int64_t stride, int64_t size) { return size > 1 ? stride : 64; }

// TMA map of boxes of one slab of [batch or page, row, head, element], ragged [row, head, element].
inline CUtensorMap slab_map(const TensorView& t, int box_rows) {
  const int64_t batch = t.rank == 4 ? t.size(0) : 1;
  const auto stride = [&](int axis, int64_t size) { return stride_of(t.stride(axis), size); };
  return tile::make_tensor_map(
      {.data = t.data,
       .dtype = t.dtype,
       .rank = 4,
       .dims = {t.size(-1), t.size(-3), t.size(-2), batch},
       .strides = {1, stride(-3, t.size(-3)), stride(-2, t.size(-2)), stride(0, batch)},
       .box = {kSlabBytes * 8 / bit_width(t.dtype), box_rows, 1, 1},
       .swizzle = tile::Swizzle::b128});
}

// The same with 2^log2_packed heads treated as one.
inline CUtensorMap packed_slab_map(const TensorView& t, int box_rows, int log2_packed) {
  const int64_t batch = t.rank == 4 ? t.size(0) : 1, packed = int64_t{1} << log2_packed;
  const int64_t rows = t.size(-3), heads = t.size(-2) >> log2_packed;
  return tile::make_tensor_map(
      {.data = t.data,
       .dtype = t.dtype,
       .rank = 5,
       .dims = {t.size(-1), packed, rows, heads, batch},
       .strides = {1, stride_of(t.stride(-2), packed), stride_of(t.stride(-3), rows),
                   stride_of(packed * t.stride(-2), heads), stride_of(t.stride(0), batch)},
       .box = {kSlabBytes * 8 / bit_width(t.dtype), 1 << log2_packed, box_rows >> log2_packed, 1,
               1},
       .swizzle = tile::Swizzle::b128});
}

// Query heads that share a KV head can share tiles, so that few rows of each fill them. Only for
// calls in which a row need not know its token or head.
inline int choose_log2_packed(const AttentionArgs& args, int tile_rows) {
  const int64_t rows = args.q.size(-3), group = args.q.size(-2) / args.k.size(-2);
  const bool is_plain = args.mask.left < 0 && args.mask.right < 0 &&
                        args.mask.intervals.data == nullptr && args.sinks.data == nullptr &&
                        args.alibi_slopes.data == nullptr && args.dropout.rate == 0.0f;
  const bool fits = group <= 64 && std::has_single_bit(static_cast<uint64_t>(group));
  if (is_ragged(args) || !is_plain || !fits) return 0;
  const auto tiles = [&](int64_t n) { return (n + tile_rows - 1) / tile_rows; };
  return tiles(rows * group) < group * tiles(rows) ? std::countr_zero(static_cast<uint64_t>(group))
                                                   : 0;
}

// Bytes of keys and values of one sequence and head, divided by the heads that share them.
inline int64_t kv_bytes_of_head(const AttentionArgs& args) {
  const int64_t row_bytes = (args.k.size(-1) + args.v.size(-1)) * bit_width(args.k.dtype) / 8;
  const int64_t heads_per_kv = args.q.size(-2) / args.k.size(-2);
  return num_keys(args) * row_bytes / heads_per_kv;
}

// Whether later queries may see more keys than earlier ones.
inline bool is_uneven(const AttentionMask& mask) {
  return (mask.right >= 0 && mask.left < 0) || mask.intervals.data != nullptr;
}

// Boxes of fewer rows are so many that two warps load each of k and v, if there are idle warps.
inline constexpr int kFewRows = 64;

template <class T, class Tile, bool kIsGeneral>
void launch_tile(const AttentionArgs& args, const Context& ctx) {
  Sm90PrefillParams p{};
  p.common = attention_params(args);
  if (args.q.num_elements() == 0) return;
  const bool is_paged_kv = is_paged(args);
  p.box_rows = is_paged_kv ? std::gcd(p.common.page_size, Tile::kKeys) : Tile::kKeys;
  const bool has_small_boxes = is_paged_kv && p.box_rows < kFewRows;
  p.num_loaders = has_small_boxes && !PrefillShared<T, Tile>::kTurnsV ? 2 : 1;
  p.log2_page_size = is_paged_kv ? std::countr_zero(static_cast<unsigned>(args.k.size(1))) : 0;
  p.num_pages = is_paged_kv ? static_cast<int>(args.k.size(0)) : 0;
  p.log2_packed = choose_log2_packed(args, Tile::kRows);
  p.common.num_heads >>= p.log2_packed;
  p.common.q_len <<= p.log2_packed;
  p.q = packed_slab_map(args.q, Tile::kRows, p.log2_packed);
  // Without keys these maps are never used.
  const bool has_keys = args.k.num_elements() > 0;
  p.k = has_keys ? slab_map(args.k, p.box_rows) : p.q;
  p.v = has_keys ? slab_map(args.v, p.box_rows) : p.q;
  const int q_tiles = p.common.q_len / Tile::kRows;
  p.m_tiles =
      is_ragged(args) ? q_tiles + p.common.batch : (p.common.q_len + Tile::kRows - 1) / Tile::kRows;
  p.num_tiles = p.m_tiles * p.common.num_heads * (is_ragged(args) ? 1 : p.common.batch);
  p.is_out_bf16 = args.out.dtype == DType::bf16;
  p.zeroes_v = is_ragged(args) || is_paged_kv || args.kv_lens.data != nullptr;
  if constexpr (PrefillShared<T, Tile>::kStagesOut) {
    p.out = packed_slab_map(args.out, 64, p.log2_packed);
  }
  p.value_dim = static_cast<int>(args.v.size(-1));
  const int num_sms = device_info(args.q.device).num_sms;
  // Ragged tiles are ordered by sequence.
  p.group = is_ragged(args) ? 1
                            : group_of({.num_heads = p.common.batch * p.common.num_heads,
                                        .m_tiles = p.m_tiles,
                                        .num_blocks = num_sms,
                                        .is_causal = is_uneven(args.mask),
                                        .kv_bytes = kv_bytes_of_head(args) << p.log2_packed});
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(std::min(num_sms, p.num_tiles))),
                          .block = dim3(Tile::kThreads),
                          .shared_bytes = sizeof(PrefillShared<T, Tile>),
                          .overlaps_previous = true};
  launch(&attention_prefill_sm90_kernel<T, Tile, kIsGeneral>, shape, p, ctx);
}

template <class T, int kDk, int kDv, PrefillKind kKind>
void launch_prefill(const AttentionArgs& args, const Context& ctx) {
  using Tile = typename ChoosePrefillTile<kDk, kDv, 8 * static_cast<int>(sizeof(T)), kKind>::type;
  launch_tile<T, Tile, kKind == PrefillKind::general>(args, ctx);
}

}  // namespace tessera::kernels::prefill_sm90
