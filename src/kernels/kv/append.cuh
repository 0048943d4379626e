// New tokens into a KV cache: q and k rotated, k and v quantised and scattered, in one launch.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "kernels/kv/append_columns.cuh"
#include "kernels/kv/append_token.cuh"
#include "kernels/kv/launch.h"
#include "kernels/launch.h"
#include "tile/arch.cuh"

namespace tessera::kernels {

inline constexpr int kAppendThreads = 128;

// New tokens stored, a row in registers.
//
//   q, k = rope(q), rope(k);  k_pages[slots[i]] = k[i];  v_pages[slots[i]] = v[i]
//
// Work      A row is a head of q, k or v of one token; 2^log_lanes lanes share it, a vector of 8
//           elements each. A block takes rows of one token: side by side as many as it has room
//           for, then those gridDim.y blocks further on.
// Pipeline  A row's vector and, where it is rotated, the one it is rotated with are in flight
//           before the position and then the angles are asked for. The angles serve all rows.
// Output    Each element is written by one lane, after the warp has read the row. A position
//           outside the table turns the rotated elements to NaN; a slot outside the pages stores
//           nothing. Keys whose columns share a scale are only rotated here.
// Cost      Reads q, k and v, writes q, k and the pages: 27 KB a token for 32 and 8 heads of 128 in
//           bf16. With few tokens the time is the latency of slot or position, angles, and a
//           store. docs/kernels/kv.md
// Needs     can_append_vectors: head_dim a multiple of 8 up to 256, rows on whole vectors,
//           rotary_dim a multiple of 16.
template <class Arch, class T>
__global__ void __launch_bounds__(kAppendThreads)
    kv_append_kernel(const __grid_constant__ KvAppendParams p) {
  using Vec = tile::Vec<T, kKvVec>;
  const int element = static_cast<int>(threadIdx.x & ((1u << p.log_lanes) - 1)) * kKvVec;
  const int64_t first_row = threadIdx.x >> p.log_lanes;
  const int64_t rows_at_once = kAppendThreads >> p.log_lanes;
  const bool needs_range = has_row_scales(p.k_pages.format) || has_row_scales(p.v_pages.format);
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});

  for (int64_t token = blockIdx.x; token < p.num_tokens; token += gridDim.x) {
    const int64_t slot = load_index(p.slots, p.has_long_slots, token);
    const int64_t position =
        p.rotary_dim > 0 ? load_index(p.positions, p.has_long_positions, token) : 0;
    KvAngles angles;
    bool has_angles = false;
    // Every lane of a block goes through the same rounds: they exchange ranges.
    for (int64_t begin = blockIdx.y * rows_at_once; begin < p.num_rows;
         begin += gridDim.y * rows_at_once) {
      const AppendRow row(p, begin + first_row);
      const bool is_inside = begin + first_row < p.num_rows && element < p.head_dim;
      const bool is_rotated = is_inside && row.part != AppendPart::v && element < p.rotary_dim;
      T* at = static_cast<T*>(row.heads.data) + row.heads.element(token, row.head) + element;
      Vec bits{};
      Vec other{};
      if (is_inside) bits = Vec::load(at);
      if (is_rotated && !p.is_interleaved) other = Vec::load(at + half_offset(p, element));
      const float given_scale = is_inside ? load_given_scale(p, row) : 1.0f;
      __syncwarp();  // another lane may write what this one has just read

      float x[kKvVec];
      bits.to_floats(x);
      if (is_rotated) {
        if (!has_angles) angles = load_angles(p, position, element);
        has_angles = true;
        rotate(p, element, angles, other, x);
        bits = Vec::from_floats(x);
        bits.store(at);
        bits.to_floats(x);  // codes are those of what k holds now
      }
      KvRange range;
      if (needs_range) {
        TESSERA_UNROLL
        for (int i = 0; i < kKvVec; ++i) {
          if (is_inside) range.include(x[i]);
        }
        range.fold(p.log_lanes);
      }
      if (!is_inside || !row.is_stored(p, slot)) continue;
      const KvPool pool = row.part == AppendPart::k ? p.k_pages : p.v_pages;
      const auto [page, page_row] = place_of(p, slot);
      const KvScale scale = scale_of_row(pool.format, given_scale, range);
      store_codes<true>(pool, pool.element(page, page_row, row.head) + element, bits, x, scale,
                        kKvVec);
      if (element == 0 && has_row_scales(pool.format)) {
        store_scale(row_scale_at(pool, page, page_row, row.head), scale,
                    pool.format != KvFormat::int8);
      }
    }
  }
}

// The same for rows of any length and alignment.
//
//   q, k = rope(q), rope(k);  k_pages[slots[i]] = k[i];  v_pages[slots[i]] = v[i]
//
// Work      A warp takes a row, element by element, in rounds like those of kv_append_kernel.
// Pipeline  None: the row is rotated in memory, read for its range, and read again for its codes.
// Output    As above.
// Cost      Three passes over what the caches hold; it is for sizes that no model of today has.
// Needs     nothing.
template <class Arch, class T>
__global__ void __launch_bounds__(kAppendThreads, 4)
    kv_append_any_kernel(const __grid_constant__ KvAppendParams p) {
  using Vec = tile::Vec<T, kKvVec>;
  const int lane = static_cast<int>(threadIdx.x) % kMaxKvLanes;
  const int64_t first_row = threadIdx.x / kMaxKvLanes;
  constexpr int64_t kRowsAtOnce = kAppendThreads / kMaxKvLanes;
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});

  for (int64_t token = blockIdx.x; token < p.num_tokens; token += gridDim.x) {
    const int64_t slot = load_index(p.slots, p.has_long_slots, token);
    for (int64_t idx = blockIdx.y * kRowsAtOnce + first_row; idx < p.num_rows;
         idx += gridDim.y * kRowsAtOnce) {
      const AppendRow row(p, idx);
      T* data = static_cast<T*>(row.heads.data) + row.heads.element(token, row.head);
      if (row.part != AppendPart::v) rotate_in_memory(p, token, lane, data);
      __syncwarp();  // the row is now read by other lanes than wrote it
      if (!row.is_stored(p, slot)) continue;
      const KvPool pool = row.part == AppendPart::k ? p.k_pages : p.v_pages;
      const auto [page, page_row] = place_of(p, slot);
      KvRange range;
      if (has_row_scales(pool.format)) {
        for (int i = lane; i < p.head_dim; i += kMaxKvLanes) range.include(tile::to_float(data[i]));
        range.fold(p.log_lanes);
      }
      const KvScale scale = scale_of_row(pool.format, load_given_scale(p, row), range);
      for (int i = lane * kKvVec; i < p.head_dim; i += kMaxKvLanes * kKvVec) {
        const int count = min(kKvVec, p.head_dim - i);
        const Vec bits = Vec::load_part(data + i, count);
        float x[kKvVec];
        bits.to_floats(x);
        store_codes<false>(pool, pool.element(page, page_row, row.head) + i, bits, x, scale, count);
      }
      if (lane == 0 && has_row_scales(pool.format)) {
        store_scale(row_scale_at(pool, page, page_row, row.head), scale,
                    pool.format != KvFormat::int8);
      }
    }
  }
}

// Blocks that a GPU of today has room for at once; with more, each takes more rows of its token,
// which share the angles.
inline constexpr int64_t kAppendBlocks = 2048;

inline dim3 append_grid(const KvAppendParams& p) {
  const int64_t rows_at_once = kAppendThreads >> p.log_lanes;
  const int64_t num_rounds = (p.num_rows + rows_at_once - 1) / rows_at_once;
  const int64_t tokens = std::min(p.num_tokens, int64_t{1} << 30);
  const int64_t wanted = std::clamp(kAppendBlocks / tokens, int64_t{1}, int64_t{1024});
  const int64_t rounds_each = (num_rounds + wanted - 1) / wanted;
  return dim3(static_cast<unsigned>(tokens),
              static_cast<unsigned>((num_rounds + rounds_each - 1) / rounds_each));
}

inline KvAppendParams make_append_params(const KvAppendArgs& args) {
  const bool has_columns = kv_format(args.k_pages, args.k_scales) == KvFormat::int4_columns;
  KvAppendParams p{.k = make_heads(args.k),
                   .v = make_heads(args.v),
                   .slots = args.slots.data,
                   .k_pages = make_pool(args.k_pages, args.k_scales),
                   .v_pages = make_pool(args.v_pages, args.v_scales),
                   .num_tokens = args.k.size(0),
                   .num_slots = args.k_pages.size(0) * args.k_pages.size(1),
                   .num_kv_heads = args.k.size(1),
                   .page_size = make_divisor(args.k_pages.size(1)),
                   .head_dim = static_cast<int>(args.k.size(2)),
                   .log_lanes = count_log_lanes(args.k.size(2)),
                   .has_long_slots = args.slots.dtype == DType::i64};
  if (has_columns) {
    p.k_tail = make_pool(args.k_tail, {});
    p.tail_slots = args.tail_slots.data;
    p.num_tail_slots = args.k_tail.size(0) * kKvGroup;
    p.has_long_tail_slots = args.tail_slots.dtype == DType::i64;
  }
  if (args.rope) {
    p.q = make_heads(args.rope->q);
    p.positions = args.rope->positions.data;
    p.table = args.rope->table.as<const float>();
    p.num_positions = args.rope->table.size(0);
    p.rotary_dim = static_cast<int>(args.rope->table.size(1));
    p.is_interleaved = args.rope->style == RopeStyle::interleaved;
    p.has_long_positions = args.rope->positions.dtype == DType::i64;
  }
  if (p.rotary_dim == 0) p.q.num_heads = 0;
  if (has_columns && p.rotary_dim == 0) p.k.num_heads = 0;
  p.num_rows = p.q.num_heads + p.k.num_heads + p.v.num_heads;
  return p;
}

template <class Arch, class T>
void launch_kv_append(const KvAppendArgs& args, const Context& ctx) {
  KvAppendParams p = make_append_params(args);
  if (p.num_tokens == 0) return;
  const bool use_vectors = can_append_vectors(args);
  if (!use_vectors) p.log_lanes = count_log_lanes(kMaxKvLanes * kKvVec);
  if (p.num_rows > 0) {
    const LaunchShape shape{.grid = append_grid(p),
                            .block = dim3(kAppendThreads),
                            .overlaps_previous = kOverlaps<Arch>};
    launch(use_vectors ? &kv_append_kernel<Arch, T> : &kv_append_any_kernel<Arch, T>, shape, p,
           ctx);
  }
  if (p.k_pages.format == KvFormat::int4_columns) launch_append_columns<Arch, T>(p, ctx);
}

}  // namespace tessera::kernels
