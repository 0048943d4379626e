// How the Hopper decode kernels divide keys: into steps, steps into the leaves of a tree, or all
// steps of a call into equal runs. Plain arithmetic, tested on the CPU.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace tessera::kernels::decode_sm90 {

inline constexpr int kStepKeys = 32;    // keys that a warp processes at a time
inline constexpr int kBoxKeys = 16;     // keys of one TMA copy; no page is smaller
inline constexpr int kMostGroup = 255;  // query heads that share a KV head

// Steps are grouped into leaves, and leaves are folded in a binary tree. The number of leaves
// depends on the number of steps alone, so results are batch-invariant: whichever warp computes a
// leaf, the same numbers are folded in the same order. Long sequences have more leaves, so that
// more warps can share them when the batch is small. Quantised steps are shorter, so a leaf's fixed
// cost weighs more; they have fewer, longer leaves.
inline constexpr int kMostLeaves = 128;
constexpr int log2_leaves(int num_steps, int bits) {
  if (bits == 16) {
    if (num_steps < 32) return num_steps < 8 ? 2 : 3;
    return num_steps < 64 ? 4 : num_steps < 256 ? 5 : num_steps < 1024 ? 6 : 7;
  }
  return num_steps < 64 ? 3 : num_steps < 128 ? 4 : num_steps < 512 ? 5 : num_steps < 1024 ? 6 : 7;
}

// The leaves of one of the 2^log2_slots warps that share a tree. If there are more warps than
// leaves, the warps in between have none: folding an empty state changes nothing.
struct LeafRange {
  int first;
  int count;
};
constexpr LeafRange leaves_of(int slot, int log2_slots, int log2_leaves) {
  if (log2_slots <= log2_leaves) {
    const int log2_count = log2_leaves - log2_slots;
    return {slot << log2_count, 1 << log2_count};
  }
  const int log2_slots_per_leaf = log2_slots - log2_leaves;
  const int first = slot >> log2_slots_per_leaf;
  return {first, first << log2_slots_per_leaf == slot ? 1 : 0};
}

// Every 2^log2_stride-th step in [begin, end).
struct StepRange {
  int begin;
  int end;
  int log2_stride = 0;
};

// 2^log2_turns leaves, if there are as many, take steps in turn, so that the steps a block reads at
// one time are neighbours in memory; with log2_turns 0 a leaf is one contiguous stretch. `leaves`
// all have the same turn: the step after one's last is the first of the next. At most 2^23 steps
// (2^28 keys) and 2^7 leaves.
constexpr StepRange steps_of(const LeafRange& leaves, int log2_leaves, int num_steps,
                             int log2_turns) {
  const int log2_stride = log2_turns < log2_leaves ? log2_turns : log2_leaves - 1;
  const int log2_stretches = log2_leaves - log2_stride;
  const int turn = leaves.first >> log2_stretches;
  const int stretch = leaves.first - (turn << log2_stretches);
  const int num_rounds = (num_steps + (1 << log2_stride) - 1) >> log2_stride;
  const auto begin_of = [=](int i) {
    const unsigned round =
        static_cast<unsigned>(i) * static_cast<unsigned>(num_rounds) >> log2_stretches;
    return static_cast<int>(round << log2_stride);
  };
  const int end = begin_of(stretch + leaves.count);
  return {begin_of(stretch) + turn, end < num_steps ? end : num_steps, log2_stride};
}

// The balanced assignment of the streaming kernel: the steps of all sequences and heads in a row,
// cut into equal runs, one for each block, wherever the cuts fall. A sequence's result then depends
// on the lengths of the others.

// Sequences of a call: prefix sums of their steps lie in shared memory.
inline constexpr int kMostStreamed = 1024;

// At least one, so that some block writes the zeros of an empty sequence.
constexpr int streamed_steps(int length) {
  return length <= 0 ? 1 : (length + kStepKeys - 1) / kStepKeys;
}

struct StreamCut {
  int64_t num_steps;   // of all
  int64_t num_blocks;  // blocks with steps: the first ones

  constexpr StreamCut(int64_t steps, int blocks)
      : num_steps(steps), num_blocks(blocks < steps ? blocks : steps) {}

  constexpr int64_t begin(int block) const {
    return (block < num_blocks ? block : num_blocks) * num_steps / num_blocks;
  }
  // The block that owns a step.
  constexpr int block_of(int64_t step) const {
    return static_cast<int>(((step + 1) * num_blocks - 1) / num_steps);
  }
};

// Steps [begin, end) of one head of a sequence.
struct StreamSegment {
  int sequence;
  int kv_head;
  int begin, end;
  int num_steps;  // of the sequence
  int64_t first;  // position of the head's first step among all steps
  constexpr bool is_whole() const { return begin == 0 && end == num_steps; }
};

// The segment that begins at `position` and ends at `limit` at the latest. sums[s] is the number of
// steps of one head over the sequences before s.
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

}  // namespace tessera::kernels::decode_sm90
