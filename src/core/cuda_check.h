// The CUDA runtime's answer, always looked at.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "tessera/core/error.h"

namespace tessera {

[[noreturn]] void fail_cuda(cudaError_t status, std::string_view what, SourceLocation where);

inline void cuda_check(cudaError_t status, std::string_view what,
                       SourceLocation where = SourceLocation::current()) {
  if (status != cudaSuccess) [[unlikely]]
    fail_cuda(status, what, where);
}

}  // namespace tessera
