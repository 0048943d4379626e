// Which of the compiled instruction sets this CPU runs.
// SPDX-License-Identifier: MIT
#include "cpu/simd_dispatch.h"

#include "tessera/core/error.h"

namespace tessera::cpu {
namespace {

// How many of the levels, from baseline up, this CPU has. The compiler's test covers the operating
// system too, which must save the wide registers. F16C is not asked for, because clang 16 does not
// know the word: it came a generation before AVX2, and no CPU has the later without the earlier.
size_t count_levels() {
#if defined(__x86_64__)
  expects(__builtin_cpu_supports("sse4.2"),
          "this CPU has no SSE4.2, which the CPU operations need; use a CPU made after 2010");
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("bmi2");
  if (!has_avx2) return 1;
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  return has_avx512 ? 3 : 2;
#else
  return 1;
#endif
}

}  // namespace

std::span<const SimdLevel> simd_levels() {
  static constexpr std::array kLevels = {SimdLevel::baseline, SimdLevel::avx2, SimdLevel::avx512};
  static const size_t num_levels = count_levels();
  return {kLevels.data(), num_levels};
}

}  // namespace tessera::cpu
