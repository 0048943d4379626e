// wgmma: one warpgroup's asynchronous 64xN product on the tensor cores of sm_90a.
// SPDX-License-Identifier: MIT
//
// D[64, n] = A[64, k] . B[n, k]^T (+ D), k of 32 bytes: 16 16-bit elements or 32 8-bit ones. B
// comes from shared memory through a descriptor (descriptor.cuh), A likewise or from registers. A
// thread holds n / 2 registers of D; which element each is: fragment.cuh.
//
// Order of use: fence, products, commit_group, wait_group. Between a product and the wait that
// covers it, neither D nor an A in registers may be read or written.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tessera/core/dtype.h"
#include "tile/unroll.cuh"

namespace tessera::tile::ptx {

// PTX: wgmma.fence. Before the first product, and whenever registers it uses were written since.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// PTX: wgmma.commit_group.
__device__ __forceinline__ void wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// PTX: wgmma.wait_group. Returns when at most kPending groups are in flight.
template <int kPending>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// No instruction: keeps the compiler from moving writes and reads of these registers across this
// point. Before the fence where D was written by other code, after the wait where it is read next.
template <int kRegisters>
__device__ __forceinline__ void wgmma_hold(float (&d)[kRegisters]) {
  TESSERA_UNROLL
  for (int i = 0; i < kRegisters; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <class T, int kRegisters>
requires(std::is_integral_v<T> && sizeof(T) == 4)
    __device__ __forceinline__ void wgmma_hold(T (&d)[kRegisters]) {
  TESSERA_UNROLL
  for (int i = 0; i < kRegisters; ++i) asm volatile("" : "+r"(d[i])::"memory");
}

// Constants of the instruction. MN-major (for 16-bit types alone) means that the operand in shared
// memory has m or n, not k, as its contiguous dimension.
struct WgmmaFlags {
  bool negate_a = false;
  bool negate_b = false;
  bool a_is_mn_major = false;
  bool b_is_mn_major = false;
};

// The part of the instruction's name that follows the shape's n.
template <class A, class B>
struct WgmmaName;
template <>
struct WgmmaName<Bf16, Bf16> {
  static constexpr char text[] = "k16.f32.bf16.bf16";
};
template <>
struct WgmmaName<F16, F16> {
  static constexpr char text[] = "k16.f32.f16.f16";
};
template <>
struct WgmmaName<E4m3, E4m3> {
  static constexpr char text[] = "k32.f32.e4m3.e4m3";
};
template <>
struct WgmmaName<E4m3, E5m2> {
  static constexpr char text[] = "k32.f32.e4m3.e5m2";
};
template <>
struct WgmmaName<E5m2, E4m3> {
  static constexpr char text[] = "k32.f32.e5m2.e4m3";
};
template <>
struct WgmmaName<E5m2, E5m2> {
  static constexpr char text[] = "k32.f32.e5m2.e5m2";
};
template <>
struct WgmmaName<int8_t, int8_t> {
  static constexpr char text[] = "k32.s32.s8.s8";
};
template <>
struct WgmmaName<uint8_t, int8_t> {
  static constexpr char text[] = "k32.s32.u8.s8";
};

// The immediates that end the operand list: the signs, then whether each operand in shared memory
// is MN-major. Integers have neither, FP8 the signs alone.
template <class A, WgmmaFlags kFlags>
struct WgmmaSigns {
  static constexpr char text[] = {
      ',', kFlags.negate_a ? '-' : ' ', '1', ',', kFlags.negate_b ? '-' : ' ', '1', 0};
};
template <class A, WgmmaFlags kFlags>
requires(std::is_integral_v<A>) struct WgmmaSigns<A, kFlags> {
  static_assert(!kFlags.negate_a && !kFlags.negate_b, "integer operands keep their sign");
  static constexpr char text[] = " ";
};

enum class WgmmaSource { shared, registers };

template <class A, WgmmaFlags kFlags, WgmmaSource kSourceOfA>
struct WgmmaMajors {
  static_assert(!kFlags.a_is_mn_major && !kFlags.b_is_mn_major, "8-bit operands are K-major");
  static constexpr char text[] = " ";
};
template <class A, WgmmaFlags kFlags>
requires(sizeof(A) == 2) struct WgmmaMajors<A, kFlags, WgmmaSource::shared> {
  static constexpr char text[] = {',', kFlags.a_is_mn_major ? '1' : '0', ',',
                                  kFlags.b_is_mn_major ? '1' : '0', 0};
};
template <class A, WgmmaFlags kFlags>
requires(sizeof(A) == 2) struct WgmmaMajors<A, kFlags, WgmmaSource::registers> {
  static_assert(!kFlags.a_is_mn_major, "A in registers is K-major");
  static constexpr char text[] = {',', kFlags.b_is_mn_major ? '1' : '0', 0};
};

// The n of the instruction: multiples of 8 up to 256; beyond 32, integers step by 16.
template <class A>
constexpr bool is_wgmma_n(int n) {
  const int step = std::is_integral_v<A> && n > 32 ? 16 : 8;
  return n >= 8 && n <= 256 && n % step == 0;
}

// The asm statement is written once for each n, because its number of operands differs. What
// follows are the lists that grow with n; the rest of the instruction's name is a compile-time
// string.
// clang-format off
#define REGS_8 "%0, %1, %2, %3"
#define REGS_16 REGS_8 ", %4, %5, %6, %7"
#define REGS_24 REGS_16 ", %8, %9, %10, %11"
#define REGS_32 REGS_24 ", %12, %13, %14, %15"
#define REGS_40 REGS_32 ", %16, %17, %18, %19"
#define REGS_48 REGS_40 ", %20, %21, %22, %23"
#define REGS_56 REGS_48 ", %24, %25, %26, %27"
#define REGS_64 REGS_56 ", %28, %29, %30, %31"
#define REGS_72 REGS_64 ", %32, %33, %34, %35"
#define REGS_80 REGS_72 ", %36, %37, %38, %39"
#define REGS_88 REGS_80 ", %40, %41, %42, %43"
#define REGS_96 REGS_88 ", %44, %45, %46, %47"
#define REGS_104 REGS_96 ", %48, %49, %50, %51"
#define REGS_112 REGS_104 ", %52, %53, %54, %55"
#define REGS_120 REGS_112 ", %56, %57, %58, %59"
#define REGS_128 REGS_120 ", %60, %61, %62, %63"
#define REGS_136 REGS_128 ", %64, %65, %66, %67"
#define REGS_144 REGS_136 ", %68, %69, %70, %71"
#define REGS_152 REGS_144 ", %72, %73, %74, %75"
#define REGS_160 REGS_152 ", %76, %77, %78, %79"
#define REGS_168 REGS_160 ", %80, %81, %82, %83"
#define REGS_176 REGS_168 ", %84, %85, %86, %87"
#define REGS_184 REGS_176 ", %88, %89, %90, %91"
#define REGS_192 REGS_184 ", %92, %93, %94, %95"
#define REGS_200 REGS_192 ", %96, %97, %98, %99"
#define REGS_208 REGS_200 ", %100, %101, %102, %103"
#define REGS_216 REGS_208 ", %104, %105, %106, %107"
#define REGS_224 REGS_216 ", %108, %109, %110, %111"
#define REGS_232 REGS_224 ", %112, %113, %114, %115"
#define REGS_240 REGS_232 ", %116, %117, %118, %119"
#define REGS_248 REGS_240 ", %120, %121, %122, %123"
#define REGS_256 REGS_248 ", %124, %125, %126, %127"
#define D_8(c) c(d[0]), c(d[1]), c(d[2]), c(d[3])
#define D_16(c) D_8(c), c(d[4]), c(d[5]), c(d[6]), c(d[7])
#define D_24(c) D_16(c), c(d[8]), c(d[9]), c(d[10]), c(d[11])
#define D_32(c) D_24(c), c(d[12]), c(d[13]), c(d[14]), c(d[15])
#define D_40(c) D_32(c), c(d[16]), c(d[17]), c(d[18]), c(d[19])
#define D_48(c) D_40(c), c(d[20]), c(d[21]), c(d[22]), c(d[23])
#define D_56(c) D_48(c), c(d[24]), c(d[25]), c(d[26]), c(d[27])
#define D_64(c) D_56(c), c(d[28]), c(d[29]), c(d[30]), c(d[31])
#define D_72(c) D_64(c), c(d[32]), c(d[33]), c(d[34]), c(d[35])
#define D_80(c) D_72(c), c(d[36]), c(d[37]), c(d[38]), c(d[39])
#define D_88(c) D_80(c), c(d[40]), c(d[41]), c(d[42]), c(d[43])
#define D_96(c) D_88(c), c(d[44]), c(d[45]), c(d[46]), c(d[47])
#define D_104(c) D_96(c), c(d[48]), c(d[49]), c(d[50]), c(d[51])
#define D_112(c) D_104(c), c(d[52]), c(d[53]), c(d[54]), c(d[55])
#define D_120(c) D_112(c), c(d[56]), c(d[57]), c(d[58]), c(d[59])
#define D_128(c) D_120(c), c(d[60]), c(d[61]), c(d[62]), c(d[63])
#define D_136(c) D_128(c), c(d[64]), c(d[65]), c(d[66]), c(d[67])
#define D_144(c) D_136(c), c(d[68]), c(d[69]), c(d[70]), c(d[71])
#define D_152(c) D_144(c), c(d[72]), c(d[73]), c(d[74]), c(d[75])
#define D_160(c) D_152(c), c(d[76]), c(d[77]), c(d[78]), c(d[79])
#define D_168(c) D_160(c), c(d[80]), c(d[81]), c(d[82]), c(d[83])
#define D_176(c) D_168(c), c(d[84]), c(d[85]), c(d[86]), c(d[87])
#define D_184(c) D_176(c), c(d[88]), c(d[89]), c(d[90]), c(d[91])
#define D_192(c) D_184(c), c(d[92]), c(d[93]), c(d[94]), c(d[95])
#define D_200(c) D_192(c), c(d[96]), c(d[97]), c(d[98]), c(d[99])
#define D_208(c) D_200(c), c(d[100]), c(d[101]), c(d[102]), c(d[103])
#define D_216(c) D_208(c), c(d[104]), c(d[105]), c(d[106]), c(d[107])
#define D_224(c) D_216(c), c(d[108]), c(d[109]), c(d[110]), c(d[111])
#define D_232(c) D_224(c), c(d[112]), c(d[113]), c(d[114]), c(d[115])
#define D_240(c) D_232(c), c(d[116]), c(d[117]), c(d[118]), c(d[119])
#define D_248(c) D_240(c), c(d[120]), c(d[121]), c(d[122]), c(d[123])
#define D_256(c) D_248(c), c(d[124]), c(d[125]), c(d[126]), c(d[127])

// Each n with the numbers of the operands that follow D.
#define FOR_EACH_N(ROW) \
  ROW(8, 4, 5, 6, 7, 8, 9, 10, 11, 12) \
  ROW(16, 8, 9, 10, 11, 12, 13, 14, 15, 16) \
  ROW(24, 12, 13, 14, 15, 16, 17, 18, 19, 20) \
  ROW(32, 16, 17, 18, 19, 20, 21, 22, 23, 24) \
  ROW(48, 24, 25, 26, 27, 28, 29, 30, 31, 32) \
  ROW(64, 32, 33, 34, 35, 36, 37, 38, 39, 40) \
  ROW(80, 40, 41, 42, 43, 44, 45, 46, 47, 48) \
  ROW(96, 48, 49, 50, 51, 52, 53, 54, 55, 56) \
  ROW(112, 56, 57, 58, 59, 60, 61, 62, 63, 64) \
  ROW(128, 64, 65, 66, 67, 68, 69, 70, 71, 72) \
  ROW(144, 72, 73, 74, 75, 76, 77, 78, 79, 80) \
  ROW(160, 80, 81, 82, 83, 84, 85, 86, 87, 88) \
  ROW(176, 88, 89, 90, 91, 92, 93, 94, 95, 96) \
  ROW(192, 96, 97, 98, 99, 100, 101, 102, 103, 104) \
  ROW(208, 104, 105, 106, 107, 108, 109, 110, 111, 112) \
  ROW(224, 112, 113, 114, 115, 116, 117, 118, 119, 120) \
  ROW(240, 120, 121, 122, 123, 124, 125, 126, 127, 128) \
  ROW(256, 128, 129, 130, 131, 132, 133, 134, 135, 136)
#define FOR_EACH_OTHER_FLOAT_N(ROW) \
  ROW(40, 20, 21, 22, 23, 24, 25, 26, 27, 28) \
  ROW(56, 28, 29, 30, 31, 32, 33, 34, 35, 36) \
  ROW(72, 36, 37, 38, 39, 40, 41, 42, 43, 44) \
  ROW(88, 44, 45, 46, 47, 48, 49, 50, 51, 52) \
  ROW(104, 52, 53, 54, 55, 56, 57, 58, 59, 60) \
  ROW(120, 60, 61, 62, 63, 64, 65, 66, 67, 68) \
  ROW(136, 68, 69, 70, 71, 72, 73, 74, 75, 76) \
  ROW(152, 76, 77, 78, 79, 80, 81, 82, 83, 84) \
  ROW(168, 84, 85, 86, 87, 88, 89, 90, 91, 92) \
  ROW(184, 92, 93, 94, 95, 96, 97, 98, 99, 100) \
  ROW(200, 100, 101, 102, 103, 104, 105, 106, 107, 108) \
  ROW(216, 108, 109, 110, 111, 112, 113, 114, 115, 116) \
  ROW(232, 116, 117, 118, 119, 120, 121, 122, 123, 124) \
  ROW(248, 124, 125, 126, 127, 128, 129, 130, 131, 132)

#define WGMMA_SS(c, n, a, b, s, t, g, m) \
  if constexpr (kN == n) { \
    asm volatile( \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %" #s ", 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n" #n "%" #t " {" REGS_##n "}, %" #a ", %" #b ", p" \
        "%" #g "%" #m ";\n}" \
        : D_##n(c) \
        : "l"(a_descriptor), "l"(b_descriptor), "r"(static_cast<int>(accumulate)), \
          "C"(WgmmaName<A, B>::text), "C"(WgmmaSigns<A, kFlags>::text), \
          "C"(WgmmaMajors<A, kFlags, WgmmaSource::shared>::text)); \
  }
#define WGMMA_RS(c, n, a0, a1, a2, a3, b, s, t, g, m) \
  if constexpr (kN == n) { \
    asm volatile( \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %" #s ", 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n" #n "%" #t " {" REGS_##n "}, " \
        "{%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b ", p%" #g "%" #m ";\n}" \
        : D_##n(c) \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_descriptor), \
          "r"(static_cast<int>(accumulate)), "C"(WgmmaName<A, B>::text), \
          "C"(WgmmaSigns<A, kFlags>::text), \
          "C"(WgmmaMajors<A, kFlags, WgmmaSource::registers>::text)); \
  }
#define FLOAT_SS(n, i0, i1, i2, i3, i4, i5, ...) WGMMA_SS("+f", n, i0, i1, i2, i3, i4, i5)
#define FIRST_SS(n, i0, i1, i2, i3, i4, i5, ...) WGMMA_SS("=f", n, i0, i1, i2, i3, i4, i5)
#define INTEGER_SS(n, i0, i1, i2, i3, i4, i5, ...) WGMMA_SS("+r", n, i0, i1, i2, i3, i4, i5)
#define FIRST_INTEGER_SS(n, i0, i1, i2, i3, i4, i5, ...) WGMMA_SS("=r", n, i0, i1, i2, i3, i4, i5)
#define FLOAT_RS(n, ...) WGMMA_RS("+f", n, __VA_ARGS__)
#define FIRST_RS(n, ...) WGMMA_RS("=f", n, __VA_ARGS__)
#define INTEGER_RS(n, ...) WGMMA_RS("+r", n, __VA_ARGS__)
// clang-format on

// PTX: wgmma.mma_async, both operands in shared memory. Without `accumulate`, D is overwritten. n
// is twice the number of registers of D; A and B name the types: wgmma_ss<Bf16, Bf16>(d, a, b,
// true).
template <class A, class B, WgmmaFlags kFlags = WgmmaFlags{}, int kRegisters>
__device__ __forceinline__ void wgmma_ss(float (&d)[kRegisters], uint64_t a_descriptor,
                                         uint64_t b_descriptor, bool accumulate) {
  constexpr int kN = 2 * kRegisters;
  static_assert(is_wgmma_n<A>(kN));
  FOR_EACH_N(FLOAT_SS)
  FOR_EACH_OTHER_FLOAT_N(FLOAT_SS)
}

// The same, overwriting D: its old contents are not read, so its registers are free until here.
template <class A, class B, WgmmaFlags kFlags = WgmmaFlags{}, int kRegisters>
__device__ __forceinline__ void wgmma_ss_first(float (&d)[kRegisters], uint64_t a_descriptor,
                                               uint64_t b_descriptor) {
  constexpr int kN = 2 * kRegisters;
  constexpr bool accumulate = false;
  static_assert(is_wgmma_n<A>(kN));
  FOR_EACH_N(FIRST_SS)
  FOR_EACH_OTHER_FLOAT_N(FIRST_SS)
}

template <class A, class B, WgmmaFlags kFlags = WgmmaFlags{}, int kRegisters>
__device__ __forceinline__ void wgmma_ss(int32_t (&d)[kRegisters], uint64_t a_descriptor,
                                         uint64_t b_descriptor, bool accumulate) {
  constexpr int kN = 2 * kRegisters;
  static_assert(is_wgmma_n<A>(kN));
  FOR_EACH_N(INTEGER_SS)
}

template <class A, class B, WgmmaFlags kFlags = WgmmaFlags{}, int kRegisters>
__device__ __forceinline__ void wgmma_ss_first(int32_t (&d)[kRegisters], uint64_t a_descriptor,
                                               uint64_t b_descriptor) {
  constexpr int kN = 2 * kRegisters;
  constexpr bool accumulate = false;
  static_assert(is_wgmma_n<A>(kN));
  FOR_EACH_N(FIRST_INTEGER_SS)
}

// PTX: wgmma.mma_async, A in registers: fragments as in fragment.cuh, 16 rows x 32 bytes per warp.
template <class A, class B, WgmmaFlags kFlags = WgmmaFlags{}, int kRegisters>
__device__ __forceinline__ void wgmma_rs(float (&d)[kRegisters], const uint32_t (&a)[4],
                                         uint64_t b_descriptor, bool accumulate) {
  constexpr int kN = 2 * kRegisters;
  static_assert(is_wgmma_n<A>(kN));
  FOR_EACH_N(FLOAT_RS)
  FOR_EACH_OTHER_FLOAT_N(FLOAT_RS)
}

// The same, overwriting D, as wgmma_ss_first.
template <class A, class B, WgmmaFlags kFlags = WgmmaFlags{}, int kRegisters>
__device__ __forceinline__ void wgmma_rs_first(float (&d)[kRegisters], const uint32_t (&a)[4],
                                               uint64_t b_descriptor) {
  constexpr int kN = 2 * kRegisters;
  constexpr bool accumulate = false;
  static_assert(is_wgmma_n<A>(kN));
  FOR_EACH_N(FIRST_RS)
  FOR_EACH_OTHER_FLOAT_N(FIRST_RS)
}

template <class A, class B, WgmmaFlags kFlags = WgmmaFlags{}, int kRegisters>
__device__ __forceinline__ void wgmma_rs(int32_t (&d)[kRegisters], const uint32_t (&a)[4],
                                         uint64_t b_descriptor, bool accumulate) {
  constexpr int kN = 2 * kRegisters;
  static_assert(is_wgmma_n<A>(kN));
  FOR_EACH_N(INTEGER_RS)
}

}  // namespace tessera::tile::ptx

#undef REGS_8
#undef REGS_16
#undef REGS_24
#undef REGS_32
#undef REGS_40
#undef REGS_48
#undef REGS_56
#undef REGS_64
#undef REGS_72
#undef REGS_80
#undef REGS_88
#undef REGS_96
#undef REGS_104
#undef REGS_112
#undef REGS_120
#undef REGS_128
#undef REGS_136
#undef REGS_144
#undef REGS_152
#undef REGS_160
#undef REGS_168
#undef REGS_176
#undef REGS_184
#undef REGS_192
#undef REGS_200
#undef REGS_208
#undef REGS_216
#undef REGS_224
#undef REGS_232
#undef REGS_240
#undef REGS_248
#undef REGS_256
#undef D_8
#undef D_16
#undef D_24
#undef D_32
#undef D_40
#undef D_48
#undef D_56
#undef D_64
#undef D_72
#undef D_80
#undef D_88
#undef D_96
#undef D_104
#undef D_112
#undef D_120
#undef D_128
#undef D_136
#undef D_144
#undef D_152
#undef D_160
#undef D_168
#undef D_176
#undef D_184
#undef D_192
#undef D_200
#undef D_208
#undef D_216
#undef D_224
#undef D_232
#undef D_240
#undef D_248
#undef D_256
#undef FOR_EACH_N
#undef FOR_EACH_OTHER_FLOAT_N
#undef WGMMA_SS
#undef WGMMA_RS
#undef FLOAT_SS
#undef FIRST_SS
#undef INTEGER_SS
#undef FIRST_INTEGER_SS
#undef FLOAT_RS
#undef FIRST_RS
#undef INTEGER_RS
