// mma.sync: one warp's 16x8 product on the tensor cores, the forms of sm_80 and up.
// SPDX-License-Identifier: MIT
//
// D[16, 8] += A[16, k] . B[8, k]^T with k of 32 bytes: 16 16-bit elements, 32 bytes, 8 tf32. Which
// element each register holds: fragment.cuh. FP8 needs sm_89: mma_fp8.cuh.
#pragma once

#include <cstdint>

#include "tessera/core/dtype.h"

namespace tessera::tile::ptx {

// The operand type of a tf32 MMA: float with the low 13 bits of the mantissa ignored.
struct Tf32 {
  uint32_t bits;
};

// The type of the operands is the template argument: mma<Bf16>(d, a, b).
template <class T>
__device__ void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
template <class T>
__device__ void mma(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);

// PTX: mma.m16n8k16, .bf16 to .f32.
template <>
__device__ __forceinline__ void mma<Bf16>(float (&d)[4], const uint32_t (&a)[4],
                                          const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// PTX: mma.m16n8k16, .f16 to .f32.
template <>
__device__ __forceinline__ void mma<F16>(float (&d)[4], const uint32_t (&a)[4],
                                         const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// PTX: mma.m16n8k8, .tf32 to .f32.
template <>
__device__ __forceinline__ void mma<Tf32>(float (&d)[4], const uint32_t (&a)[4],
                                          const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// PTX: mma.m16n8k32, .s8 to .s32.
template <>
__device__ __forceinline__ void mma<int8_t>(int32_t (&d)[4], const uint32_t (&a)[4],
                                            const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// PTX: mma.m16n8k32, .u8 times .s8 to .s32.
__device__ __forceinline__ void mma_u8_s8(int32_t (&d)[4], const uint32_t (&a)[4],
                                          const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// PTX: mma.m16n8k16, .f16 to .f16: two halves per register, for sums that tolerate it.
__device__ __forceinline__ void mma_f16_accumulate(uint32_t (&d)[2], const uint32_t (&a)[4],
                                                   const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 "
      "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
      : "+r"(d[0]), "+r"(d[1])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace tessera::tile::ptx
