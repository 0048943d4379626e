// Appends new tokens to a KV cache: q and k rotated, k and v quantised and scattered, in one
// launch; keys with scales by column take two more.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "kernels/kv/codes.cuh"
#include "kernels/launch.h"
#include "kernels/rotate.cuh"
#include "tile/arch.cuh"

namespace tessera::kernels::kv {

__device__ inline int64_t load_index(const void* indices, bool are_long, int64_t i) {
  return are_long ? static_cast<const int64_t*>(indices)[i]
                  : static_cast<const int32_t*>(indices)[i];
}

enum class AppendPart : uint8_t { q, k, v };

__device__ inline bool is_slot(const KvAppendParams& p, int64_t slot) {
  return slot >= 0 && slot < p.num_slots;
}

// The page of a slot, and the row within it.
__device__ inline QuotientRemainder place_of(const KvAppendParams& p, int64_t slot) {
  return divide_with_remainder(static_cast<uint32_t>(slot), p.page_size);
}

// The idx-th row of a token: heads of q, then of k, then of v.
struct AppendRow {
  AppendPart part;
  KvHeads heads;
  int64_t head;

  __device__ AppendRow(const KvAppendParams& p, int64_t idx) {
    const int64_t before_v = p.q.num_heads + p.k.num_heads;
    part = idx < p.q.num_heads ? AppendPart::q : idx < before_v ? AppendPart::k : AppendPart::v;
    heads = part == AppendPart::q ? p.q : part == AppendPart::k ? p.k : p.v;
    head = idx - (part == AppendPart::q ? 0 : part == AppendPart::k ? p.q.num_heads : before_v);
  }

  // Whether the row is stored in a page by itself, rather than with its column.
  __device__ bool is_stored(const KvAppendParams& p, int64_t slot) const {
    if (part == AppendPart::q || !is_slot(p, slot)) return false;
    return part == AppendPart::v || p.k_pages.scale_kind != KvScales::column;
  }
};

// The scale that the caller chose for a head; 1 if the format has no such scale.
__device__ inline float load_given_scale(const KvAppendParams& p, const AppendRow& row) {
  if (row.part == AppendPart::k && p.k_pages.scale_kind == KvScales::head) {
    return head_scale(p.k_pages, row.head);
  }
  if (row.part == AppendPart::v && p.v_pages.scale_kind == KvScales::head) {
    return head_scale(p.v_pages, row.head);
  }
  return 1.0f;
}

// The scale a row is stored with, given the range of its elements.
__device__ inline KvScale scale_of_row(const KvPool& pool, float given_scale,
                                       const KvRange& range) {
  return pool.scale_kind == KvScales::row ? find_scale(range, pool.dtype)
                                          : KvScale{given_scale, 0.0f};
}

// Cosines and sines of the kKvVec elements of a vector: half_split has one pair per element,
// interleaved one per two elements.
struct KvAngles {
  float cosines[kKvVec];
  float sines[kKvVec];
};

// half_split: the distance from an element to the other of its pair.
__device__ inline int half_offset(const KvAppendParams& p, int element) {
  const int half = p.rotary_dim / 2;
  return element < half ? half : -half;
}

__device__ inline KvAngles load_angles(const KvAppendParams& p, int64_t position, int element) {
  KvAngles angles;
  if (position < 0 || position >= p.num_positions) {
    TESSERA_UNROLL
    for (int i = 0; i < kKvVec; ++i) {
      angles.cosines[i] = angles.sines[i] = __int_as_float(0x7fffffff);
    }
    return angles;
  }
  const int half = p.rotary_dim / 2;
  const float* row = p.table + position * p.rotary_dim;
  if (p.is_interleaved) {
    const auto cosines = tile::Vec<float, kKvVec / 2>::load(row + element / 2);
    const auto sines = tile::Vec<float, kKvVec / 2>::load(row + half + element / 2);
    TESSERA_UNROLL
    for (int i = 0; i < kKvVec; ++i) {
      angles.cosines[i] = cosines.values[i / 2];
      angles.sines[i] = sines.values[i / 2];
    }
  } else {
    const float* pair = row + (element < half ? element : element - half);
    tile::Vec<float, kKvVec>::load(pair).to_floats(angles.cosines);
    tile::Vec<float, kKvVec>::load(pair + half).to_floats(angles.sines);
  }
  return angles;
}

// Rotates the elements of a vector; half_split: `other` holds the other elements of their pairs.
template <class T>
__device__ void rotate(const KvAppendParams& p, int element, const KvAngles& angles,
                       const tile::Vec<T, kKvVec>& other, float (&x)[kKvVec]) {
  if (p.is_interleaved) {
    TESSERA_UNROLL
    for (int i = 0; i < kKvVec; i += 2) {
      const float a = x[i], b = x[i + 1];
      x[i] = rotate_first(a, b, angles.cosines[i], angles.sines[i]);
      x[i + 1] = rotate_second(a, b, angles.cosines[i], angles.sines[i]);
    }
    return;
  }
  const bool is_first = element < p.rotary_dim / 2;
  float y[kKvVec];
  other.to_floats(y);
  TESSERA_UNROLL
  for (int i = 0; i < kKvVec; ++i) {
    x[i] = is_first ? rotate_first(x[i], y[i], angles.cosines[i], angles.sines[i])
                    : rotate_second(y[i], x[i], angles.cosines[i], angles.sines[i]);
  }
}

// Rotates a whole row in memory; each lane of the warp takes some pairs.
template <class T>
__device__ void rotate_in_memory(const KvAppendParams& p, int64_t token, int lane, T* row) {
  const int half = p.rotary_dim / 2;
  if (half == 0) return;
  const int64_t position = load_index(p.positions, p.has_long_positions, token);
  const bool is_inside = position >= 0 && position < p.num_positions;
  const float* angles = p.table + (is_inside ? position * p.rotary_dim : 0);
  for (int i = lane; i < half; i += kMaxKvLanes) {
    T& first = row[p.is_interleaved ? 2 * i : i];
    T& second = row[p.is_interleaved ? 2 * i + 1 : i + half];
    const float cosine = is_inside ? angles[i] : __int_as_float(0x7fffffff);
    const float sine = is_inside ? angles[half + i] : __int_as_float(0x7fffffff);
    const float a = tile::to_float(first), b = tile::to_float(second);
    first = tile::from_float<T>(rotate_first(a, b, cosine, sine));
    second = tile::from_float<T>(rotate_second(a, b, cosine, sine));
  }
}

inline constexpr int kColumnThreads = 64;  // each has two columns: a byte of codes
inline constexpr int kTailThreads = 256;

// Whether a token's key is stored: its slot lies in the pages and its tail slot in the tails.
__device__ inline bool has_key(const KvAppendParams& p, int64_t slot, int64_t tail_slot) {
  return is_slot(p, slot) && tail_slot >= 0 && tail_slot < p.num_tail_slots;
}

// How many tokens up to and including `token`, at most 32, have consecutive slots. Called by a
// whole warp.
__device__ inline int count_new_tokens(const KvAppendParams& p, int64_t token, int64_t slot) {
  const int64_t before = threadIdx.x % kKvGroup;
  const bool runs_on =
      before <= token && load_index(p.slots, p.has_long_slots, token - before) == slot - before;
  const unsigned gaps = ~__ballot_sync(0xffffffffu, runs_on);
  return gaps == 0 ? static_cast<int>(kKvGroup) : __ffs(static_cast<int>(gaps)) - 1;
}

// Writes groups of 32 keys that a token of the call completes to their pages.
//
//   low, scale = range of each column of 32 keys;  k_pages = code of each key
//
// Work      A block takes a token and every gridDim.y-th of its heads. Most tokens complete no
//           group and end at once. A thread takes two columns, whose codes share bytes.
// Pipeline  The 32 keys are read twice: for ranges, then from L1 for codes.
// Output    Keys of this call are read from k, as far back as slots are consecutive; older ones
//           from the tail, which no block writes before this kernel has ended.
// Cost      One token in 32 reads 32 keys and writes a quarter of their bytes. Two launches after
//           the one that rotates, together with the tails. docs/kernels/kv.md
// Needs     k rotated by the previous kernel.
template <class Arch, class T>
__global__ void __launch_bounds__(kColumnThreads, 8)
    kv_append_groups_kernel(const __grid_constant__ KvAppendParams p) {
  tile::release_next(Arch{});
  tile::wait_for_previous(Arch{});
  for (int64_t token = blockIdx.x; token < p.num_tokens; token += gridDim.x) {
    const int64_t slot = load_index(p.slots, p.has_long_slots, token);
    const int64_t tail_slot = load_index(p.tail_slots, p.has_long_tail_slots, token);
    if (!has_key(p, slot, tail_slot) || slot % kKvGroup != kKvGroup - 1) continue;
    const int num_old = static_cast<int>(kKvGroup) - count_new_tokens(p, token, slot);
    const auto [page, last_row] = place_of(p, slot);
    const int64_t first_row = last_row - (kKvGroup - 1);
    for (int64_t head = blockIdx.y; head < p.num_kv_heads; head += gridDim.y) {
      // The address of row 0 of the group, in k and in the tail.
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
        const KvScale first = find_scale(ranges[0], DType::i4);
        const KvScale second = find_scale(ranges[1], DType::i4);
        store_scale(scales + column * p.k_pages.scale_column_stride, first, true);
        if (has_second) {
          store_scale(scales + (column + 1) * p.k_pages.scale_column_stride, second, true);
        }
        for (int row = 0; row < kKvGroup; ++row) {
          const T* key = key_at(row) + column;
          I4x2* to = codes_at<I4x2>(p.k_pages.data,
                                    p.k_pages.element(page, first_row + row, head) + column);
          // A single last column leaves the other half of its byte unchanged.
          const int high =
              has_second ? unsigned_code(tile::to_float(key[1]), second, 15) : to->bits >> 4;
          const int low = unsigned_code(tile::to_float(key[0]), first, 15);
          to->bits = static_cast<uint8_t>(low | high << 4);
        }
      }
    }
  }
}

// Copies the keys of a call to their tails.
//
//   k_tail[tail_slots[i]] = k[i]      if two tokens share a slot, the later one stays
//
// Work      A block takes a token, looks for a later one with the same tail slot (32 tokens further
//           in a prompt), and copies the key only if there is none.
// Pipeline  None.
// Output    Each row of a tail is written by at most one block.
// Cost      The search ends at the first match; only the last 32 tokens of each sequence search to
//           the end. Then a key is read and written.
// Needs     kv_append_groups_kernel before it, which reads what is overwritten here.
template <class Arch, class T>
__global__ void __launch_bounds__(kTailThreads)
    kv_append_tails_kernel(const __grid_constant__ KvAppendParams p) {
  const int thread = static_cast<int>(threadIdx.x);
  tile::release_next(Arch{});
  tile::wait_for_previous(Arch{});
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

inline constexpr int kAppendThreads = 128;

// Rotates and stores new tokens, with each row in registers.
//
//   q, k = rope(q), rope(k);  k_pages[slots[i]] = k[i];  v_pages[slots[i]] = v[i]
//
// Work      A row is a head of q, k or v of one token; 2^log_lanes lanes share it, with a vector of
//           8 elements each. A block processes rows of one token, as many at once as fit, then the
//           rows gridDim.y blocks further.
// Pipeline  A row's vector, and the one it is rotated with, are in flight before the position and
//           then the angles are loaded. The angles are reused for all rows of the token.
// Output    Each element is written by one lane, after the warp has read the row. A position
//           outside the table turns the rotated elements into NaN; a slot outside the pages stores
//           nothing. Keys with scales by column are only rotated here.
// Cost      Reads q, k and v, writes q, k and the pages: 27 KB per token for 32 and 8 heads of 128
//           in bf16. With few tokens the time is the latency of slot or position, angles and a
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
  const bool needs_range =
      p.k_pages.scale_kind == KvScales::row || p.v_pages.scale_kind == KvScales::row;
  tile::release_next(Arch{});
  tile::wait_for_previous(Arch{});

  for (int64_t token = blockIdx.x; token < p.num_tokens; token += gridDim.x) {
    const int64_t slot = load_index(p.slots, p.has_long_slots, token);
    const int64_t position =
        p.rotary_dim > 0 ? load_index(p.positions, p.has_long_positions, token) : 0;
    KvAngles angles;
    bool has_angles = false;
    // Every lane runs the same rounds, because lanes exchange ranges.
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
      __syncwarp();  // another lane may overwrite what this one has just read

      float x[kKvVec];
      bits.to_floats(x);
      if (is_rotated) {
        if (!has_angles) angles = load_angles(p, position, element);
        has_angles = true;
        rotate(p, element, angles, other, x);
        bits = Vec::from_floats(x);
        bits.store(at);
        bits.to_floats(x);  // codes are made of the rounded values that k holds now
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
      const KvScale scale = scale_of_row(pool, given_scale, range);
      store_codes<true>(pool, pool.element(page, page_row, row.head) + element, bits, x, scale,
                        kKvVec);
      if (element == 0 && pool.scale_kind == KvScales::row) {
        store_scale(row_scale_at(pool, page, page_row, row.head), scale, pool.has_low);
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
// Cost      Three passes over a row, from L1 and L2. For sizes that no current model has.
// Needs     nothing.
template <class Arch, class T>
__global__ void __launch_bounds__(kAppendThreads, 4)
    kv_append_any_kernel(const __grid_constant__ KvAppendParams p) {
  using Vec = tile::Vec<T, kKvVec>;
  const int lane = static_cast<int>(threadIdx.x) % kMaxKvLanes;
  const int64_t first_row = threadIdx.x / kMaxKvLanes;
  constexpr int64_t kRowsAtOnce = kAppendThreads / kMaxKvLanes;
  tile::release_next(Arch{});
  tile::wait_for_previous(Arch{});

  for (int64_t token = blockIdx.x; token < p.num_tokens; token += gridDim.x) {
    const int64_t slot = load_index(p.slots, p.has_long_slots, token);
    for (int64_t idx = blockIdx.y * kRowsAtOnce + first_row; idx < p.num_rows;
         idx += gridDim.y * kRowsAtOnce) {
      const AppendRow row(p, idx);
      T* data = static_cast<T*>(row.heads.data) + row.heads.element(token, row.head);
      if (row.part != AppendPart::v) rotate_in_memory(p, token, lane, data);
      __syncwarp();  // other lanes read what this one has written
      if (!row.is_stored(p, slot)) continue;
      const KvPool pool = row.part == AppendPart::k ? p.k_pages : p.v_pages;
      const auto [page, page_row] = place_of(p, slot);
      KvRange range;
      if (pool.scale_kind == KvScales::row) {
        for (int i = lane; i < p.head_dim; i += kMaxKvLanes) range.include(tile::to_float(data[i]));
        range.fold(p.log_lanes);
      }
      const KvScale scale = scale_of_row(pool, load_given_scale(p, row), range);
      for (int i = lane * kKvVec; i < p.head_dim; i += kMaxKvLanes * kKvVec) {
        const int count = min(kKvVec, p.head_dim - i);
        const Vec bits = Vec::load_part(data + i, count);
        float x[kKvVec];
        bits.to_floats(x);
        store_codes<false>(pool, pool.element(page, page_row, row.head) + i, bits, x, scale, count);
      }
      if (lane == 0 && pool.scale_kind == KvScales::row) {
        store_scale(row_scale_at(pool, page, page_row, row.head), scale, pool.has_low);
      }
    }
  }
}

// About as many blocks as a GPU holds at once. Beyond that, a block takes more rows of its token
// and reuses the angles.
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
  const bool has_tail = traits(kv_format(args.k_pages, args.k_scales)).has_tail();
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
  if (has_tail) {
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
  if (has_tail && p.rotary_dim == 0) p.k.num_heads = 0;
  p.num_rows = p.q.num_heads + p.k.num_heads + p.v.num_heads;
  return p;
}

template <class Arch, class T>
void launch_append(const KvAppendArgs& args, const Context& ctx) {
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
  if (p.k_pages.scale_kind == KvScales::column) launch_append_columns<Arch, T>(p, ctx);
}

}  // namespace tessera::kernels::kv
