// Strided copies of any layout: planned on the host, then a gather of wide units or a transpose.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/divisor.h"
#include "kernels/elementwise/copy_plan.h"
#include "kernels/elementwise/item_grid.cuh"
#include "kernels/elementwise/launch.h"
#include "kernels/launch.h"
#include "kernels/with_constant.h"
#include "tile/arch.cuh"
#include "tile/vec.cuh"

namespace tessera::kernels {

// Plain data, copied by value into constant memory. Strides count units.
struct CopyWalk {
  Divisor size;
  int64_t x_stride;
  int64_t out_stride;
};

struct CopyGatherParams {
  const void* x;            // [sizes of axes, reversed], any strides
  void* out;                // the same shape, any strides
  uint32_t num_units;       // at least 1
  int rank;                 // of the walk; 0: one unit
  CopyWalk axes[kMaxRank];  // innermost first
};
static_assert(std::is_trivially_copyable_v<CopyGatherParams>);

// `column` is the axis along which out is contiguous, `row` the one along which x is; the rest are
// batch axes.
struct CopyTransposeParams {
  const void* x;  // [batch, columns, rows]; rows contiguous
  void* out;      // [batch, rows, columns]; columns contiguous
  int64_t x_column_stride;
  int64_t out_row_stride;
  uint32_t num_rows;
  uint32_t num_columns;
  Divisor row_tiles;
  Divisor column_tiles;
  int batch_rank;
  CopyWalk batch[kMaxRank - 2];  // innermost first
};
static_assert(std::is_trivially_copyable_v<CopyTransposeParams>);

inline constexpr uint32_t kTransposeThreads = 256;

// A block's tile: its origin in x and in out, and how much of it is inside the matrix.
struct TransposePlace {
  int64_t x_offset;
  int64_t out_offset;
  uint32_t num_rows;
  uint32_t num_columns;

  // Column tiles run fastest, so neighbouring blocks write neighbouring lines.
  __device__ TransposePlace(const CopyTransposeParams& p, uint32_t rows_per_tile,
                            uint32_t columns_per_tile) {
    const auto [rest, column_tile] = divide_with_remainder(blockIdx.x, p.column_tiles);
    const auto [batch_idx, row_tile] = divide_with_remainder(rest, p.row_tiles);
    const uint32_t row = row_tile * rows_per_tile;
    const uint32_t column = column_tile * columns_per_tile;
    num_rows = min(p.num_rows - row, rows_per_tile);
    num_columns = min(p.num_columns - column, columns_per_tile);
    x_offset = column * p.x_column_stride + row;
    out_offset = row * p.out_row_stride + column;
    uint32_t index = batch_idx;
    for (int d = 0; d < p.batch_rank; ++d) {
      const auto [outer, in_axis] = divide_with_remainder(index, p.batch[d].size);
      x_offset += in_axis * p.batch[d].x_stride;
      out_offset += in_axis * p.batch[d].out_stride;
      index = outer;
    }
  }
};

// Transposes words in registers: each word holds neighbouring rows of one column, each result is 16
// bytes of one row. PTX: prmt.
__device__ inline void turn_words(const uint32_t (&words)[16], uint4 (&rows)[4]) {
  uint32_t turned[4][4];
  TESSERA_UNROLL
  for (int i = 0; i < 4; ++i) {
    const uint32_t low01 = __byte_perm(words[4 * i], words[4 * i + 1], 0x5140);
    const uint32_t high01 = __byte_perm(words[4 * i], words[4 * i + 1], 0x7362);
    const uint32_t low23 = __byte_perm(words[4 * i + 2], words[4 * i + 3], 0x5140);
    const uint32_t high23 = __byte_perm(words[4 * i + 2], words[4 * i + 3], 0x7362);
    turned[0][i] = __byte_perm(low01, low23, 0x5410);
    turned[1][i] = __byte_perm(low01, low23, 0x7632);
    turned[2][i] = __byte_perm(high01, high23, 0x5410);
    turned[3][i] = __byte_perm(high01, high23, 0x7632);
  }
  TESSERA_UNROLL
  for (int r = 0; r < 4; ++r) {
    rows[r] = make_uint4(turned[r][0], turned[r][1], turned[r][2], turned[r][3]);
  }
}
__device__ inline void turn_words(const uint32_t (&words)[8], uint4 (&rows)[2]) {
  uint32_t turned[2][4];
  TESSERA_UNROLL
  for (int i = 0; i < 4; ++i) {
    turned[0][i] = __byte_perm(words[2 * i], words[2 * i + 1], 0x5410);
    turned[1][i] = __byte_perm(words[2 * i], words[2 * i + 1], 0x7632);
  }
  TESSERA_UNROLL
  for (int r = 0; r < 2; ++r) {
    rows[r] = make_uint4(turned[r][0], turned[r][1], turned[r][2], turned[r][3]);
  }
}
__device__ inline void turn_words(const uint32_t (&words)[4], uint4 (&rows)[1]) {
  rows[0] = make_uint4(words[0], words[1], words[2], words[3]);
}
__device__ inline void turn_words(const uint64_t (&words)[2], uint4 (&rows)[1]) {
  rows[0] = make_uint4(static_cast<uint32_t>(words[0]), static_cast<uint32_t>(words[0] >> 32),
                       static_cast<uint32_t>(words[1]), static_cast<uint32_t>(words[1] >> 32));
}

// One store of 16 bytes. In PTX, because the compiler splits the assignment of a vector that was
// just assembled from shared memory. PTX: st.
__device__ inline void store_16_bytes(void* to, const uint4& vec) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
               "r"(vec.x), "r"(vec.y), "r"(vec.z), "r"(vec.w)
               : "memory");
}

// A tile for accesses of 16 bytes on both sides: squares of 8 vectors by 8 * kVec columns, side by
// side along the rows. A word is what one shared-memory access takes on the way out.
template <class Unit>
struct TransposeTile {
  using Word = std::conditional_t<sizeof(Unit) == 8, uint64_t, uint32_t>;
  static constexpr uint32_t kVec = tile::kVecSize<Unit>;  // units in 16 bytes
  static constexpr uint32_t kWord = sizeof(Word) / sizeof(Unit);
  static constexpr uint32_t kWordsPerVec = kVec / kWord;
  static constexpr uint32_t kSquares = sizeof(Unit) == 8 ? 4 : sizeof(Unit) == 4 ? 2 : 1;
  static constexpr uint32_t kVecsPerColumn = kSquares * 8;
  static constexpr uint32_t kRows = kVecsPerColumn * kVec;
  static constexpr uint32_t kColumns = 8 * kVec;
  static constexpr uint32_t kLoads = kVecsPerColumn * kColumns / kTransposeThreads;
  static constexpr uint32_t kTurns = kRows / kWord * 8 / kTransposeThreads;

  // Vector i of a column of a square is stored at i ^ (column / kVec). A column is written as eight
  // whole vectors, and a warp reads from eight columns kVec apart; neither has bank conflicts.
  uint4 data[kSquares][kColumns][8];

  __device__ uint4& vec_at(uint32_t column, uint32_t vec) {
    return data[vec / 8][column][vec % 8 ^ column / kVec];
  }
  __device__ Word word_at(uint32_t column, uint32_t word) {
    const uint4& vec = vec_at(column, word / kWordsPerVec);
    return reinterpret_cast<const Word*>(&vec)[word % kWordsPerVec];
  }
};

// A transpose of operands that are aligned to 16 bytes.
//
//   out[row][column] = x[column][row]                  for each index of the batch axes
//
// Work      A block transposes one tile: 128 rows by 128 columns of 1 byte, 64 by 64 of 2, 64 by 32
//           of 4, 64 by 16 of 8.
// Pipeline  All 16-byte loads of a thread, one barrier, then words from shared memory, transposed
//           in registers into 16-byte stores. Many blocks on an SM overlap.
// Output    Bit for bit; each line of 128 bytes is written by eight neighbouring lanes.
// Cost      Each unit read once and written once. Bandwidth is the limit.
//           docs/kernels/elementwise.md
// Needs     rows, columns and all strides multiples of 16 bytes; addresses aligned to 16.
template <class Arch, class Unit>
__global__ void __launch_bounds__(kTransposeThreads)
    transpose_kernel(const __grid_constant__ CopyTransposeParams p) {
  using Tile = TransposeTile<Unit>;
  __shared__ Tile tile;
  const TransposePlace place(p, Tile::kRows, Tile::kColumns);
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});

  const Unit* x = static_cast<const Unit*>(p.x) + place.x_offset;
  uint4 vecs[Tile::kLoads] = {};
  TESSERA_UNROLL
  for (uint32_t i = 0; i < Tile::kLoads; ++i) {
    const uint32_t vec_idx = threadIdx.x + i * kTransposeThreads;
    const uint32_t row = vec_idx % Tile::kVecsPerColumn * Tile::kVec;
    const uint32_t column = vec_idx / Tile::kVecsPerColumn;
    if (row < place.num_rows && column < place.num_columns) {
      vecs[i] = *reinterpret_cast<const uint4*>(x + column * p.x_column_stride + row);
    }
  }
  TESSERA_UNROLL
  for (uint32_t i = 0; i < Tile::kLoads; ++i) {
    const uint32_t vec_idx = threadIdx.x + i * kTransposeThreads;
    tile.vec_at(vec_idx / Tile::kVecsPerColumn, vec_idx % Tile::kVecsPerColumn) = vecs[i];
  }
  __syncthreads();

  const uint32_t column = threadIdx.x % 8 * Tile::kVec;
  if (column >= place.num_columns) return;
  Unit* out = static_cast<Unit*>(p.out) + place.out_offset + column;
  TESSERA_UNROLL
  for (uint32_t i = 0; i < Tile::kTurns; ++i) {
    const uint32_t word_idx = (threadIdx.x + i * kTransposeThreads) / 8;
    typename Tile::Word words[Tile::kVec];
    TESSERA_UNROLL
    for (uint32_t c = 0; c < Tile::kVec; ++c) words[c] = tile.word_at(column + c, word_idx);
    uint4 rows[Tile::kWord];
    turn_words(words, rows);
    TESSERA_UNROLL
    for (uint32_t r = 0; r < Tile::kWord; ++r) {
      const uint32_t row = word_idx * Tile::kWord + r;
      if (row < place.num_rows) store_16_bytes(out + row * p.out_row_stride, rows[r]);
    }
  }
}

// The same for any alignment: one unit per access, neighbouring lanes on neighbouring units. The
// odd pitch, in words, avoids bank conflicts both ways.
template <class Unit>
inline constexpr uint32_t kRaggedEdge = sizeof(Unit) <= 2 ? 64 : 32;

template <class Arch, class Unit>
__global__ void __launch_bounds__(kTransposeThreads)
    transpose_ragged_kernel(const __grid_constant__ CopyTransposeParams p) {
  constexpr uint32_t kEdge = kRaggedEdge<Unit>;
  constexpr uint32_t kPad = sizeof(Unit) >= 4 ? 1 : 4 / sizeof(Unit);
  constexpr uint32_t kStep = kTransposeThreads / kEdge;
  constexpr uint32_t kUnits = kEdge / kStep;
  __shared__ Unit tile[kEdge][kEdge + kPad];
  const TransposePlace place(p, kEdge, kEdge);
  const uint32_t across = threadIdx.x % kEdge;
  const uint32_t down = threadIdx.x / kEdge;
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});

  const Unit* x = static_cast<const Unit*>(p.x) + place.x_offset + across;
  Unit units[kUnits] = {};
  TESSERA_UNROLL
  for (uint32_t i = 0; i < kUnits; ++i) {
    const uint32_t column = down + i * kStep;
    if (across < place.num_rows && column < place.num_columns) {
      units[i] = x[column * p.x_column_stride];
    }
  }
  TESSERA_UNROLL
  for (uint32_t i = 0; i < kUnits; ++i) tile[down + i * kStep][across] = units[i];
  __syncthreads();

  if (across >= place.num_columns) return;
  Unit* out = static_cast<Unit*>(p.out) + place.out_offset + across;
  TESSERA_UNROLL
  for (uint32_t i = 0; i < kUnits; ++i) {
    const uint32_t row = down + i * kStep;
    if (row < place.num_rows) out[row * p.out_row_stride] = tile[across][row];
  }
}

// `row_axis` is find_transposed_axis(plan).
template <class Arch, class Unit>
void launch_transpose(const CopyPlan& plan, int row_axis, const Context& ctx) {
  const CopyAxis& column = plan.axis(0);
  const CopyAxis& row = plan.axis(row_axis);
  CopyTransposeParams p{.x = reinterpret_cast<const void*>(plan.x),
                        .out = reinterpret_cast<void*>(plan.out),
                        .x_column_stride = column.x_stride,
                        .out_row_stride = row.out_stride,
                        .num_rows = static_cast<uint32_t>(row.size),
                        .num_columns = static_cast<uint32_t>(column.size)};
  uint64_t bits = plan.x | plan.out;
  const auto also_aligned = [&](int64_t units) {
    bits |= static_cast<uint64_t>(units) * sizeof(Unit);
  };
  for (const int64_t units : {row.size, column.size, column.x_stride, row.out_stride}) {
    also_aligned(units);
  }
  int64_t num_batches = 1;
  for (int d = 1; d < plan.rank; ++d) {
    if (d == row_axis) continue;
    const CopyAxis& axis = plan.axis(d);
    p.batch[p.batch_rank++] = {make_divisor(axis.size), axis.x_stride, axis.out_stride};
    num_batches *= axis.size;
    also_aligned(axis.x_stride);
    also_aligned(axis.out_stride);
  }
  const auto run = [&](auto kernel, int64_t rows_per_tile, int64_t columns_per_tile) {
    const int64_t row_tiles = (row.size + rows_per_tile - 1) / rows_per_tile;
    const int64_t column_tiles = (column.size + columns_per_tile - 1) / columns_per_tile;
    p.row_tiles = make_divisor(row_tiles);
    p.column_tiles = make_divisor(column_tiles);
    launch(kernel,
           {.grid = dim3(static_cast<unsigned>(row_tiles * column_tiles * num_batches)),
            .block = dim3(kTransposeThreads),
            .overlaps_previous = kOverlaps<Arch>},
           p, ctx);
  };
  using Tile = TransposeTile<Unit>;
  if (bits % tile::kMaxAccessBytes == 0) {
    run(&transpose_kernel<Arch, Unit>, Tile::kRows, Tile::kColumns);
  } else {
    run(&transpose_ragged_kernel<Arch, Unit>, kRaggedEdge<Unit>, kRaggedEdge<Unit>);
  }
}

// A type of kBytes.
template <int kBytes>
using CopyUnit = std::conditional_t<
    kBytes == 1, uint8_t,
    std::conditional_t<
        kBytes == 2, uint16_t,
        std::conditional_t<kBytes == 4, uint32_t,
                           std::conditional_t<kBytes == 8, uint64_t, tile::Vec<uint32_t, 4>>>>>;

inline constexpr int kGatherUnits = 4;  // per thread

// A copy, unit by unit.
//
//   out[index] = x[index]
//
// Work      A thread owns kGatherUnits units, a block's width apart, among all of them numbered in
//           the order of out. Units are up to 16 bytes wide where x and out are both contiguous.
// Pipeline  All loads of a thread before its stores; many blocks on an SM overlap.
// Output    Bit for bit. A thread beyond the end writes the last unit again, with the same bits.
// Cost      Each unit read once and written once. With 16-byte units bandwidth is the limit; with
//           narrow ones the index arithmetic, about 8 instructions per axis and unit.
//           docs/kernels/elementwise.md
// Needs     addresses and strides aligned to the unit.
template <class Arch, class Unit>
__global__ void __launch_bounds__(kItemThreads)
    gather_kernel(const __grid_constant__ CopyGatherParams p) {
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});

  uint32_t index[kGatherUnits];
  int64_t from[kGatherUnits] = {};
  int64_t to[kGatherUnits] = {};
  TESSERA_UNROLL
  for (int u = 0; u < kGatherUnits; ++u) {
    index[u] = min(item_index<kGatherUnits>(u), p.num_units - 1);
  }
  for (int d = 0; d < p.rank; ++d) {
    const CopyWalk axis = p.axes[d];
    TESSERA_UNROLL
    for (int u = 0; u < kGatherUnits; ++u) {
      const auto [outer, in_axis] = divide_with_remainder(index[u], axis.size);
      from[u] += in_axis * axis.x_stride;
      to[u] += in_axis * axis.out_stride;
      index[u] = outer;
    }
  }
  Unit units[kGatherUnits];
  TESSERA_UNROLL
  for (int u = 0; u < kGatherUnits; ++u) units[u] = static_cast<const Unit*>(p.x)[from[u]];
  TESSERA_UNROLL
  for (int u = 0; u < kGatherUnits; ++u) static_cast<Unit*>(p.out)[to[u]] = units[u];
}

template <class Arch, class Unit>
void launch_gather(const CopyPlan& plan, const Context& ctx) {
  CopyGatherParams p{.x = reinterpret_cast<const void*>(plan.x),
                     .out = reinterpret_cast<void*>(plan.out),
                     .num_units = static_cast<uint32_t>(plan.num_units()),
                     .rank = plan.rank};
  for (int d = 0; d < plan.rank; ++d) {
    const CopyAxis& axis = plan.axis(d);
    p.axes[d] = {make_divisor(axis.size), axis.x_stride, axis.out_stride};
  }
  launch(&gather_kernel<Arch, Unit>, item_shape<Arch>(p.num_units, kGatherUnits), p, ctx);
}

template <class Arch, class Bits>
void launch_copy(const CopyArgs& args, const Context& ctx) {
  if (args.x.num_elements() == 0) return;
  for_each_piece(plan_copy(args.x, args.out), kMaxItems, [&](const CopyPlan& plan) {
    with_constant<1, 2, 4, 8, 16>(plan.unit_bytes, [&](auto unit_bytes) {
      if constexpr (unit_bytes() >= sizeof(Bits)) {  // units only grow
        using Unit = CopyUnit<unit_bytes()>;
        if constexpr (unit_bytes() <= 8) {
          if (const std::optional<int> row_axis = find_transposed_axis(plan)) {
            return launch_transpose<Arch, Unit>(plan, *row_axis, ctx);
          }
        }
        launch_gather<Arch, Unit>(plan, ctx);
      }
    });
  });
}

}  // namespace tessera::kernels
