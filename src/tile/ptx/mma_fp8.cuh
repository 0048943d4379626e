// mma.sync on FP8 operands, sm_89 up.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tessera/core/dtype.h"

namespace tessera::tile::ptx {

// The name PTX gives an FP8 type.
template <class T>
struct Fp8Name;
template <>
struct Fp8Name<E4m3> {
  static constexpr char text[] = "e4m3";
};
template <>
struct Fp8Name<E5m2> {
  static constexpr char text[] = "e5m2";
};

// PTX: mma.m16n8k32 with .e4m3 or .e5m2 for each operand, to .f32. On sm_90 wgmma is the fast path.
template <class A, class B>
__device__ __forceinline__ void mma_fp8(float (&d)[4], const uint32_t (&a)[4],
                                        const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.%10.%11.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "C"(Fp8Name<A>::text),
        "C"(Fp8Name<B>::text));
}

}  // namespace tessera::tile::ptx
