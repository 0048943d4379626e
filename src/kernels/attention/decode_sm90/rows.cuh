// What is done to rows of a slot in shared memory beside the products: scales are read, values that
// nobody sees are cleared.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/decode_sm90/load.cuh"
#include "kernels/attention/decode_sm90/products.cuh"
#include "tile/convert.cuh"

namespace tessera::kernels {

// Scale and low of a thread's keys: lane / 4 + 8 * i, from its first box on.
template <int kBoxes>
struct RowScales {
  float scale[2 * kBoxes], low[2 * kBoxes];
};
template <int kNumScales, int kBoxes>
__device__ __forceinline__ RowScales<kBoxes> row_scales(uint32_t scales, int first_box, int lane) {
  RowScales<kBoxes> s;
  const uint32_t at = scales + 2 * kNumScales * (kBoxKeys * first_box + lane / 4);
  TESSERA_UNROLL
  for (int i = 0; i < 2 * kBoxes; ++i) {
    uint32_t word =
        tile::ptx::load_shared(at + 16 * kNumScales * i - (kNumScales == 1 ? lane / 4 % 2 * 2 : 0));
    if constexpr (kNumScales == 1) word >>= lane / 4 % 2 * 16;
    const float2 pair = tile::pair_to_floats<F16>(word);
    s.scale[i] = pair.x;
    s.low[i] = pair.y;
  }
  return s;
}

// Values that no query sees, before the window or behind the last key: zero times what a page may
// hold there need not be zero.
template <class Tile>
__device__ __forceinline__ void clear_values(const KeyRun& run, int step, uint32_t values,
                                             int lane) {
  const int first = run.first_key - step * kStepKeys, end = run.len - step * kStepKeys;
  if (first <= 0 && end >= kStepKeys) return;
  constexpr int kRowChunks = Tile::kRowBytes / 16;
#pragma unroll 1
  for (int i = lane; i < kStepKeys * kRowChunks; i += 32) {
    const int row = i / kRowChunks;
    if (row >= first && row < end) continue;
    const uint32_t at = values + row / kBoxKeys * Tile::kBoxBytes;
    tile::ptx::store_shared(at + place<Tile>(row % kBoxKeys, i % kRowChunks), uint4{});
  }
  __syncwarp();
  tile::ptx::fence_proxy_async_shared();  // the copy engine writes here next
}

}  // namespace tessera::kernels
