// How the Hopper decode kernel cuts a sequence's keys.
// SPDX-License-Identifier: MIT
#pragma once

namespace tessera::kernels {

inline constexpr int kStepKeys = 32;  // keys a warp takes at a time
inline constexpr int kBoxKeys = 16;   // keys of one copy: no page is smaller

// Steps are grouped into leaves, and leaves folded in a binary tree. How many leaves there are
// depends on the number of steps alone, and so do results: whoever computes a leaf, the same
// numbers are folded in the same order. More of them for long sequences, which more warps share
// where sequences are few.
// Quantised steps are shorter, so a leaf's fixed cost weighs more: they have fewer, longer leaves.
inline constexpr int kMostLeaves = 128;
constexpr int log2_leaves(int num_steps, int bits) {
  if (bits == 16) {
    if (num_steps < 32) return num_steps < 8 ? 2 : 3;
    return num_steps < 64 ? 4 : num_steps < 256 ? 5 : num_steps < 1024 ? 6 : 7;
  }
  return num_steps < 64 ? 3 : num_steps < 128 ? 4 : num_steps < 512 ? 5 : num_steps < 1024 ? 6 : 7;
}

// The leaves of one of 2^log2_slots warps that share a tree. Where there are more warps than
// leaves, those in between have none: folding nothing changes nothing.
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

// Every 2^log2_stride-th step from begin on, below end.
struct StepRange {
  int begin;
  int end;
  int log2_stride = 0;
};

// Leaves of neighbouring warps take steps by turns, 2^log2_turns of them where there are enough, so
// that what a block reads at a time lies together; without turns a leaf is a stretch. `leaves` have
// the same turn: what follows one's last step is the first of the next. Steps are at most 2^23
// (2^28 keys), leaves 2^7.
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

}  // namespace tessera::kernels
