// Checks the status of every CUDA runtime call.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>
#include <string_view>

#include "tessera/core/device.h"

namespace tessera {

// Whether every later CUDA call of the process will fail with this error too, as after an illegal
// address, a device assertion or a memory error.
bool is_fault(cudaError_t status);
// Throws DeviceFault if the device has had such a fault, with the message of the fault.
void refuse_after_fault(Device device);

// Throws Error. After a fault it throws DeviceFault, whose message names the last kernels, and
// remembers it for refuse_after_fault.
[[noreturn]] void fail_cuda(cudaError_t status, std::string_view what, std::source_location where);

inline void cuda_check(cudaError_t status, std::string_view what,
                       std::source_location where = std::source_location::current()) {
  if (status != cudaSuccess) [[unlikely]]
    fail_cuda(status, what, where);
}

}  // namespace tessera
