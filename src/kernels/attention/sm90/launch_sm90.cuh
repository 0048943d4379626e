// From checked arguments to a launch of the Hopper prefill kernel.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <bit>
#include <numeric>

#include "kernels/attention/accept.h"
#include "kernels/attention/sm90/launch_sm90.h"
#include "kernels/attention/sm90/plan.h"
#include "kernels/attention/sm90/prefill_sm90.cuh"
#include "kernels/launch.h"
#include "tessera/core/device.h"
#include "tile/tensor_map.h"

namespace tessera::kernels {

// What is not walked along needs no stride, but the copy engine wants one that it could take.
inline int64_t stride_of(int64_t stride, int64_t size) { return size > 1 ? stride : 64; }

// Boxes of one slab of [batch or page, row, head, element], ragged [row, head, element].
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

// The same with 2^log2_packed heads as one.
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

// Heads that share keys may share tiles: few rows of each then fill them. For rows that need not
// know their token or their head.
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

// Keys and values that one head reads of one sequence, those it shares counted in parts.
inline int64_t kv_bytes_of_head(const AttentionArgs& args) {
  const int64_t row_bytes = (args.k.size(-1) + args.v.size(-1)) * bit_width(args.k.dtype) / 8;
  const int64_t heads_per_kv = args.q.size(-2) / args.k.size(-2);
  return num_keys(args) * row_bytes / heads_per_kv;
}

// Whether later queries may see more keys than earlier ones.
inline bool is_uneven(const AttentionMask& mask) {
  return (mask.right >= 0 && mask.left < 0) || mask.intervals.data != nullptr;
}

// Boxes of fewer rows are so many that twice as many warps load them, where warps are left.
inline constexpr int kFewRows = 64;

template <class T, class Tile, bool kIsGeneral>
void launch_prefill(const AttentionArgs& args, const Context& ctx) {
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
  // Without a key nothing is loaded through these.
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
  // Ragged tiles go by sequence.
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

template <class T, int kDk, int kDv>
void launch_prefill_sm90(const AttentionArgs& args, const Context& ctx) {
  if (changes_scores(args)) return launch_prefill_sm90_general<T, kDk, kDv>(args, ctx);
  launch_prefill<T, typename ChoosePrefillTile<kDk, kDv, 16, false>::type, false>(args, ctx);
}

template <class T, int kD>
void launch_prefill_sm90_padded(const AttentionArgs& args, const Context& ctx) {
  launch_prefill<T, typename ChoosePaddedTile<kD>::type, false>(args, ctx);
}

}  // namespace tessera::kernels
