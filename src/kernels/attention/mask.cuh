// Where a sequence lies in a call, and which of its keys a query sees: at most two ranges per row.
// SPDX-License-Identifier: MIT
//
// A mask answers two questions. row_keys: the ranges of one query. tile_keys: for a tile of rows,
// the keys that any of them sees and the keys that all of them see. From these follows, for every
// kind of mask alike, whether a block of keys is empty (skipped), full (not masked) or mixed.
#pragma once

#include <cstdint>

#include "kernels/attention/params.h"
#include "tile/unroll.cuh"

namespace tessera::kernels {

struct Sequence {
  int index;    // in the batch
  int q_begin;  // row of q of its first query; 0 if batched
  int q_len;
  int kv_begin;  // row of k of its first key; 0 if batched or paged
  int kv_len;

  // The position of query i among the keys.
  __device__ int position(int i) const { return i + kv_len - q_len; }
};

__device__ inline Sequence sequence_of(const AttentionParams& p, int index) {
  Sequence s{.index = index, .q_begin = 0, .q_len = p.q_len, .kv_begin = 0, .kv_len = p.kv_len};
  if (p.q_starts != nullptr) {
    s.q_begin = p.q_starts[index];
    s.q_len = p.q_starts[index + 1] - s.q_begin;
  }
  if (p.kv_starts != nullptr) {
    s.kv_begin = p.kv_starts[index];
    s.kv_len = p.kv_starts[index + 1] - s.kv_begin;
  }
  if (p.kv_lens != nullptr) s.kv_len = p.kv_lens[index];
  return s;
}

struct KeyRange {
  int begin;
  int end;  // not above begin: empty

  __device__ bool has(int key) const { return key >= begin && key < end; }
  __device__ bool meets(KeyRange other) const {
    return max(begin, other.begin) < min(end, other.end);
  }
  __device__ bool holds(KeyRange other) const { return begin <= other.begin && other.end <= end; }
  __device__ KeyRange cut(KeyRange other) const {
    return {max(begin, other.begin), min(end, other.end)};
  }
};

struct RowKeys {
  KeyRange ranges[2];

  __device__ bool has(int key) const { return ranges[0].has(key) || ranges[1].has(key); }
};

enum class BlockKind : uint8_t { empty, full, mixed };

// The keys of a tile of rows, for each of the two ranges.
struct TileKeys {
  KeyRange any[2];  // hull of what the rows see
  KeyRange all[2];  // seen by every row

  __device__ KeyRange hull() const {
    const bool has0 = any[0].begin < any[0].end;
    const bool has1 = any[1].begin < any[1].end;
    if (!has0 || !has1) return has1 ? any[1] : any[0];
    return {min(any[0].begin, any[1].begin), max(any[0].end, any[1].end)};
  }
  __device__ static TileKeys of_no_rows() {
    return {{{kUnbounded, 0}, {kUnbounded, 0}}, {{0, kUnbounded}, {0, kUnbounded}}};
  }
  // Adds the keys of more rows.
  __device__ void join(const TileKeys& other) {
    TESSERA_UNROLL
    for (int i = 0; i < 2; ++i) {
      const KeyRange more = other.any[i];
      if (more.begin < more.end) {
        any[i] = {min(any[i].begin, more.begin), max(any[i].end, more.end)};
      }
      all[i] = all[i].cut(other.all[i]);
    }
  }
  __device__ BlockKind kind(KeyRange block) const {
    if (all[0].holds(block) || all[1].holds(block)) return BlockKind::full;
    return any[0].meets(block) || any[1].meets(block) ? BlockKind::mixed : BlockKind::empty;
  }
};

// A band around the diagonal: full, causal, or a window to either side.
__device__ inline KeyRange band_keys(const MaskParams& mask, const Sequence& s, int position) {
  return {max(0, position - mask.left), min(s.kv_len, position + mask.right + 1)};
}

__device__ inline const int32_t* interval_row(const MaskParams& mask, const Sequence& s, int row) {
  return mask.intervals + s.index * mask.interval_batch + (s.q_begin + row) * mask.interval_row;
}

// The keys of query `row` of the sequence, which must exist.
__device__ inline RowKeys row_keys(const MaskParams& mask, const Sequence& s, int row) {
  const KeyRange band = band_keys(mask, s, s.position(row));
  if (mask.intervals == nullptr) return {{band, {0, 0}}};
  const int32_t* intervals = interval_row(mask, s, row);
  RowKeys keys{{KeyRange{intervals[0], intervals[1]}.cut(band), {0, 0}}};
  if (mask.num_intervals == 2) keys.ranges[1] = KeyRange{intervals[2], intervals[3]}.cut(band);
  return keys;
}

// The keys of queries first to last of the sequence. Called by all lanes of a warp, and all get the
// answer.
__device__ inline TileKeys tile_keys(const MaskParams& mask, const Sequence& s, int first,
                                     int last) {
  if (mask.intervals == nullptr) {
    const KeyRange low = band_keys(mask, s, s.position(first));
    const KeyRange high = band_keys(mask, s, s.position(last));
    return {{{low.begin, high.end}, {0, 0}}, {{high.begin, low.end}, {0, 0}}};
  }
  const int lane = static_cast<int>(threadIdx.x) % 32;
  TileKeys tile = TileKeys::of_no_rows();
  for (int row = first + lane; row <= last; row += 32) {
    const RowKeys keys = row_keys(mask, s, row);
    tile.join({{keys.ranges[0], keys.ranges[1]}, {keys.ranges[0], keys.ranges[1]}});
  }
  TESSERA_UNROLL
  for (int i = 0; i < 2; ++i) {
    tile.any[i] = {__reduce_min_sync(~0u, tile.any[i].begin),
                   __reduce_max_sync(~0u, tile.any[i].end)};
    tile.all[i] = {__reduce_max_sync(~0u, tile.all[i].begin),
                   __reduce_min_sync(~0u, tile.all[i].end)};
  }
  return tile;
}

}  // namespace tessera::kernels
