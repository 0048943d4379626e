// New keys whose columns share a scale for 32 tokens: groups that are complete, then the tails.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "kernels/kv/append_token.cuh"
#include "kernels/launch.h"
#include "tile/arch.cuh"

namespace tessera::kernels {

inline constexpr int kColumnThreads = 64;  // two columns, a byte of codes, each
inline constexpr int kTailThreads = 256;

// Whether a token's key is kept: its slot is one of the pages, its tail slot one of the tails.
__device__ inline bool has_key(const KvAppendParams& p, int64_t slot, int64_t tail_slot) {
  return is_slot(p, slot) && tail_slot >= 0 && tail_slot < p.num_tail_slots;
}

// How many tokens up to `token`, at most 32, have slots that end with its own. The whole warp asks.
__device__ inline int count_new_tokens(const KvAppendParams& p, int64_t token, int64_t slot) {
  const int64_t before = threadIdx.x % kKvGroup;
  const bool runs_on =
      before <= token && load_index(p.slots, p.has_long_slots, token - before) == slot - before;
  const unsigned gaps = ~__ballot_sync(0xffffffffu, runs_on);
  return gaps == 0 ? static_cast<int>(kKvGroup) : __ffs(static_cast<int>(gaps)) - 1;
}

// Groups of 32 keys that a token of the call completes, to their pages.
//
//   low, scale = of each column of 32 keys;  k_pages = code of each key
//
// Work      A block takes a token and those of its heads that are gridDim.y apart, and leaves most
//           tokens at once: they complete nothing. A thread takes two columns, whose codes share
//           bytes.
// Pipeline  The 32 keys are read twice, the second time from L1: once for ranges, once for codes.
// Output    Keys of this call come from k, as far back as slots run on; those before from the tail,
//           which no block writes before this kernel has ended.
// Cost      Of 32 tokens one reads 32 keys, twice, and writes a quarter of their bytes: with the
//           tail's kernel two launches behind the one that rotates. docs/kernels/kv.md
// Needs     k rotated by the kernel before.
template <class Arch, class T>
__global__ void __launch_bounds__(kColumnThreads, 8)
    kv_append_groups_kernel(const __grid_constant__ KvAppendParams p) {
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});
  for (int64_t token = blockIdx.x; token < p.num_tokens; token += gridDim.x) {
    const int64_t slot = load_index(p.slots, p.has_long_slots, token);
    const int64_t tail_slot = load_index(p.tail_slots, p.has_long_tail_slots, token);
    if (!has_key(p, slot, tail_slot) || slot % kKvGroup != kKvGroup - 1) continue;
    const int num_old = static_cast<int>(kKvGroup) - count_new_tokens(p, token, slot);
    const auto [page, last_row] = place_of(p, slot);
    const int64_t first_row = last_row - (kKvGroup - 1);
    for (int64_t head = blockIdx.y; head < p.num_kv_heads; head += gridDim.y) {
      // The key of row 0 would lie here, in k and in the tail.
      const T* new_keys =
          static_cast<const T*>(p.k.data) + p.k.element(token - (kKvGroup - 1), head);
      const T* old_keys =
          static_cast<const T*>(p.k_tail.data) + p.k_tail.element(tail_slot / kKvGroup, 0, head);
      const auto key_at = [&](int row) {
        return row < num_old ? old_keys + row * p.k_tail.row_stride
                             : new_keys + row * p.k.token_stride;
      };
      F16* scales = row_scale_at(p.k_pages, page, first_row / kKvGroup, head);
      for (int column = 2 * static_cast<int>(threadIdx.x); column < p.head_dim;
           column += 2 * kColumnThreads) {
        const bool has_second = column + 1 < p.head_dim;
        KvRange ranges[2];
        TESSERA_UNROLL
        for (int row = 0; row < kKvGroup; ++row) {
          const T* key = key_at(row) + column;
          ranges[0].include(tile::to_float(key[0]));
          if (has_second) ranges[1].include(tile::to_float(key[1]));
        }
        const KvScale first = find_scale(ranges[0], KvFormat::int4_columns);
        const KvScale second = find_scale(ranges[1], KvFormat::int4_columns);
        store_scale(scales + column * p.k_pages.scale_column_stride, first, true);
        if (has_second) {
          store_scale(scales + (column + 1) * p.k_pages.scale_column_stride, second, true);
        }
        for (int row = 0; row < kKvGroup; ++row) {
          const T* key = key_at(row) + column;
          I4x2* to = codes_at<I4x2>(p.k_pages.data,
                                    p.k_pages.element(page, first_row + row, head) + column);
          // A last column alone leaves the other half of its byte as it is.
          const int high =
              has_second ? unsigned_code(tile::to_float(key[1]), second, 15) : to->bits >> 4;
          const int low = unsigned_code(tile::to_float(key[0]), first, 15);
          to->bits = static_cast<uint8_t>(low | high << 4);
        }
      }
    }
  }
}

// The keys of a call to their tails.
//
//   k_tail[tail_slots[i]] = k[i]      of two with one slot the later stays
//
// Work      A block takes a token. It looks for a later one with the same tail slot, 32 tokens
//           further on in a prompt, and copies the key only if there is none.
// Pipeline  None.
// Output    Each row of a tail is written by one block at most.
// Cost      The search ends at the first token found; only the last 32 of each sequence search to
//           the end. Then a key is read and written.
// Needs     kv_append_groups_kernel before it, which reads what is overwritten here.
template <class Arch, class T>
__global__ void __launch_bounds__(kTailThreads)
    kv_append_tails_kernel(const __grid_constant__ KvAppendParams p) {
  const int thread = static_cast<int>(threadIdx.x);
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});
  for (int64_t token = blockIdx.x; token < p.num_tokens; token += gridDim.x) {
    const int64_t slot = load_index(p.slots, p.has_long_slots, token);
    const int64_t tail_slot = load_index(p.tail_slots, p.has_long_tail_slots, token);
    if (!has_key(p, slot, tail_slot)) continue;
    bool is_last = true;
    for (int64_t begin = token + 1; is_last && begin < p.num_tokens; begin += kTailThreads) {
      const int64_t later = begin + thread;
      const bool is_same = later < p.num_tokens &&
                           load_index(p.tail_slots, p.has_long_tail_slots, later) == tail_slot &&
                           is_slot(p, load_index(p.slots, p.has_long_slots, later));
      is_last = __syncthreads_or(is_same) == 0;
    }
    if (!is_last) continue;
    constexpr int kWarps = kTailThreads / kMaxKvLanes;
    for (int64_t head = thread / kMaxKvLanes; head < p.num_kv_heads; head += kWarps) {
      const T* from = static_cast<const T*>(p.k.data) + p.k.element(token, head);
      T* to = static_cast<T*>(p.k_tail.data) +
              p.k_tail.element(tail_slot / kKvGroup, tail_slot % kKvGroup, head);
      for (int i = thread % kMaxKvLanes; i < p.head_dim; i += kMaxKvLanes) to[i] = from[i];
    }
  }
}

template <class Arch, class T>
void launch_append_columns(const KvAppendParams& p, const Context& ctx) {
  if (p.num_kv_heads == 0) return;
  const auto tokens = static_cast<unsigned>(std::min(p.num_tokens, int64_t{1} << 30));
  const auto heads = static_cast<unsigned>(std::min(p.num_kv_heads, int64_t{1024}));
  launch(&kv_append_groups_kernel<Arch, T>,
         {.grid = dim3(tokens, heads),
          .block = dim3(kColumnThreads),
          .overlaps_previous = kOverlaps<Arch>},
         p, ctx);
  launch(&kv_append_tails_kernel<Arch, T>,
         {.grid = dim3(tokens), .block = dim3(kTailThreads), .overlaps_previous = kOverlaps<Arch>},
         p, ctx);
}

}  // namespace tessera::kernels
