// Reads a KV cache back: pages of any format to contiguous rows of floats.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "kernels/kv/codes.cuh"
#include "kernels/launch.h"
#include "kernels/with_constant.h"
#include "tile/arch.cuh"
#include "tile/reduce.cuh"

namespace tessera::kernels::kv {

inline constexpr int kGatherThreads = 256;
inline constexpr int kGatherBlocksOfSm = 4;     // what registers allow
inline constexpr int64_t kGatherBlocks = 1056;  // twice what an H200 holds at once

// An item of work: up to 2^log_item_tokens neighbouring tokens of one sequence.
struct GatherItem {
  int64_t sequence = -1;  // negative: no such item
  int first_token = 0;
  int num_tokens = 0;
};

// Finds items by number, from lengths that only the device knows, 32 sequences at a time. Numbers
// must not decrease, and all lanes of a warp ask for the same one.
class GatherItems {
 public:
  __device__ explicit GatherItems(const KvGatherParams& p) : p_(p) {}

  __device__ GatherItem find(int64_t number) {
    const int lane = static_cast<int>(threadIdx.x) % tile::kWarpSize;
    for (; window_ < p_.batch; window_ += tile::kWarpSize) {
      const int length = length_of(window_ + lane);
      const int item_tokens = 1 << p_.log_item_tokens;
      const int64_t items = (int64_t{length} + item_tokens - 1) >> p_.log_item_tokens;
      int64_t end = items;  // items of the window up to and including this sequence
      for (int apart = 1; apart < tile::kWarpSize; apart *= 2) {
        const int64_t below = __shfl_up_sync(0xffffffffu, end, apart);
        if (lane >= apart) end += below;
      }
      const int64_t in_window = number - before_;
      const unsigned beyond = __ballot_sync(0xffffffffu, in_window < end);
      if (beyond != 0) {
        const int owner = __ffs(static_cast<int>(beyond)) - 1;
        const int64_t begin = __shfl_sync(0xffffffffu, end - items, owner);
        const int tokens = __shfl_sync(0xffffffffu, length, owner);
        const int first = static_cast<int>(in_window - begin) << p_.log_item_tokens;
        return {window_ + owner, first, min(item_tokens, tokens - first)};
      }
      before_ += __shfl_sync(0xffffffffu, end, tile::kWarpSize - 1);
    }
    return {};
  }

 private:
  // At most the tokens that have pages and rows.
  __device__ int length_of(int64_t sequence) const {
    if (sequence >= p_.batch) return 0;
    return max(min(p_.seq_lens[sequence], p_.most_tokens), 0);
  }

  const KvGatherParams& p_;
  int64_t window_ = 0;  // the first sequence of the window
  int64_t before_ = 0;  // items of the sequences before it
};

// One head of a token's keys or values: its address and scales.
struct GatherRow {
  void* data = nullptr;  // of the pool; null: no such row
  const void* scales = nullptr;
  int64_t offset = 0;  // of the row's first element
  int64_t column_stride = 0;
  DType dtype = DType::f32;
  KvScales scale_kind = KvScales::none;
  bool has_low = false;
  bool has_column_vectors = false;

  GatherRow() = default;
  __device__ GatherRow(const KvPool& pool, int64_t page, int64_t row, int64_t head)
      : data(pool.data),
        offset(pool.element(page, row, head)),
        column_stride(pool.scale_column_stride),
        dtype(pool.dtype),
        scale_kind(pool.scale_kind),
        has_low(pool.has_low),
        has_column_vectors(pool.has_column_vectors) {
    const bool is_by_column = scale_kind == KvScales::column;
    const int64_t at = pool.scale_element(page, is_by_column ? row / kKvGroup : row, head);
    if (pool.scales == nullptr) return;
    scales = static_cast<const char*>(pool.scales) +
             at * static_cast<int64_t>(scale_kind == KvScales::head ? sizeof(float) : sizeof(F16));
  }

  // The scale of the whole row, unless scales are by column.
  __device__ KvScale load_row_scale() const {
    if (scale_kind == KvScales::head) {
      return {scales == nullptr ? 1.0f : *static_cast<const float*>(scales), 0.0f};
    }
    return load_scale(static_cast<const F16*>(scales), has_low);
  }
};

__device__ inline GatherRow find_row(const KvGatherParams& p, int64_t sequence, int token,
                                     int64_t head, bool is_k) {
  if (is_k && p.k_pages.scale_kind == KvScales::column &&
      token / kKvGroup == (p.seq_lens[sequence] - 1) / kKvGroup) {
    const int64_t tail = p.tails[sequence];
    if (tail < 0 || tail >= p.num_tails) return {};
    return {p.k_tail, tail, token % kKvGroup, head};
  }
  const auto [entry, row] = divide_with_remainder(static_cast<uint32_t>(token), p.page_size);
  const int64_t page =
      p.page_table == nullptr ? sequence : p.page_table[sequence * p.table_stride + entry];
  if (page < 0 || page >= p.num_pages) return {};
  return is_k ? GatherRow(p.k_pages, page, row, head) : GatherRow(p.v_pages, page, row, head);
}

// Scale and low, alternating, of kKvVec columns from `element` on.
__device__ inline tile::Vec<F16, 2 * kKvVec> load_column_scales(const GatherRow& at, int element,
                                                                int count) {
  using Pairs = tile::Vec<F16, 2 * kKvVec>;
  const F16* scales = static_cast<const F16*>(at.scales) + element * at.column_stride;
  if (at.has_column_vectors) return Pairs::load(scales);
  Pairs pairs{};
  TESSERA_UNROLL
  for (int i = 0; i < kKvVec; ++i) {
    if (i >= count) continue;
    pairs.values[2 * i] = scales[i * at.column_stride];
    pairs.values[2 * i + 1] = scales[i * at.column_stride + 1];
  }
  return pairs;
}

// kKvVec elements from `element` on, dequantised; product and sum are each rounded.
template <bool kIsVectorized>
__device__ void load_numbers(const GatherRow& at, int element, int count, float (&x)[kKvVec]) {
  load_codes<kIsVectorized>(at.data, at.dtype, at.offset + element, count, x);
  if (at.scale_kind == KvScales::none) return;
  if (at.scale_kind == KvScales::column) {
    const auto pairs = load_column_scales(at, element, count);
    TESSERA_UNROLL
    for (int i = 0; i < kKvVec; ++i) {
      const KvScale s = load_scale(&pairs.values[2 * i], true);
      x[i] = __fadd_rn(__fmul_rn(x[i], s.scale), s.low);
    }
    return;
  }
  const KvScale s = at.load_row_scale();
  TESSERA_UNROLL
  for (int i = 0; i < kKvVec; ++i) x[i] = __fadd_rn(__fmul_rn(x[i], s.scale), s.low);
}

// Copies pages to rows.
//
//   k[starts[s] + t], v[starts[s] + t] = code * scale + low      for t < seq_lens[s]
//
// Work      An item is a few tokens of one sequence; a block takes every gridDim.x-th. Lengths are
//           read on the device, so the grid depends on shapes alone and a captured graph stays
//           valid. 2^log_lanes lanes share a row, one head of k or v of a token, 8 elements each.
// Pipeline  None: page number, codes, store. Many warps hide the latency.
// Output    Each row is written by one group of lanes. Pages, tails and rows out of range are
//           skipped.
// Cost      Reads codes and scales, writes 2 or 4 bytes per element. Bandwidth is the limit.
//           docs/kernels/kv.md
// Needs     can_gather_vectors if kIsVectorized.
template <class Arch, class T, bool kIsVectorized>
__global__ void __launch_bounds__(kGatherThreads, kGatherBlocksOfSm)
    kv_gather_kernel(const __grid_constant__ KvGatherParams p) {
  const int lane = static_cast<int>(threadIdx.x & ((1u << p.log_lanes) - 1));
  const uint32_t first_row = threadIdx.x >> p.log_lanes;
  const uint32_t rows_at_once = kGatherThreads >> p.log_lanes;
  const uint32_t num_heads = p.rows_per_token.value / 2;
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});

  GatherItems items(p);
  for (int64_t number = blockIdx.x;; number += gridDim.x) {
    const GatherItem item = items.find(number);
    if (item.sequence < 0) break;
    const int64_t start = p.starts[item.sequence] + static_cast<int64_t>(item.first_token);
    const uint32_t num_rows = static_cast<uint32_t>(item.num_tokens) * p.rows_per_token.value;
    for (uint32_t idx = first_row; idx < num_rows; idx += rows_at_once) {
      const auto [token_idx, row_idx] = divide_with_remainder(idx, p.rows_per_token);
      const bool is_k = row_idx < num_heads;
      const int64_t head = is_k ? row_idx : row_idx - num_heads;
      const int64_t out_row = start + token_idx;
      const GatherRow at =
          find_row(p, item.sequence, item.first_token + static_cast<int>(token_idx), head, is_k);
      if (at.data == nullptr || out_row < 0 || out_row >= p.num_rows) continue;
      const KvHeads out = is_k ? p.k : p.v;
      T* to = static_cast<T*>(out.data) + out.element(out_row, head);
      for (int i = lane * kKvVec; i < p.head_dim; i += kKvVec << p.log_lanes) {
        const int count = min(kKvVec, p.head_dim - i);
        float x[kKvVec];
        load_numbers<kIsVectorized>(at, i, count, x);
        store_elements<kIsVectorized>(tile::Vec<T, kKvVec>::from_floats(x), to + i, count);
      }
    }
  }
}

inline KvGatherParams make_gather_params(const KvGatherArgs& args) {
  const PagedKv& kv = args.kv;
  const bool has_table = kv.page_table.rank == 2;
  const int64_t page_size = kv.k_pages.size(1), num_heads = args.k.size(1);
  const int64_t room =
      std::min((has_table ? kv.page_table.size(1) : 1) * page_size, args.k.size(0));
  KvGatherParams p{.k_pages = make_pool(kv.k_pages, kv.k_scales),
                   .v_pages = make_pool(kv.v_pages, kv.v_scales),
                   .k = make_heads(args.k),
                   .v = make_heads(args.v),
                   .page_table = has_table ? kv.page_table.as<const int32_t>() : nullptr,
                   .seq_lens = kv.seq_lens.as<const int32_t>(),
                   .starts = args.starts.as<const int32_t>(),
                   .table_stride = has_table ? kv.page_table.stride(0) : 0,
                   .batch = kv.seq_lens.size(0),
                   .num_pages = kv.k_pages.size(0),
                   .num_rows = args.k.size(0),
                   .page_size = make_divisor(page_size),
                   .rows_per_token = make_divisor(std::max(2 * num_heads, int64_t{1})),
                   .most_tokens = static_cast<int>(std::min(room, int64_t{INT32_MAX})),
                   .log_item_tokens = num_heads <= (1 << 20) ? 3 : 0,
                   .head_dim = static_cast<int>(args.k.size(2)),
                   .log_lanes = count_log_lanes(args.k.size(2))};
  if (p.k_pages.scale_kind == KvScales::column) {
    p.k_tail = make_pool(kv.k_tail, {});
    p.tails = kv.tails.as<const int32_t>();
    p.num_tails = kv.k_tail.size(0);
  }
  return p;
}

template <class Arch, class T>
void launch_gather(const KvGatherArgs& args, const Context& ctx) {
  const KvGatherParams p = make_gather_params(args);
  if (p.batch == 0 || p.k.num_heads == 0 || p.num_rows == 0) return;
  // Full items, and one partial item per sequence.
  const int64_t most_items = (p.num_rows >> p.log_item_tokens) + p.batch;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(std::min(kGatherBlocks, most_items))),
                          .block = dim3(kGatherThreads),
                          .overlaps_previous = kOverlaps<Arch>};
  with_constant<true, false>(can_gather_vectors(args), [&](auto vectorized) {
    launch(&kv_gather_kernel<Arch, T, vectorized()>, shape, p, ctx);
  });
}

}  // namespace tessera::kernels::kv
