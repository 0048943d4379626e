// The launcher of the kernel for 2:4 sparse weights, and what it takes; defined in sparse.cuh.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tessera/core/context.h"
#include "tessera/ops/sparse.h"

namespace tessera::kernels {

template <class T>
void launch_gemm_2_4(const Gemm24Args& args, const Context& ctx);

// The kernel copies 16 bytes at a time and counts in 32 bits. k is a multiple of 32, so rows of
// values are aligned if the first one is.
inline bool accepts_gemm_2_4(const Gemm24Args& args) {
  const auto is_aligned = [](const TensorView& t) {
    return reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
  };
  constexpr int64_t kMaxSize = int64_t{1} << 30;
  return args.a.size(0) <= kMaxSize && args.values.size(0) <= kMaxSize && is_aligned(args.a) &&
         is_aligned(args.values) && is_aligned(args.meta) &&
         (args.a.size(0) <= 1 || args.a.stride(0) % 8 == 0);
}

}  // namespace tessera::kernels
