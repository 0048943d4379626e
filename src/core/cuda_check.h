// The CUDA runtime's answer, always looked at.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>
#include <string_view>

#include "tessera/core/device.h"

namespace tessera {

// Whether the driver will answer every later call like this: a kernel that read where nothing is,
// an assertion on the device, memory that broke.
bool is_fault(cudaError_t status);
// Refuses a device that has had such a fault, with the text of the fault.
void refuse_after_fault(Device device);

// Throws Error, or DeviceFault with the names of the kernels launched last, and remembers it.
[[noreturn]] void fail_cuda(cudaError_t status, std::string_view what, std::source_location where);

inline void cuda_check(cudaError_t status, std::string_view what,
                       std::source_location where = std::source_location::current()) {
  if (status != cudaSuccess) [[unlikely]]
    fail_cuda(status, what, where);
}

}  // namespace tessera
