// Decode attention on Hopper: the kernel, and how a call becomes a launch of it.
// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cmath>

#include "kernels/attention/decode/sm90/fold.cuh"
#include "kernels/attention/decode/sm90/plan.h"
#include "kernels/launch.h"
#include "kernels/stream_scratch.h"
#include "tile/arch.cuh"
#include "tile/tensor_map.h"

namespace tessera::kernels::decode_sm90 {

// A warp's share of a sequence's keys.
template <class Tile, int kCluster>
struct WarpShare {
  int len;
  int first_key;  // the first one that any query sees
  int first_step;
  int num_steps;  // of all warps
  int log2_tree;  // leaves of all warps
  int log2_parts;
  LeafRange leaves;

  __device__ __forceinline__ WarpShare(const Sm90DecodeParams& p, int part, int warp, int seq_len)
      : len(max(seq_len, 0)),
        first_key(Tile::kIsGeneral ? max(len - p.q_len + 1 - p.window, 0) : 0),
        first_step(first_key / kStepKeys),
        num_steps((len + kStepKeys - 1) / kStepKeys - first_step),
        log2_tree(log2_leaves(num_steps, Tile::K::kBits)) {
    // A short sequence uses fewer of the parts that were launched for the longest.
    log2_parts =
        kCluster > 1 ? p.log2_parts : min(p.log2_parts, max(log2_tree - Tile::kLog2Warps, 0));
    // The plan ensures this, unless a sequence is longer than the caller said.
    if constexpr (Tile::kIsNarrow) {
      log2_tree = min(log2_tree, log2_parts + Tile::kLog2Warps + 1 + Tile::kSharedLevels);
    }
    leaves = leaves_of(part * Tile::kWarps + warp, log2_parts + Tile::kLog2Warps, log2_tree);
  }

  __device__ __forceinline__ StepRange steps(const LeafRange& of) const {
    StepRange steps = steps_of(of, log2_tree, num_steps, Tile::kLog2Turns);
    steps.begin += first_step;
    steps.end += first_step;
    return steps;
  }
  __device__ __forceinline__ KeyRun run(const DecodeUnit& unit) const {
    return {.sequence = unit.sequence,
            .kv_head = unit.kv_head,
            .len = len,
            .first_key = first_key,
            .steps = steps(leaves)};
  }
};

// The newest tokens of every sequence over a paged KV cache in any format.
//
//   out[h] = softmax(score(q[h] . k[j])) . v[j]        over the keys j that the query sees
//
// Work      grid = (parts, num_kv_heads, sequences * groups of kRows queries). The queries that
//           share a KV head are the columns of the products, so each key and value crosses HBM
//           once. 2^log2_parts blocks share the keys of a unit, and a block's warps share its part:
//           each takes a run of leaves (cut.h) by itself.
// Pipeline  Every warp has its own ring of kDepth slots, filled by TMA as slots are read; no warp
//           waits for another before the end. Where bandwidth is the limit, the first steps are
//           prefetched into L2 while the previous kernel still runs.
// Output    Leaves are folded in a binary tree that depends on the sequence's length alone: within
//           the warp, over the warps of a block in shared memory, over blocks through their cluster
//           or by the last block to finish. Results do not depend on the batch or on the plan.
// Cost      16 * group / bits flop per byte of the cache: bandwidth is the limit for 16 bits;
//           quantised formats come closer to the arithmetic limit. docs/kernels/decode.md
// Needs     head_dim as compiled; pages of a power of two of at least 16 tokens, or none; rows and
//           scales on 16 bytes; groups of at most kMostGroup.
template <class Q, class Tile, int kCluster>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocksOnSm)
    attention_decode_sm90_kernel(const __grid_constant__ Sm90DecodeParams p) {
  extern __shared__ char raw[];
  auto& shared = *reinterpret_cast<Sm90DecodeShared<Tile>*>(raw);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    tile::ptx::prefetch_tensormap(&p.k);
    tile::ptx::prefetch_tensormap(&p.v);
  }
  StepRing<Tile> ring(p, shared, warp, lane);
  // Several groups of rows are rare, and the division would be a visible part of a short call.
  const int z = static_cast<int>(blockIdx.z);
  const bool is_one_group = p.num_row_groups == 1;
  DecodeUnit unit{.sequence = is_one_group ? z : z / p.num_row_groups,
                  .kv_head = static_cast<int>(blockIdx.y),
                  .first_row = is_one_group ? 0 : z % p.num_row_groups * Tile::kRows,
                  .part = static_cast<int>(blockIdx.x)};
  using Share = WarpShare<Tile, kCluster>;
  const int32_t* seq_len = &p.seq_lens[unit.sequence];
  if constexpr (kPrefetches<Tile, kCluster>) {
    // The previous kernel may still run: the length read here may be stale, so it is only a hint.
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    if (block < static_cast<unsigned>(p.early.num_blocks)) {
      const Share hint(p, unit.part, warp, min(__ldcg(seq_len), p.longest));
      if (unit.part >> hint.log2_parts == 0) ring.prefetch(hint.run(unit));
    }
  }
  tile::release_next(Sm90{});
  if (!Tile::kAppends || !p.newest.is_settled) tile::wait_for_previous(Sm90{});

  const Share share(p, unit.part, warp, __ldcg(seq_len));
  if (unit.part >> share.log2_parts != 0) return;
  const LeafRange mine = share.leaves;
  unit.has_pairs = Tile::kIsNarrow && mine.count == 2;
  const KeyRun run = share.run(unit);
  ring.start(run);
  if constexpr (Tile::K::kHasColumns) start_tail<Q>(p, shared, run, lane);

  DecodeWarp<Q, Tile> w{p, ring, shared, lane, run, unit.first_row};
  if constexpr (Tile::kAppends) {
    w.newest.start(p, run, lane);
    tile::wait_for_previous(Sm90{});
    w.newest.load(p, run, unit.first_row == 0, lane);
  }
  w.load_q();
  if (mine.count == 0) {
    w.is_odd = false;
    w.clear();
  }
  WarpState<Tile> lowest, higher[kMostLevels];
  int step = run.steps.begin;
#pragma unroll 1
  for (int i = 0; i < mine.count; ++i) {
    const LeafRange leaf{mine.first + i, 1};
    step = w.take_leaf(step, share.steps(leaf).end, leaf.first % 2 != 0);
    if constexpr (Tile::kIsNarrow) {
      if (mine.count > 1 && i % 2 == 0) leave_sums(w, warp);
      if (mine.count > 2 && i % 2 != 0) {
        fold_pair(w, warp);
        fold_leaf(w, warp, i, mine.count, lowest, higher);
      }
    } else if (mine.count > 1) {
      fold_leaf(w, warp, i, mine.count, lowest, higher);
    }
  }
  __syncthreads();  // states overwrite the rings
  leave_state(w, warp, unit.has_pairs);
  __syncthreads();
  finish<Q, Tile, kCluster>(p, shared, unit, share.log2_parts);
}

// TMA map of boxes of rows of one head of [page, row, head, element], as bytes.
template <class Tile>
CUtensorMap page_map(const TensorView& pages, int box_rows) {
  // An axis of one needs no stride, but TMA demands a valid one.
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

// Scales of rows, [page, row, head, n], or of columns, [page, 32 rows, head, column, 2].
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

// Upper bound of the sequences' lengths: what the caller says, or what there is room for.
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
  // If a row is one panel, a box of 32 rows has the layout of two boxes of 16.
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
  p.q_len = static_cast<int>(q_len_of(args));
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

// Shared memory that keeps a second block off the SM.
inline constexpr size_t kAloneOnSm = 120 * 1024;

template <class Q, class Tile, int kCluster>
void launch_tile(Sm90DecodeParams p, const DecodeAttentionArgs& args, const Context& ctx,
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
  if constexpr (kPrefetches<Tile, kCluster>) {
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

// Kernels that fold over a cluster are compiled for the most common formats and sizes only.
template <KvFormat kFormat, int kD>
inline constexpr bool kHasClusters = (kD == 64 || kD == 128) && kFormat != KvFormat::e5m2&& kFormat
                                                                    != KvFormat::uint8;

// More than eight queries per KV head: blocks of eight or of sixteen, as the plan says.
template <KvFormat kFormat, int kD>
inline constexpr bool kHasWide = kHasClusters<kFormat, kD>&& kFormat == KvFormat::plain;

// Quantised formats are bound by arithmetic, so they have kernels for four queries too.
template <KvFormat kFormat, int kD>
inline constexpr bool kHasNarrow = kHasClusters<kFormat, kD>&& kFormat != KvFormat::plain;

// Instances for queries that see all keys, as the plan says.
template <class Q, KvFormat kFormat, int kD, int kQueries, bool kAppends>
void launch_plain(const Sm90DecodeParams& p, DecodeMerge merge, const DecodeAttentionArgs& args,
                  const Context& ctx) {
  using Keys = Operands<kFormat, Q>;
  using Values = Operands<traits(kFormat).values, Q>;
  using Tile = DecodeTile<Keys, Values, kD, kQueries, kDecodeWarpsOf<kD>, false, false, kAppends>;
  if constexpr (kHasClusters<kFormat, kD>) {
    using Small = DecodeTile<Keys, Values, kD, kQueries, 4, false, false, kAppends>;
    if (merge == DecodeMerge::pair) return launch_tile<Q, Tile, 2>(p, args, ctx);
    if (merge == DecodeMerge::few_units) {
      return launch_tile<Q, Small, 1 << kFewUnitsLog2Parts>(p, args, ctx);
    }
    if constexpr (Keys::kBits == 16) {
      using Lean = DecodeTile<Keys, Values, kD, kQueries, 4, false, true, kAppends>;
      if (merge == DecodeMerge::small) return launch_tile<Q, Lean, 1>(p, args, ctx);
      if (merge == DecodeMerge::small_alone) {
        return launch_tile<Q, Lean, 1>(p, args, ctx, kAloneOnSm);
      }
    } else if constexpr (Tile::kIsNarrow) {
      if (merge == DecodeMerge::small) return launch_tile<Q, Small, 1>(p, args, ctx);
    }
  }
  launch_tile<Q, Tile, 1>(p, args, ctx);
}

// Makes the plan and launches its instance. With kAppends, `newest` is appended, and the call is
// plain.
template <class Q, KvFormat kFormat, int kD, bool kAppends>
void launch_planned(const DecodeAttentionArgs& args, const NewestParams& newest,
                    const Context& ctx) {
  if (args.q.num_elements() == 0) return;
  using Keys = Operands<kFormat, Q>;
  using Values = Operands<traits(kFormat).values, Q>;
  using General = DecodeTile<Keys, Values, kD, kD <= 128 ? 16 : 8, kDecodeWarpsOf<kD>, true>;
  using Tile = DecodeTile<Keys, Values, kD, 8, kDecodeWarpsOf<kD>, false>;
  const int64_t group = args.q.size(-2) / args.kv.k_pages.size(2);
  const bool is_general =
      !kAppends && (!is_plain(args) || (group > Tile::kRows && !kHasWide<kFormat, kD>));
  const bool is_narrow = kHasNarrow<kFormat, kD> && group <= 4 && !is_general;
  Sm90DecodeParams p = is_general ? decode_params<General>(args) : decode_params<Tile>(args);
  using Narrow = DecodeTile<Keys, Values, kD, 4, kDecodeWarpsOf<kD>, false>;
  const int log2_waiting = is_general  ? log2_waiting_leaves<General>(p.rows)
                           : is_narrow ? log2_waiting_leaves<Narrow>(p.rows)
                                       : log2_waiting_leaves<Tile>(p.rows);
  const DecodePlan plan =
      plan_decode({.num_units = args.q.size(0) * p.num_row_groups * p.num_kv_heads,
                   .longest = std::min<int64_t>(p.longest, p.window + int64_t{kStepKeys} + p.q_len),
                   .num_queries = p.rows,
                   .row_bytes = Tile::kRowBytes,
                   .num_sms = device_info(args.q.device).num_sms,
                   .bits = Keys::kBits,
                   .log2_warps = Tile::kLog2Warps,
                   .log2_waiting = log2_waiting,
                   .is_narrow = is_narrow,
                   .has_clusters = kHasClusters<kFormat, kD> && !is_general});
  p.log2_parts = plan.log2_parts;
  p.newest = newest;
  if constexpr (!kAppends) {
    if (is_general) return launch_tile<Q, General, 1>(p, args, ctx);
  }
  if constexpr (kHasWide<kFormat, kD>) {
    if (p.rows > plan.num_queries) p.cache_policy = tile::ptx::kEvictNormal.bits;  // read again
    if (plan.num_queries > Tile::kRows) {
      p.num_row_groups = (p.rows + plan.num_queries - 1) / plan.num_queries;
      return launch_plain<Q, kFormat, kD, 16, kAppends>(p, plan.merge, args, ctx);
    }
  }
  if constexpr (kHasNarrow<kFormat, kD>) {
    if (is_narrow) return launch_plain<Q, kFormat, kD, 4, kAppends>(p, plan.merge, args, ctx);
  }
  launch_plain<Q, kFormat, kD, 8, kAppends>(p, plan.merge, args, ctx);
}

template <class Q, KvFormat kFormat, int kD>
void launch_decode(const DecodeAttentionArgs& args, const Context& ctx) {
  launch_planned<Q, kFormat, kD, false>(args, {}, ctx);
}

}  // namespace tessera::kernels::decode_sm90
