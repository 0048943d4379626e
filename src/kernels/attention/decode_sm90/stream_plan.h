// A balanced assignment: the steps of all sequences and heads one after the other, cut into equal
// runs, one for each block, wherever the cuts fall. What a sequence's result is then depends on the
// lengths of the others.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/attention/decode_sm90/leaves.h"

namespace tessera::kernels {

// Sequences of a call: their steps are added up in shared memory.
inline constexpr int kMostStreamed = 1024;

// One at least, so that an empty sequence has a block that writes its zeros.
constexpr int streamed_steps(int length) {
  return length <= 0 ? 1 : (length + kStepKeys - 1) / kStepKeys;
}

struct StreamCut {
  int64_t num_steps;   // of all
  int64_t num_blocks;  // that have steps: the first ones

  constexpr StreamCut(int64_t steps, int blocks)
      : num_steps(steps), num_blocks(blocks < steps ? blocks : steps) {}

  constexpr int64_t begin(int block) const {
    return (block < num_blocks ? block : num_blocks) * num_steps / num_blocks;
  }
  // The block that has a step.
  constexpr int block_of(int64_t step) const {
    return static_cast<int>(((step + 1) * num_blocks - 1) / num_steps);
  }
};

// Part of the keys of one head of a sequence: steps [begin, end) of the sequence's.
struct StreamSegment {
  int sequence;
  int kv_head;
  int begin, end;
  int num_steps;  // of the sequence
  int64_t first;  // of all steps, the first of this head
  constexpr bool is_whole() const { return begin == 0 && end == num_steps; }
};

// The segment that begins at `position` and ends at `limit` at the latest. sums[s] are the steps of
// one head of the sequences before s.
constexpr StreamSegment segment_at(const int* sums, int num_sequences, int num_kv_heads,
                                   int64_t position, int64_t limit) {
  int low = 0, high = num_sequences;  // the sequence is in [low, high)
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (static_cast<int64_t>(sums[middle]) * num_kv_heads <= position) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const int steps = sums[low + 1] - sums[low];
  const int64_t within = position - static_cast<int64_t>(sums[low]) * num_kv_heads;
  const int head = static_cast<int>(within / steps), begin = static_cast<int>(within % steps);
  const int64_t left = limit - position;
  const int end = left < steps - begin ? begin + static_cast<int>(left) : steps;
  return {low, head, begin, end, steps, position - begin};
}

}  // namespace tessera::kernels
