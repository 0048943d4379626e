// One source compiled for several instruction sets by Highway, and the choice among the builds.
// SPDX-License-Identifier: MIT
//
// Highway's own dispatch (HWY_EXPORT, HWY_DYNAMIC_DISPATCH) needs its shared library to detect the
// CPU. Detecting it here keeps Highway a header-only dependency, so that binaries run without
// libhwy.so. A file of vector code, my_kernel.cpp, looks like this; functions of Highway outside
// its headers (hwy::Abort, hwy::AllocateAligned) may not be called.
//
//   #include "cpu/my_kernel.h"      // plain declarations; no vector types
//   #include "cpu/simd_dispatch.h"
//
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "cpu/my_kernel.cpp"  // this file, once per instruction set
//   #include "hwy/foreach_target.h"  // must precede highway.h
//   #include "hwy/highway.h"
//
//   HWY_BEFORE_NAMESPACE();
//   namespace tessera::cpu::HWY_NAMESPACE {
//   namespace hn = hwy::HWY_NAMESPACE;
//   void my_kernel(const MyParams& p) { ... }       // the same name in every namespace
//   }  // namespace tessera::cpu::HWY_NAMESPACE
//   HWY_AFTER_NAMESPACE();
//
//   #if HWY_ONCE
//   namespace tessera::cpu {
//   SimdBuilds<void(const MyParams&)> my_kernel_builds() {
//     return {HWY_STATIC_DISPATCH(my_kernel), HWY_CHOOSE_AVX2(my_kernel),
//             HWY_CHOOSE_AVX3(my_kernel)};
//   }
//   }  // namespace tessera::cpu
//   #endif
//
// The caller runs my_kernel_builds().best()(params); a test walks at(level) over simd_levels().
// Loops over threads stay outside: a lambda inside the vector code is a function of its own and may
// lose the instruction set. Results may differ in bits from one instruction set to
// another, because they sum over different numbers of lanes; within one they are fixed. At the x86
// baseline Highway's PromoteTo from float16_t is wrong for infinities and NaN; core/convert.h is
// not.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace tessera::cpu {

// baseline is SSE4.2 on x86-64 and what the compiler targets elsewhere, NEON on aarch64. avx2 has
// FMA and F16C with it; avx512 is F, VL, DQ and BW.
enum class SimdLevel { baseline, avx2, avx512 };

constexpr std::string_view name(SimdLevel level) {
  constexpr std::array<std::string_view, 3> kNames = {"baseline", "avx2", "avx512"};
  return kNames[static_cast<size_t>(level)];
}

// What this CPU runs, from baseline up; never empty. The CPU is asked once. Refuses a CPU that
// does not have the baseline.
std::span<const SimdLevel> simd_levels();

// One function for each instruction set; null where the architecture does not have it.
template <class Function>
struct SimdBuilds {
  Function* baseline;
  Function* avx2;
  Function* avx512;

  // The build for one of simd_levels(), or for the best below it that was compiled.
  Function* at(SimdLevel level) const {
    if (level >= SimdLevel::avx512 && avx512 != nullptr) return avx512;
    if (level >= SimdLevel::avx2 && avx2 != nullptr) return avx2;
    return baseline;
  }
  Function* best() const { return at(simd_levels().back()); }
};

}  // namespace tessera::cpu
