// Rotary position embedding of q and k in one launch.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/divisor.h"
#include "kernels/elementwise/item_grid.cuh"
#include "kernels/elementwise/launch.h"
#include "kernels/launch.h"
#include "kernels/rotate.cuh"
#include "kernels/with_constant.h"
#include "tile/arch.cuh"
#include "tile/vec.cuh"

namespace tessera::kernels {

// Plain data, copied by value into constant memory. Strides count elements; the innermost
// dimension is contiguous, so it has none.
struct RopeHeads {
  void* data;  // [tokens, num_heads, head_dim]; null if num_heads is 0
  int64_t token_stride;
  int64_t head_stride;
  uint32_t num_heads;
};

struct RopeParams {
  RopeHeads q;
  RopeHeads k;
  const void* positions;  // [tokens]; int64_t or int32_t, see has_long_positions
  const float* table;     // [num_positions, rotary_dim]: cosines, then sines

  int64_t num_positions;
  uint32_t rotary_dim;
  uint32_t num_items;     // tokens * head groups * vectors
  uint32_t num_q_groups;  // head groups of q; those of k follow
  Divisor groups_per_token;
  Divisor vecs_per_half;  // rotary_dim / 2 / kVec
  bool has_long_positions;
};
static_assert(std::is_trivially_copyable_v<RopeParams>);

// The two vectors of a head that one thread rotates, and the angles of their kVec pairs.
//
//   half_split    vector i of either half: pair j is (first[j], second[j])
//   interleaved   the same two vectors, each holding kVec / 2 whole pairs
//
// With kVec == 1 they are the two elements of one pair in either style.
template <class T, RopeStyle kStyle, int kVec>
struct RopeShare {
  using Vec = tile::Vec<T, kVec>;
  static constexpr bool kPairsInside = kStyle == RopeStyle::interleaved && kVec > 1;
  // The angles lie in two runs of consecutive pairs, read as vectors.
  static constexpr int kRun = kVec > 1 ? kVec / 2 : 1;
  static constexpr int kRuns = kVec / kRun;

  uint32_t first;  // offsets in the head
  uint32_t second;
  uint32_t pairs[kRuns];  // the first pair of each run

  __device__ RopeShare(uint32_t vec_idx, uint32_t half) {
    const uint32_t start = vec_idx * kVec;
    if constexpr (kVec == 1) {
      first = kStyle == RopeStyle::interleaved ? 2 * vec_idx : vec_idx;
      second = kStyle == RopeStyle::interleaved ? 2 * vec_idx + 1 : vec_idx + half;
      pairs[0] = vec_idx;
    } else {
      first = start;
      second = start + half;
      pairs[0] = kPairsInside ? start / 2 : start;
      pairs[1] = kPairsInside ? (start + half) / 2 : start + kRun;
    }
  }

  // Cosines or sines of this thread's pairs.
  __device__ void load_angles(const float* row, float (&out)[kVec]) const {
    TESSERA_UNROLL
    for (int r = 0; r < kRuns; ++r) {
      const auto run = tile::Vec<float, kRun>::load(row + pairs[r]);
      TESSERA_UNROLL
      for (int i = 0; i < kRun; ++i) out[r * kRun + i] = run.values[i];
    }
  }

  __device__ static void rotate(float& a, float& b, float cosine, float sine) {
    const float rotated = rotate_first(a, b, cosine, sine);
    b = rotate_second(a, b, cosine, sine);
    a = rotated;
  }

  __device__ static void rotate(Vec& first_vec, Vec& second_vec, const float (&cosines)[kVec],
                                const float (&sines)[kVec]) {
    float a[kVec];
    float b[kVec];
    first_vec.to_floats(a);
    second_vec.to_floats(b);
    TESSERA_UNROLL
    for (int i = 0; i < kRun; ++i) {
      if constexpr (kPairsInside) {
        rotate(a[2 * i], a[2 * i + 1], cosines[i], sines[i]);
        rotate(b[2 * i], b[2 * i + 1], cosines[kRun + i], sines[kRun + i]);
      } else {
        TESSERA_UNROLL
        for (int r = 0; r < kRuns; ++r) {
          const int j = r * kRun + i;
          rotate(a[j], b[j], cosines[j], sines[j]);
        }
      }
    }
    first_vec = Vec::from_floats(a);
    second_vec = Vec::from_floats(b);
  }
};

__device__ inline int64_t load_position(const RopeParams& p, uint32_t token_idx) {
  return p.has_long_positions ? static_cast<const int64_t*>(p.positions)[token_idx]
                              : static_cast<const int32_t*>(p.positions)[token_idx];
}

// Rotary embedding in place.
//
//   (a, b) = (a cos - b sin, b cos + a sin)       for each pair of each head of q and k
//
// Work      A thread owns one pair of vectors in kHeads heads of one token. Items are numbered by
//           token, head group and vector, q's groups before k's, so a warp reads whole lines and
//           a token's angles are shared in L1.
// Pipeline  All vectors are loaded before the position and the angles, so that their latencies
//           overlap; the angles stay in registers for kHeads heads.
// Output    Each element is read and written by one thread. A position outside the table turns
//           the angles, and so the rotated elements, to NaN.
// Cost      4 bytes per element in bf16, 3 flop, and rotary_dim floats of the table for each token.
//           Bandwidth is the limit. docs/kernels/elementwise.md
// Needs     kVec > 1: heads, tokens and the table start on 16 bytes, and rotary_dim is a multiple
//           of 2 * kVec. kVec == 1: rotary_dim even.
template <class Arch, class T, RopeStyle kStyle, int kVec, int kHeads>
__global__ void __launch_bounds__(kItemThreads) rope_kernel(const __grid_constant__ RopeParams p) {
  using Share = RopeShare<T, kStyle, kVec>;
  using Vec = typename Share::Vec;
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});

  const bool is_inside = item_index<1>(0) < p.num_items;
  const uint32_t item_idx = is_inside ? item_index<1>(0) : p.num_items - 1;
  const auto [group_of_all, vec_idx] = divide_with_remainder(item_idx, p.vecs_per_half);
  const auto [token_idx, group_idx] = divide_with_remainder(group_of_all, p.groups_per_token);

  const bool is_q = group_idx < p.num_q_groups;
  const RopeHeads heads = is_q ? p.q : p.k;
  const uint32_t head_idx = (is_q ? group_idx : group_idx - p.num_q_groups) * kHeads;
  const uint32_t half = p.rotary_dim / 2;
  const Share share(vec_idx, half);
  // A group that reaches beyond the last head repeats it: read twice before it is written, and
  // written twice with the same values, which costs less than a branch.
  T* starts[kHeads];
  starts[0] = static_cast<T*>(heads.data) + token_idx * heads.token_stride +
              head_idx * heads.head_stride + share.first;
  TESSERA_UNROLL
  for (uint32_t h = 1; h < kHeads; ++h) {
    starts[h] = starts[h - 1] + (head_idx + h < heads.num_heads ? heads.head_stride : 0);
  }
  Vec first[kHeads];
  Vec second[kHeads];
  TESSERA_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    first[h] = Vec::load(starts[h]);
    second[h] = Vec::load(starts[h] + (share.second - share.first));
  }
  // Emits no instruction, but keeps the compiler from moving loads across it. Otherwise it delays
  // half of the vectors until the position has arrived.
  __syncwarp();

  const int64_t position = load_position(p, token_idx);
  float cosines[kVec];
  float sines[kVec];
  if (position >= 0 && position < p.num_positions) {
    const float* row = p.table + position * p.rotary_dim;
    share.load_angles(row, cosines);
    share.load_angles(row + half, sines);
  } else {
    TESSERA_UNROLL
    for (int i = 0; i < kVec; ++i) cosines[i] = sines[i] = __int_as_float(0x7fffffff);
  }
  if (!is_inside) return;
  TESSERA_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    Share::rotate(first[h], second[h], cosines, sines);
    first[h].store(starts[h]);
    second[h].store(starts[h] + (share.second - share.first));
  }
}

// All tokens; several launches if 32-bit indices need it.
template <class Arch, class T, RopeStyle kStyle, int kVec, int kHeads>
void launch_rope_tokens(const RopeParams& whole, int64_t num_tokens, const Context& ctx) {
  const auto count_groups = [](const RopeHeads& heads) {
    return (int64_t{heads.num_heads} + kHeads - 1) / kHeads;
  };
  const int64_t groups_per_token = count_groups(whole.q) + count_groups(whole.k);
  const int64_t vecs_per_half = whole.rotary_dim / 2 / kVec;
  const int64_t items_per_token = groups_per_token * vecs_per_half;
  const int64_t piece = std::max(kMaxItems / items_per_token, int64_t{1});
  for (int64_t token = 0; token < num_tokens; token += piece) {
    const int64_t num_items = std::min(piece, num_tokens - token) * items_per_token;
    RopeParams p = whole;
    p.q.data = static_cast<T*>(p.q.data) + token * p.q.token_stride;
    if (p.k.data != nullptr) p.k.data = static_cast<T*>(p.k.data) + token * p.k.token_stride;
    p.positions =
        static_cast<const char*>(p.positions) +
        token * static_cast<int64_t>(p.has_long_positions ? sizeof(int64_t) : sizeof(int32_t));
    p.num_items = static_cast<uint32_t>(num_items);
    p.num_q_groups = static_cast<uint32_t>(count_groups(p.q));
    p.groups_per_token = make_divisor(groups_per_token);
    p.vecs_per_half = make_divisor(vecs_per_half);
    launch(&rope_kernel<Arch, T, kStyle, kVec, kHeads>, item_shape<Arch>(num_items, 1), p, ctx);
  }
}

template <class Arch, class T, RopeStyle kStyle>
void launch_rope_style(const RopeParams& p, int64_t num_tokens, const Context& ctx) {
  constexpr int kVec = tile::kVecSize<T>;
  constexpr int kHeads = 4;
  constexpr int64_t kFullChip = 1 << 17;  // threads; with fewer, one head each uses more SMs
  const auto is_aligned = [](const RopeHeads& heads) {
    return starts_on_vectors<T>(heads.data, heads.token_stride) &&
           starts_on_vectors<T>(heads.data, heads.head_stride);
  };
  const bool use_vectors = p.rotary_dim % (2 * kVec) == 0 && is_aligned(p.q) && is_aligned(p.k) &&
                           starts_on_vectors<float>(p.table, 0);
  const int64_t num_head_vecs =
      num_tokens * (int64_t{p.q.num_heads} + p.k.num_heads) * (p.rotary_dim / 2 / kVec);
  if (!use_vectors) {
    launch_rope_tokens<Arch, T, kStyle, 1, kHeads>(p, num_tokens, ctx);
  } else if (num_head_vecs < kFullChip) {
    launch_rope_tokens<Arch, T, kStyle, kVec, 1>(p, num_tokens, ctx);
  } else {
    launch_rope_tokens<Arch, T, kStyle, kVec, kHeads>(p, num_tokens, ctx);
  }
}

template <class Arch, class T>
void launch_rope(const RopeArgs& args, const Context& ctx) {
  const auto heads = [](const TensorView& view) {
    return RopeHeads{.data = view.data,
                     .token_stride = view.stride(0),
                     .head_stride = view.stride(1),
                     .num_heads = static_cast<uint32_t>(view.size(1))};
  };
  const RopeParams p{.q = heads(args.q),
                     .k = args.k ? heads(*args.k) : RopeHeads{},
                     .positions = args.positions.data,
                     .table = args.table.as<const float>(),
                     .num_positions = args.table.size(0),
                     .rotary_dim = static_cast<uint32_t>(args.table.size(1)),
                     .has_long_positions = args.positions.dtype == DType::i64};
  const int64_t num_tokens = args.q.size(0);
  if (num_tokens == 0 || p.q.num_heads + p.k.num_heads == 0 || p.rotary_dim == 0) return;
  using enum RopeStyle;
  with_constant<half_split, interleaved>(
      args.style, [&](auto style) { launch_rope_style<Arch, T, style()>(p, num_tokens, ctx); });
}

}  // namespace tessera::kernels
