// How many blocks share the keys of a sequence and head. Pure, on the host: lengths are read on the
// device, and no result depends on it.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/attention/decode_sm90/leaves.h"

namespace tessera::kernels {

struct DecodeShape {
  int64_t num_units;  // sequences, heads of keys, groups of rows
  int64_t longest;    // of the sequences, in keys
  int num_sms;
  int bits;           // of an element of the cache
  bool is_narrow;     // at most four queries a unit: two leaves of a warp cost little more than one
  bool has_clusters;  // whether kernels that fold over a cluster were compiled
  bool has_waiting_room;  // whether more than two leaves of a warp cost little
};

enum class DecodeMerge : uint8_t {
  parts,      // blocks of 8 warps that leave partial results in memory, or one alone
  pair,       // clusters of two blocks of 8 warps
  few_units,  // clusters of eight blocks of 4 warps
  many_units  // a block of 4 warps alone
};

struct DecodePlan {
  DecodeMerge merge;
  int log2_parts;

  bool operator==(const DecodePlan&) const = default;
};

inline constexpr int kMostLog2Parts = 5;
inline constexpr int kFewUnitsLog2Parts = 3;

constexpr int log2_floor(int64_t x) {
  return static_cast<int>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(x, 1)))) - 1;
}

// What long sequences are cut into however many there are. The figures behind these numbers are in
// docs/results/h200/decode_tried.txt.
constexpr int least_log2_parts(const DecodeShape& shape, int64_t num_steps) {
  if (num_steps < 128) return 0;
  if (shape.has_waiting_room) return shape.num_units >= int64_t{3} * shape.num_sms ? 1 : 0;
  // So many that no warp of eight has more than two leaves: states that wait in memory cost 3 to 8
  // %.
  if (shape.bits < 16 && num_steps < 512) return 1;
  const int wanted = log2_floor(num_steps / 64);
  return wanted < 3 ? wanted : (wanted + 3) / 2;
}

constexpr DecodePlan plan_decode(const DecodeShape& shape) {
  const int64_t num_steps = (std::max<int64_t>(shape.longest, 1) + kStepKeys - 1) / kStepKeys;
  // Few heads of short sequences: the fold through a cluster is 0.7 us faster than through memory.
  if (shape.has_clusters && shape.num_units <= 16 && num_steps <= 256) {
    return {DecodeMerge::few_units, kFewUnitsLog2Parts};
  }
  const int most = log2_leaves(static_cast<int>(num_steps), shape.bits) - 3;  // a leaf a warp
  if (shape.is_narrow && shape.has_clusters && most == 0 &&
      shape.num_units > int64_t{2} * shape.num_sms) {
    return {DecodeMerge::many_units, 0};
  }
  // A block for every SM, or two for codes of long sequences, each with some steps for every warp.
  const int64_t num_slots = int64_t{shape.num_sms} * (shape.bits < 16 && num_steps >= 512 ? 2 : 1);
  const int to_fill = log2_floor(num_slots / std::max<int64_t>(shape.num_units, 1));
  const int worth = std::max(log2_floor(num_steps / 32), 1);
  const int log2_parts =
      std::min({std::max(std::min(to_fill, worth), least_log2_parts(shape, num_steps)), most,
                kMostLog2Parts});
  if (log2_parts == 1 && shape.has_clusters) return {DecodeMerge::pair, 1};
  return {DecodeMerge::parts, log2_parts};
}

}  // namespace tessera::kernels
