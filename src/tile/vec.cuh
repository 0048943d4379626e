// Vectors of elements that are loaded or stored in one access of up to 16 bytes.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstring>

#include "tile/convert.cuh"
#include "tile/unroll.cuh"

namespace tessera::tile {

inline constexpr int kMaxAccessBytes = 16;

// Elements of T in a 16-byte access: 8 for bf16.
template <class T>
inline constexpr int kVecSize = kMaxAccessBytes / static_cast<int>(sizeof(T));

// N consecutive elements, aligned so that a copy is one load or store (N * sizeof(T) up to 16).
template <class T, int N>
struct alignas(sizeof(T) * N < kMaxAccessBytes ? sizeof(T) * N : kMaxAccessBytes) Vec {
  T values[N];

  // `data` must be aligned to the vector; see is_aligned.
  __device__ static Vec load(const T* data) { return *reinterpret_cast<const Vec*>(data); }
  __device__ void store(T* data) const { *reinterpret_cast<Vec*>(data) = *this; }

  // The first `count` elements (all, when N or more) one by one, from any address; the rest are
  // zero, or are left alone by a store.
  __device__ static Vec load_part(const T* data, int count) {
    Vec out{};
    TESSERA_UNROLL
    for (int i = 0; i < N; ++i) {
      if (i < count) out.values[i] = data[i];
    }
    return out;
  }
  __device__ void store_part(T* data, int count) const {
    TESSERA_UNROLL
    for (int i = 0; i < N; ++i) {
      if (i < count) data[i] = values[i];
    }
  }

  __device__ void to_floats(float (&out)[N]) const {
    if constexpr (sizeof(T) == 2 && N % 2 == 0) {
      TESSERA_UNROLL
      for (int i = 0; i < N; i += 2) {
        uint32_t word;
        memcpy(&word, &values[i], sizeof(word));
        const float2 pair = pair_to_floats<T>(word);
        out[i] = pair.x;
        out[i + 1] = pair.y;
      }
    } else {
      TESSERA_UNROLL
      for (int i = 0; i < N; ++i) out[i] = to_float(values[i]);
    }
  }
  __device__ static Vec from_floats(const float (&in)[N]) {
    Vec out;
    if constexpr (N == 1) {
      out.values[0] = from_float<T>(in[0]);
    } else {
      TESSERA_UNROLL
      for (int i = 0; i < N; i += 2) {
        T pair[2];
        tile::from_floats(in[i], in[i + 1], pair);
        out.values[i] = pair[0];
        out.values[i + 1] = pair[1];
      }
    }
    return out;
  }
};

// Prefetches the cache line at `data` into L2. No value is read, so it may be issued before
// wait_for_previous. PTX: prefetch.
__device__ inline void prefetch_l2(const void* data) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(data));
}

}  // namespace tessera::tile
