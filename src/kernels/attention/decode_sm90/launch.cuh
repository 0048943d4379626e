// From checked arguments to a launch of the Hopper decode kernel.
// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cmath>

#include "kernels/attention/decode_sm90/kernel.cuh"
#include "kernels/attention/decode_sm90/launch.h"
#include "kernels/attention/decode_sm90/plan.h"
#include "kernels/launch.h"
#include "kernels/stream_scratch.h"
#include "tile/tensor_map.h"

namespace tessera::kernels {

// Boxes of rows of one head of [page, row, head, element], as bytes.
template <class Tile>
CUtensorMap page_map(const TensorView& pages, int box_rows) {
  // What is not walked along needs no stride, but the copy engine wants one that it could take.
  const auto stride = [&](int axis) {
    return pages.size(axis) > 1 ? pages.stride(axis) * bit_width(pages.dtype) / 8
                                : int64_t{Tile::kRowBytes} + 15 & ~int64_t{15};
  };
  return tile::make_tensor_map(
      {.data = pages.data,
       .dtype = DType::u8,
       .rank = 5,
       .dims = {Tile::kPanelBytes, pages.size(1), Tile::kPanels, pages.size(2), pages.size(0)},
       .strides = {1, stride(1), Tile::kPanels > 1 ? Tile::kPanelBytes : 16, stride(2), stride(0)},
       .box = {Tile::kPanelBytes, box_rows, Tile::kPanels, 1, 1},
       .swizzle = Tile::kSwizzle});
}

// Of rows ([page, row, head, n]), or of columns ([page, 32 rows, head, column, 2]).
inline ScaleParams scale_params(const TensorView& scales) {
  if (scales.rank < 4) return {};
  return {.data = scales.as<char>(),
          .head = static_cast<uint32_t>(2 * scales.stride(2)),
          .page = static_cast<uint32_t>(2 * scales.stride(0)),
          .group = scales.rank == 5 ? static_cast<uint32_t>(2 * scales.stride(1)) : 0};
}

inline TailParams tail_params(const PagedKv& kv) {
  return {kv.k_tail.data, kv.tails.as<int32_t>(), kv.k_tail.stride(0), kv.k_tail.stride(1),
          kv.k_tail.stride(2)};
}

// Longest sequence a call may have: what the caller says, or what there is room for.
inline int64_t longest_of(const DecodeAttentionArgs& args) {
  const int64_t rows = args.kv.k_pages.size(1);
  const bool is_paged = args.kv.page_table.rank == 2;
  const int64_t capacity = is_paged ? args.kv.page_table.size(1) * rows : rows;
  return args.longest > 0 ? std::min(args.longest, capacity) : capacity;
}

template <class Tile>
Sm90DecodeParams decode_params(const DecodeAttentionArgs& args) {
  const PagedKv& kv = args.kv;
  const bool is_paged = kv.page_table.rank == 2;
  const int64_t page_size = kv.k_pages.size(1);
  Sm90DecodeParams p{};
  // A box of 32 rows lies in shared memory as two of 16 do where a row is one panel.
  p.has_long_boxes = Tile::kPanels == 1 && page_size % kStepKeys == 0;
  const int box_rows = p.has_long_boxes ? kStepKeys : kBoxKeys;
  p.k = page_map<Tile>(kv.k_pages, box_rows);
  p.v = page_map<Tile>(kv.v_pages, box_rows);
  // Pages that sequences share are read again soon.
  p.cache_policy = (args.shares_pages ? tile::ptx::kEvictNormal : tile::ptx::kEvictFirst).bits;
  p.q = args.q.data;
  p.out = args.out.data;
  p.lse = args.lse.as<float>();
  const auto strides = [](const TensorView& t) {
    return RowStrides{t.stride(0), t.rank == 4 ? t.stride(1) : 0, t.stride(-2)};
  };
  p.q_strides = strides(args.q);
  p.out_strides = strides(args.out);
  if (args.lse.data != nullptr) {
    p.lse_strides = {args.lse.stride(0), args.lse.rank == 3 ? args.lse.stride(2) : 0,
                     args.lse.stride(1)};
  }
  p.seq_lens = kv.seq_lens.as<int32_t>();
  p.page_table = is_paged ? kv.page_table.as<int32_t>() : nullptr;
  p.table_stride = is_paged ? kv.page_table.stride(0) : 0;
  p.log2_boxes_per_page =
      is_paged ? std::countr_zero(static_cast<uint64_t>(page_size / kBoxKeys)) : 0;
  p.box_mask = is_paged ? (1 << p.log2_boxes_per_page) - 1 : ~0;
  p.longest = static_cast<int>(longest_of(args));
  p.tree = args.tree.as<int32_t>();
  if constexpr (Tile::K::kHasColumns) p.k_tail = tail_params(kv);
  if constexpr (Tile::V::kNumScales > 0) {
    p.k_scales = scale_params(kv.k_scales);
    p.v_scales = scale_params(kv.v_scales);
  } else {
    p.k_head_scales = kv.k_scales.as<float>();
    p.v_head_scales = kv.v_scales.as<float>();
    p.k_head_scale_step = kv.k_scales.rank == 1 && kv.k_scales.size(0) > 1 ? 1 : 0;
    p.v_head_scale_step = kv.v_scales.rank == 1 && kv.v_scales.size(0) > 1 ? 1 : 0;
  }
  p.num_kv_heads = static_cast<int>(kv.k_pages.size(2));
  p.q_len = static_cast<int>(q_len_of_decode(args));
  p.group = static_cast<int>(args.q.size(-2)) / p.num_kv_heads;
  p.inverse_group = static_cast<uint32_t>(((1 << kInverseBits) + p.group - 1) / p.group);
  p.rows = p.group * p.q_len;
  p.num_sequences = static_cast<int>(args.q.size(0));
  p.num_row_groups = (p.rows + Tile::kRows - 1) / Tile::kRows;
  p.window = bounded(args.window == 0 ? -1 : args.window);
  p.scores.scale =
      args.scale != 0.0f ? args.scale : 1.0f / std::sqrt(static_cast<float>(args.q.size(-1)));
  p.scores.softcap = args.softcap;
  p.scores.sinks = args.sinks.as<float>();
  p.scores.alibi_slopes = args.alibi_slopes.as<float>();
  return p;
}

// So much shared memory that an SM takes one block.
inline constexpr size_t kAloneOnSm = 120 * 1024;

template <class Q, class Tile, int kCluster>
void launch_decode(Sm90DecodeParams p, const DecodeAttentionArgs& args, const Context& ctx,
                   size_t least_shared_bytes = 0) {
  const unsigned parts = 1u << p.log2_parts;
  const auto units = static_cast<size_t>(args.q.size(0)) * p.num_row_groups * p.num_kv_heads;
  const bool needs_scratch = kCluster == 1 && parts > 1;
  const size_t states = needs_scratch ? units * parts * Tile::kRows : 0;
  const size_t o_bytes = states * Tile::kD * sizeof(float);
  const StreamScratch scratch(
      args.q.device, ctx.stream,
      {.num_bytes = o_bytes + states * sizeof(float4), .num_tickets = needs_scratch ? units : 0});
  p.partial_o = static_cast<float4*>(scratch.data());
  p.partial_sums = reinterpret_cast<float4*>(static_cast<char*>(scratch.data()) + o_bytes);
  p.tickets = scratch.tickets();
  if constexpr (kAsksEarly<Tile, kCluster>) {
    const auto num_units = static_cast<int64_t>(units);
    p.early = plan_early(2 * num_units * p.longest * Tile::kRowBytes, num_units << p.log2_parts,
                         2 * Tile::kHalfBytes * Tile::kWarps, device_info(args.q.device).num_sms,
                         least_shared_bytes > 0 ? 1 : Tile::kBlocksOnSm);
  }
  const LaunchShape shape{
      .grid = dim3(parts, static_cast<unsigned>(p.num_kv_heads),
                   static_cast<unsigned>(args.q.size(0) * p.num_row_groups)),
      .block = dim3(Tile::kThreads),
      .shared_bytes = std::max(sizeof(Sm90DecodeShared<Tile>), least_shared_bytes),
      .cluster = kCluster,
      .overlaps_previous = true};
  launch(&attention_decode_sm90_kernel<Q, Tile, kCluster>, shape, p, ctx);
}

template <int kD>
inline constexpr int kDecodeWarpsOf = kD <= 128 ? 8 : 4;

// Kernels that fold over a cluster are compiled where they are met most.
template <class Format, int kD>
inline constexpr bool kHasClusters = (kD == 64 || kD == 128) && !std::is_same_v<Format, KvE5m2> &&
                                     !std::is_same_v<Format, KvUint8>;

// More than eight queries a head: blocks of eight or of sixteen, as the plan says.
template <class Format, int kD>
inline constexpr bool kHasWide = kHasClusters<Format, kD>&& Format::kBits == 16;

// Of codes the arithmetic counts: there are kernels for four queries.
template <class Format, int kD>
inline constexpr bool kHasNarrow = kHasClusters<Format, kD>&& Format::kBits < 16;

// Where queries see all keys; as the plan says.
template <class Q, class Format, int kD, int kQueries>
void launch_plain(const Sm90DecodeParams& p, DecodeMerge merge, const DecodeAttentionArgs& args,
                  const Context& ctx) {
  using Values = typename ValuesBeside<Format>::Format;
  using Tile = DecodeTile<Format, Values, kD, kQueries, kDecodeWarpsOf<kD>, false>;
  if constexpr (kHasClusters<Format, kD>) {
    using Small = DecodeTile<Format, Values, kD, kQueries, 4, false>;
    if (merge == DecodeMerge::pair) return launch_decode<Q, Tile, 2>(p, args, ctx);
    if (merge == DecodeMerge::few_units) {
      return launch_decode<Q, Small, 1 << kFewUnitsLog2Parts>(p, args, ctx);
    }
    if constexpr (Format::kBits == 16) {
      using Lean = DecodeTile<Format, Values, kD, kQueries, 4, false, true>;
      if (merge == DecodeMerge::small) return launch_decode<Q, Lean, 1>(p, args, ctx);
      if (merge == DecodeMerge::small_alone) {
        return launch_decode<Q, Lean, 1>(p, args, ctx, kAloneOnSm);
      }
    } else if constexpr (Tile::kIsNarrow) {
      if (merge == DecodeMerge::small) return launch_decode<Q, Small, 1>(p, args, ctx);
    }
  }
  launch_decode<Q, Tile, 1>(p, args, ctx);
}

template <class Q, class Format, int kD>
void launch_decode_sm90(const DecodeAttentionArgs& args, const Context& ctx) {
  if (args.q.num_elements() == 0) return;
  using Values = typename ValuesBeside<Format>::Format;
  using General = DecodeTile<Format, Values, kD, kD <= 128 ? 16 : 8, kDecodeWarpsOf<kD>, true>;
  using Tile = DecodeTile<Format, Values, kD, 8, kDecodeWarpsOf<kD>, false>;
  const int64_t group = args.q.size(-2) / args.kv.k_pages.size(2);
  const bool is_general = !is_plain(args) || (group > Tile::kRows && !kHasWide<Format, kD>);
  const bool is_narrow = kHasNarrow<Format, kD> && group <= 4 && !is_general;
  Sm90DecodeParams p = is_general ? decode_params<General>(args) : decode_params<Tile>(args);
  using Narrow = DecodeTile<Format, Values, kD, 4, kDecodeWarpsOf<kD>, false>;
  const int log2_waiting = is_general  ? log2_waiting_leaves<General>(p.rows)
                           : is_narrow ? log2_waiting_leaves<Narrow>(p.rows)
                                       : log2_waiting_leaves<Tile>(p.rows);
  const DecodePlan plan =
      plan_decode({.num_units = args.q.size(0) * p.num_row_groups * p.num_kv_heads,
                   .longest = std::min<int64_t>(p.longest, p.window + int64_t{kStepKeys} + p.q_len),
                   .num_queries = p.rows,
                   .row_bytes = Tile::kRowBytes,
                   .num_sms = device_info(args.q.device).num_sms,
                   .bits = Format::kBits,
                   .log2_warps = Tile::kLog2Warps,
                   .log2_waiting = log2_waiting,
                   .is_narrow = is_narrow,
                   .has_clusters = kHasClusters<Format, kD> && !is_general});
  p.log2_parts = plan.log2_parts;
  if (is_general) return launch_decode<Q, General, 1>(p, args, ctx);
  if constexpr (kHasWide<Format, kD>) {
    if (p.rows > plan.num_queries) p.cache_policy = tile::ptx::kEvictNormal.bits;  // read again
    if (plan.num_queries > Tile::kRows) {
      p.num_row_groups = (p.rows + plan.num_queries - 1) / plan.num_queries;
      return launch_plain<Q, Format, kD, 16>(p, plan.merge, args, ctx);
    }
  }
  if constexpr (kHasNarrow<Format, kD>) {
    if (is_narrow) return launch_plain<Q, Format, kD, 4>(p, plan.merge, args, ctx);
  }
  launch_plain<Q, Format, kD, 8>(p, plan.merge, args, ctx);
}

}  // namespace tessera::kernels
