// What the CUDA runtime's answers become: errors of one call, and faults that end a device's use.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>

#include "core/cuda_check.h"
#include "core/launch_log.h"
#include "core/text.h"
#include "tessera/core/device.h"
#include "tessera/core/device_fault.h"
#include "tessera/core/error.h"

namespace tessera {
namespace {

// After these the driver answers every later call of the process with the same error.
constexpr cudaError_t kFaults[] = {
    cudaErrorECCUncorrectable,    cudaErrorNvlinkUncorrectable, cudaErrorContained,
    cudaErrorIllegalAddress,      cudaErrorLaunchTimeout,       cudaErrorAssert,
    cudaErrorHardwareStackError,  cudaErrorIllegalInstruction,  cudaErrorMisalignedAddress,
    cudaErrorInvalidAddressSpace, cudaErrorInvalidPc,           cudaErrorLaunchFailure,
    cudaErrorTensorMemoryLeak,    cudaErrorExternalDevice};

constexpr size_t kMaxDevices = 64;
std::array<std::atomic<const std::string*>, kMaxDevices> faults{};  // texts; null: none yet

// The text of a device's first fault: what comes after it is its echo.
const std::string& remember(int device, std::string text) {
  static std::atomic<const std::string*> elsewhere{nullptr};
  const auto index = static_cast<size_t>(device);
  std::atomic<const std::string*>& slot = index < kMaxDevices ? faults[index] : elsewhere;
  auto made = std::make_unique<const std::string>(std::move(text));
  const std::string* known = nullptr;
  if (slot.compare_exchange_strong(known, made.get())) known = made.release();
  return *known;
}

}  // namespace

bool is_fault(cudaError_t status) {
  return std::ranges::find(kFaults, status) != std::end(kFaults);
}

void fail_cuda(cudaError_t status, std::string_view what, std::source_location where) {
  cudaGetLastError();  // reported here; it must not surface in a later, innocent call
  if (is_fault(status)) {
    int device = 0;
    cudaGetDevice(&device);
    throw DeviceFault(remember(
        device, concat(what, ": ", to_string(cuda_device(device)), " reports ",
                       cudaGetErrorString(status), " (", cudaGetErrorName(status),
                       "), most likely raised by one of the last kernels that Tessera launched: ",
                       last_launches(), "; this process cannot use the device any more")));
  }
  fail(concat(what, ": ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ")"), where);
}

void refuse_after_fault(Device device) {
  const auto index = static_cast<size_t>(device.index);
  if (index >= kMaxDevices) return;
  const std::string* text = faults[index].load(std::memory_order_acquire);
  if (text != nullptr) [[unlikely]]
    throw DeviceFault(*text);
}

}  // namespace tessera
