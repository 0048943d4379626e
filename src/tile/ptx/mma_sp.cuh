// mma.sp: one warp's 16x8 product with two of every four elements of A left out, sm_80 up.
// SPDX-License-Identifier: MIT
//
// D[16, 8] += A[16, 32] . B[8, 32]^T. A comes as the [16, 16] elements that are kept, in the
// registers of a dense A fragment of 16 x 16; B as two dense fragments of 8 x 16, one after the
// other.
//
// `meta` says where the kept elements lie: 4 bits for every 4 of a row of A, the place of the first
// in the low two, of the second, which is greater, in the high two. Of each 4 lanes two are read,
// 2 * kSelector and the next: with g = lane / 4, the first holds columns 0-15 of row g in its low
// half, lowest columns lowest, and of row g + 8 in its high half; the second columns 16-31.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tessera/core/dtype.h"

namespace tessera::tile::ptx {

// PTX: mma.sp::ordered_metadata.m16n8k32, .bf16 or .f16 to .f32.
template <class T, int kSelector>
__device__ __forceinline__ void mma_sp(float (&d)[4], const uint32_t (&a)[4],
                                       const uint32_t (&b)[4], uint32_t meta) {
  static_assert(kSelector == 0 || kSelector == 1);
  if constexpr (std::is_same_v<T, Bf16>) {
    asm volatile(
        "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]),
          "r"(meta), "n"(kSelector));
  } else {
    static_assert(std::is_same_v<T, F16>);
    asm volatile(
        "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]),
          "r"(meta), "n"(kSelector));
  }
}

}  // namespace tessera::tile::ptx
