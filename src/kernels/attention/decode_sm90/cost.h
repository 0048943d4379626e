// What a plan of the Hopper decode kernel costs, over caches of 16 bits: a model of one H200,
// fitted to measured calls (docs/results/h200/decode_tried.txt, 39). It only has to rank plans.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/attention/decode_sm90/leaves.h"

namespace tessera::kernels {

// TB/s that a number of blocks reach together, as straight lines between points; beyond the last
// point its own. `share` counts blocks in units of the GPU's SMs.
struct RatePoint {
  float share;
  float rate;
};
using RateCurve = std::span<const RatePoint>;

constexpr float rate_at(RateCurve curve, float share) {
  for (size_t i = 1; i < curve.size(); ++i) {
    const RatePoint a = curve[i - 1], b = curve[i];
    if (share > b.share) continue;
    return a.rate + (b.rate - a.rate) * (share - a.share) / (b.share - a.share);
  }
  return curve.back().rate;
}

// Measured: rates fall just above half as many blocks as SMs, less so for blocks with little in
// flight. The likely cause, not proved: two SMs share a way to memory, and pairs then end late.
inline constexpr RatePoint kFirstWave[] = {
    {0, 0},        {.295f, 3.8f}, {.5f, 4.25f},  {.53f, 3.1f},  {.59f, 2.8f},
    {.636f, 3.0f}, {.682f, 3.4f}, {.758f, 3.7f}, {.848f, 4.2f}, {1, 4.5f}};
inline constexpr RatePoint kFirstWaveLean[] = {
    {0, 0},    {.182f, 1.65f}, {.364f, 2.95f}, {.485f, 3.6f}, {.59f, 3.93f}, {.758f, 4.28f},
    {1, 4.4f}, {1.05f, 3.1f},  {1.18f, 2.9f},  {1.36f, 3.6f}, {1.7f, 4.1f},  {2, 4.4f}};
inline constexpr RatePoint kFirstWaveAlone[] = {
    {0, 0},        {.182f, 1.65f}, {.364f, 2.95f}, {.485f, 3.6f}, {.545f, 3.9f}, {.59f, 3.3f},
    {.636f, 3.2f}, {.682f, 3.7f},  {.758f, 3.9f},  {.848f, 4.4f}, {1, 4.55f}};
// Blocks of later waves begin one by one, which evens them out.
inline constexpr RatePoint kLaterWave[] = {{0, 0}, {.295f, 3.8f}, {.485f, 4.25f}, {1, 4.5f}};
inline constexpr RatePoint kLaterWaveLean[] = {{0, 0},        {.182f, 1.65f}, {.364f, 2.95f},
                                               {.485f, 3.6f}, {.59f, 3.93f},  {.758f, 4.28f},
                                               {1, 4.4f}};

// One way to run a call, in microseconds.
struct DecodeKernelCost {
  int log2_warps;  // of a block
  int blocks_on_sm;
  RateCurve first;  // of the wave that starts the call
  RateCurve later;
  float call;   // once
  float block;  // of each wave
  float step;   // of a warp, where it waits for nobody
  float leaf;   // of a warp, beyond its first
  float merge;  // where several blocks share a sequence
  float part;   // and for each of them
};

struct DecodeWork {
  int64_t num_units;  // sequences, heads of keys, groups of rows
  int64_t num_steps;  // of the longest sequence
  int64_t unit_bytes;
  int num_sms;
};

constexpr float decode_cost(const DecodeKernelCost& kernel, const DecodeWork& work,
                            int log2_parts) {
  const int log2_tree = log2_leaves(static_cast<int>(work.num_steps), 16);
  const int log2_slots = log2_parts + kernel.log2_warps;
  const int64_t num_slots = int64_t{1} << (log2_slots < log2_tree ? log2_slots : log2_tree);
  const auto steps = static_cast<float>((work.num_steps + num_slots - 1) / num_slots);
  const auto leaves = static_cast<float>((int64_t{1} << log2_tree) / num_slots);
  const float alone = kernel.block + steps * kernel.step + (leaves - 1) * kernel.leaf;

  const int64_t num_blocks = work.num_units << log2_parts;
  const int64_t at_once = int64_t{work.num_sms} * kernel.blocks_on_sm;
  const float block_mb =
      static_cast<float>(work.unit_bytes) * 1e-6f / static_cast<float>(1 << log2_parts);
  const auto wave = [&](int64_t blocks, RateCurve curve) {
    const auto count = static_cast<float>(blocks);
    const float rate = rate_at(curve, count / static_cast<float>(work.num_sms));
    const float streaming = .5f * kernel.block + count * block_mb / rate;
    return streaming > alone ? streaming : alone;
  };
  const int64_t num_waves = num_blocks / at_once, rest = num_blocks % at_once;
  float us = kernel.call + static_cast<float>(num_waves) * wave(at_once, kernel.first);
  if (rest > 0) us += wave(rest, num_waves == 0 ? kernel.first : kernel.later);
  if (log2_parts > 0) us += kernel.merge + kernel.part * static_cast<float>(1 << log2_parts);
  return us;
}

}  // namespace tessera::kernels
