// Embedding lookup: rows of a table picked by token id.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/divisor.h"
#include "kernels/elementwise/item_grid.cuh"
#include "kernels/elementwise/launch.h"
#include "kernels/launch.h"
#include "tile/arch.cuh"
#include "tile/vec.cuh"

namespace tessera::kernels {

// Plain data, copied by value into constant memory. Strides count elements from row to row.
struct EmbeddingParams {
  const void* table;        // [vocab, hidden]
  const void* ids;          // [tokens]; int64_t or int32_t, see has_long_ids
  void* out;                // [tokens, hidden]
  const int32_t* computed;  // ids that negative ids refer to; null: none

  int64_t table_stride;
  int64_t out_stride;
  int64_t vocab;
  int64_t num_computed;
  uint32_t num_items;     // of all tokens together
  Divisor items_per_row;  // hidden / kVec / kVecs, without a remainder
  bool has_long_ids;
};
static_assert(std::is_trivially_copyable_v<EmbeddingParams>);

// Embedding lookup.
//
//   out[i] = table[ids[i]], or table[computed[-1 - ids[i]]] where ids[i] is negative
//
// Work      A thread copies kVecs vectors of one row, spread evenly over it. Items are numbered by
//           token and place in the row, so few tokens still reach many blocks.
// Pipeline  The id, then all vectors, then the stores. Most of a warp reads the same id, from L1 or
//           L2.
// Output    Bit for bit; a row of NaN where the id is outside the table.
// Cost      4 bytes per element in bf16, no arithmetic. Bandwidth is the limit.
//           docs/kernels/elementwise.md
// Needs     rows a multiple of kVec * kVecs long; kVec > 1: rows that start on 16 bytes.
template <class Arch, class T, int kVec, int kVecs>
__global__ void __launch_bounds__(kItemThreads)
    embedding_kernel(const __grid_constant__ EmbeddingParams p) {
  using Vec = tile::Vec<T, kVec>;
  tile::release_next(Arch{});
  tile::wait_for_previous(Arch{});

  const uint32_t item_idx = item_index<1>(0);
  if (item_idx >= p.num_items) return;
  const auto [token_idx, item_in_row] = divide_with_remainder(item_idx, p.items_per_row);
  int64_t id = p.has_long_ids ? static_cast<const int64_t*>(p.ids)[token_idx]
                              : static_cast<const int32_t*>(p.ids)[token_idx];
  if (id < 0 && -1 - id < p.num_computed) id = max(p.computed[-1 - id], 0);
  const uint32_t col_idx = item_in_row * kVec;
  const uint32_t step = p.items_per_row.value * kVec;
  Vec vecs[kVecs];
  if (id >= 0 && id < p.vocab) {
    const T* from = static_cast<const T*>(p.table) + id * p.table_stride + col_idx;
    TESSERA_UNROLL
    for (int u = 0; u < kVecs; ++u) vecs[u] = Vec::load(from + u * step);
  } else {
    const T nan = tile::from_float<T>(__int_as_float(0x7fffffff));
    TESSERA_UNROLL
    for (int u = 0; u < kVecs; ++u) {
      TESSERA_UNROLL
      for (int i = 0; i < kVec; ++i) vecs[u].values[i] = nan;
    }
  }
  T* to = static_cast<T*>(p.out) + token_idx * p.out_stride + col_idx;
  TESSERA_UNROLL
  for (int u = 0; u < kVecs; ++u) vecs[u].store(to + u * step);
}

// All tokens; several launches if 32-bit indices need it.
template <class Arch, class T, int kVec, int kVecs>
void launch_embedding_tokens(const EmbeddingParams& whole, int64_t num_tokens, int64_t hidden,
                             const Context& ctx) {
  const int64_t items_per_row = hidden / (kVec * kVecs);
  const int64_t id_bytes = whole.has_long_ids ? sizeof(int64_t) : sizeof(int32_t);
  const int64_t piece = std::max(kMaxItems / items_per_row, int64_t{1});
  for (int64_t token = 0; token < num_tokens; token += piece) {
    EmbeddingParams p = whole;
    p.ids = static_cast<const char*>(p.ids) + token * id_bytes;
    p.out = static_cast<T*>(p.out) + token * p.out_stride;
    p.items_per_row = make_divisor(items_per_row);
    p.num_items = static_cast<uint32_t>(std::min(piece, num_tokens - token) * items_per_row);
    launch(&embedding_kernel<Arch, T, kVec, kVecs>, item_shape<Arch>(p.num_items, 1), p, ctx);
  }
}

template <class Arch, class T>
void launch_embedding(const EmbeddingArgs& args, const Context& ctx) {
  constexpr int kVec = tile::kVecSize<T>;
  constexpr int64_t kFullChip = 1 << 17;  // threads; with fewer, one vector each uses more SMs
  const Rows out = as_rows(args.out, "embedding: out");
  if (out.num_rows == 0 || out.num_cols == 0) return;
  const EmbeddingParams p{.table = args.table.data,
                          .ids = args.ids.data,
                          .out = args.out.data,
                          .computed = args.computed ? args.computed->as<int32_t>() : nullptr,
                          .table_stride = args.table.stride(0),
                          .out_stride = out.row_stride,
                          .vocab = args.table.size(0),
                          .num_computed = args.computed ? args.computed->size(0) : 0,
                          .has_long_ids = args.ids.dtype == DType::i64};
  const auto run = [&](auto vec, auto vecs) {
    launch_embedding_tokens<Arch, T, vec(), vecs()>(p, out.num_rows, out.num_cols, ctx);
  };
  constexpr std::integral_constant<int, 1> kOne;
  constexpr std::integral_constant<int, 4> kFour;
  constexpr std::integral_constant<int, kVec> kWhole;
  const bool use_vectors = out.num_cols % kVec == 0 &&
                           starts_on_vectors<T>(p.table, p.table_stride) &&
                           starts_on_vectors<T>(p.out, p.out_stride);
  const bool fills_chip = out.num_rows * out.num_cols / kVec >= kFullChip;
  if (!use_vectors) {
    run(kOne, kOne);
  } else if (fills_chip && out.num_cols % (kVec * 4) == 0) {
    run(kWhole, kFour);
  } else {
    run(kWhole, kOne);
  }
}

}  // namespace tessera::kernels
