// What appending kernels do with one row of a token: find it, rotate it, scale it.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/kv/codes.cuh"
#include "kernels/rotate.cuh"

namespace tessera::kernels {

__device__ inline int64_t load_index(const void* indices, bool are_long, int64_t i) {
  return are_long ? static_cast<const int64_t*>(indices)[i]
                  : static_cast<const int32_t*>(indices)[i];
}

enum class AppendPart : uint8_t { q, k, v };

__device__ inline bool is_slot(const KvAppendParams& p, int64_t slot) {
  return slot >= 0 && slot < p.num_slots;
}

// The page and the row of it that a slot of the pages means.
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

  // Whether the row goes to a page by itself.
  __device__ bool is_stored(const KvAppendParams& p, int64_t slot) const {
    if (part == AppendPart::q || !is_slot(p, slot)) return false;
    return part == AppendPart::v || p.k_pages.format != KvFormat::int4_columns;
  }
};

// The scale that a row's pages came with: FP8's, else 1.
__device__ inline float load_given_scale(const KvAppendParams& p, const AppendRow& row) {
  if (row.part == AppendPart::k && p.k_pages.format == KvFormat::fp8) {
    return fp8_scale(p.k_pages, row.head);
  }
  if (row.part == AppendPart::v && p.v_pages.format == KvFormat::fp8) {
    return fp8_scale(p.v_pages, row.head);
  }
  return 1.0f;
}

// The scale a row is stored with, given the range of its elements.
__device__ inline KvScale scale_of_row(KvFormat format, float given_scale, const KvRange& range) {
  return has_row_scales(format) ? find_scale(range, format) : KvScale{given_scale, 0.0f};
}

// Cosines and sines of the kKvVec elements of a vector: of half_split one pair each, interleaved
// one for two.
struct KvAngles {
  float cosines[kKvVec];
  float sines[kKvVec];
};

// From an element of the rotated part to the other of its pair, of half_split.
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

// Rotates the elements of a vector; `other` holds those half a rotated part away, of half_split.
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

// A whole row, pair by pair, each by one lane of the warp.
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

}  // namespace tessera::kernels
