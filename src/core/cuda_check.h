// The CUDA runtime's answer, always looked at.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>
#include <string_view>

namespace tessera {

[[noreturn]] void fail_cuda(cudaError_t status, std::string_view what, std::source_location where);

inline void cuda_check(cudaError_t status, std::string_view what,
                       std::source_location where = std::source_location::current()) {
  if (status != cudaSuccess) [[unlikely]]
    fail_cuda(status, what, where);
}

}  // namespace tessera
