// Heads that fill only some of a tile's columns: the rest are zeros in shared memory, and are not
// stored.
// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "kernels/attention/accept.h"
#include "kernels/attention/portable/load.cuh"

namespace tessera::kernels {

struct PartialHead {
  int num_bytes;
  bool has_chunks;  // rows begin on 16 bytes; else on 4

  // Copies 16 bytes of a row, from byte `at` on; with wanted_bytes 0 all of them are zeros.
  __device__ void copy(uint32_t to, const void* from, int at, uint32_t wanted_bytes) const {
    const int left = wanted_bytes != 0 ? max(0, min(16, num_bytes - at)) : 0;
    if (has_chunks) {
      tile::ptx::cp_async<16>(to, from, static_cast<uint32_t>(left));
      return;
    }
    TESSERA_UNROLL
    for (int word = 0; word < 16; word += 4) {
      tile::ptx::cp_async<4>(to + word, static_cast<const char*>(from) + word,
                             static_cast<uint32_t>(max(0, min(4, left - word))));
    }
  }
};

// What padded instances read on top.
struct PaddedAttentionParams : AttentionParams {
  PartialHead key_head;  // of q and k
  PartialHead value_head;
};
static_assert(std::is_trivially_copyable_v<PaddedAttentionParams>);

template <class Tile>
using ParamsOf = std::conditional_t<Tile::kIsPadded, PaddedAttentionParams, AttentionParams>;

__device__ inline WholeHead key_head(const AttentionParams&) { return {}; }
__device__ inline WholeHead value_head(const AttentionParams&) { return {}; }
__device__ inline PartialHead key_head(const PaddedAttentionParams& p) { return p.key_head; }
__device__ inline PartialHead value_head(const PaddedAttentionParams& p) { return p.value_head; }

// Stores a vector of elements of out at `at`, which is column `column` of its row: whole where a
// head has them all and its rows are aligned, else element by element.
template <class T, class Vector>
__device__ void store_columns(const WholeHead&, T* at, int, const Vector& vector) {
  *reinterpret_cast<Vector*>(at) = vector;
}
template <class T, class Vector>
__device__ void store_columns(const PartialHead& head, T* at, int column, const Vector& vector) {
  constexpr int kCount = sizeof(Vector) / sizeof(T);
  const int left = head.num_bytes / static_cast<int>(sizeof(T)) - column;
  if (head.has_chunks && left >= kCount) {
    *reinterpret_cast<Vector*>(at) = vector;
    return;
  }
  const T* values = reinterpret_cast<const T*>(&vector);
  TESSERA_UNROLL
  for (int i = 0; i < kCount; ++i) {
    if (i < left) at[i] = values[i];
  }
}

inline PaddedAttentionParams padded_params(const AttentionArgs& args) {
  const bool has_chunks = has_aligned_heads(args);
  const auto head = [&](const TensorView& t) {
    return PartialHead{static_cast<int>(t.size(-1) * bit_width(t.dtype) / 8), has_chunks};
  };
  return {attention_params(args), head(args.k), head(args.v)};
}

}  // namespace tessera::kernels
