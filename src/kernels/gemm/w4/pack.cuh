// Packing::fragments from Packing::rows and back, on a GPU.
// SPDX-License-Identifier: MIT
//
// Work      A thread writes one byte of codes, two of them, or one scale with its zero point.
// Pipeline  None.
// Output    Codes and zero points keep their values. Scales do too, unless f32 becomes a 16-bit
//           type: then they are rounded to nearest even.
// Cost      The bytes of the weight, read and written once; not coalesced on one side. It runs once
//           for each weight, at load.
// Needs     i4, n and k multiples of 64.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/gemm/w4/launch.h"
#include "kernels/gemm/w4/scales.cuh"
#include "kernels/launch.h"
#include "tessera/ops/weight_packing.h"
#include "tile/arch.cuh"

namespace tessera::kernels {

struct PackFragmentsParams {
  const uint8_t* codes;    // [n, k], of one packing
  uint8_t* out_codes;      // of the other
  W4Scales scale;          // [n, num_groups], or its packing
  W4Scales out_scale;      // the other
  const void* zero_point;  // like scale; null: none
  void* out_zero_point;    // like out_scale
  int64_t n;
  int64_t k;
  int64_t row_bytes;   // from one row of codes to the next, of the weight in rows
  int64_t num_groups;  // of a row
  bool packs;          // to fragments; otherwise from them
  bool has_bytes;      // zero points are u8, otherwise i32
  bool writes_bytes;   // the same of out_zero_point
};
static_assert(std::is_trivially_copyable_v<PackFragmentsParams>);

__device__ inline uint8_t nibble_at(const uint8_t* codes, NibblePlace place) {
  return static_cast<uint8_t>(codes[place.byte] >> place.shift & 15);
}

template <class Arch>
__global__ void pack_fragments_kernel(const __grid_constant__ PackFragmentsParams p) {
  tile::wait_for_previous(Arch{});
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t num_bytes = p.n * p.k / 2;
  if (index >= num_bytes + p.n * p.num_groups) return;
  if (index >= num_bytes) {
    const int64_t plain = index - num_bytes;
    const int64_t packed = fragment_scale(plain / p.num_groups, plain % p.num_groups, p.num_groups);
    const int64_t from = p.packs ? plain : packed, to = p.packs ? packed : plain;
    p.out_scale.set(to, p.scale.at(from));
    if (p.zero_point == nullptr) return;
    const int zero = p.has_bytes ? static_cast<const uint8_t*>(p.zero_point)[from]
                                 : static_cast<const int32_t*>(p.zero_point)[from];
    if (p.writes_bytes) {
      static_cast<uint8_t*>(p.out_zero_point)[to] = static_cast<uint8_t>(zero);
    } else {
      static_cast<int32_t*>(p.out_zero_point)[to] = zero;
    }
    return;
  }
  // Without zero points codes are signed in rows and shifted by 8 in fragments.
  const uint8_t flip = p.zero_point == nullptr ? 0x88 : 0;
  const int64_t row = index / (p.k / 2), col = index % (p.k / 2) * 2;  // of the byte in rows
  if (!p.packs) {
    const uint8_t low = nibble_at(p.codes, fragment_place(row, col, p.k));
    const uint8_t high = nibble_at(p.codes, fragment_place(row, col + 1, p.k));
    p.out_codes[row * p.row_bytes + col / 2] = static_cast<uint8_t>((low | high << 4) ^ flip);
    return;
  }
  // A byte of fragments holds a column of two rows that are 8 apart. Rows with bit 3 take the
  // second of the two columns.
  const int64_t upper = row / 16 * 16 + row % 8, column = col + row % 16 / 8;
  const auto plain = [&](int64_t r) {
    return NibblePlace{r * p.row_bytes + column / 2, static_cast<int>(4 * (column % 2))};
  };
  const uint8_t low = nibble_at(p.codes, plain(upper));
  const uint8_t high = nibble_at(p.codes, plain(upper + 8));
  p.out_codes[fragment_place(upper, column, p.k).byte] =
      static_cast<uint8_t>((low | high << 4) ^ flip);
}

template <class Arch>
void launch_pack_fragments(const Weight& from, const Weight& to, const Context& ctx) {
  PackFragmentsParams p{};
  p.packs = to.packing != Packing::rows;
  const Weight& rows = p.packs ? from : to;
  p.codes = from.values.as<uint8_t>();
  p.out_codes = to.values.as<uint8_t>();
  p.scale = w4_scales(*from.scale);
  p.out_scale = w4_scales(*to.scale);
  p.n = rows.n();
  p.k = rows.k();
  p.row_bytes = rows.values.stride(0) / 2;
  p.num_groups = scale_layout(from).scales_per_row;
  if (from.zero_point) {
    p.zero_point = from.zero_point->data;
    p.out_zero_point = to.zero_point->data;
    p.has_bytes = from.zero_point->dtype == DType::u8;
    p.writes_bytes = to.zero_point->dtype == DType::u8;
  }
  constexpr int64_t kThreads = 256;
  const int64_t num_items = p.n * p.k / 2 + p.n * p.num_groups;
  if (num_items == 0) return;
  const auto num_blocks = static_cast<unsigned>((num_items + kThreads - 1) / kThreads);
  launch(&pack_fragments_kernel<Arch>,
         {.grid = dim3(num_blocks), .block = dim3(static_cast<unsigned>(kThreads))}, p, ctx);
}

}  // namespace tessera::kernels
