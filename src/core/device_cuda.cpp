// The GPU half of device.h on the CUDA runtime, and what becomes of the runtime's errors.
// SPDX-License-Identifier: MIT
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "core/cuda_check.h"
#include "core/device_backend.h"
#include "core/launch_log.h"
#include "core/text.h"
#include "tessera/core/device_fault.h"
#include "tessera/core/error.h"
#include "tessera/core/memory_use.h"

namespace tessera {
namespace {

// After one of these, every later CUDA call of the process fails with the same error.
constexpr cudaError_t kFaults[] = {
    cudaErrorECCUncorrectable,    cudaErrorNvlinkUncorrectable, cudaErrorContained,
    cudaErrorIllegalAddress,      cudaErrorLaunchTimeout,       cudaErrorAssert,
    cudaErrorHardwareStackError,  cudaErrorIllegalInstruction,  cudaErrorMisalignedAddress,
    cudaErrorInvalidAddressSpace, cudaErrorInvalidPc,           cudaErrorLaunchFailure,
    cudaErrorTensorMemoryLeak,    cudaErrorExternalDevice};

constexpr size_t kMaxDevices = 64;
std::array<std::atomic<const std::string*>, kMaxDevices> faults{};  // by device; null: none

// Keeps the text of a device's first fault; errors after it are only consequences.
const std::string& remember(int device, std::string text) {
  static std::atomic<const std::string*> elsewhere{nullptr};
  const auto index = static_cast<size_t>(device);
  std::atomic<const std::string*>& slot = index < kMaxDevices ? faults[index] : elsewhere;
  auto made = std::make_unique<const std::string>(std::move(text));
  const std::string* known = nullptr;
  if (slot.compare_exchange_strong(known, made.get())) known = made.release();
  return *known;
}

struct DeviceCount {
  int count = 0;
  cudaError_t status = cudaSuccess;
};

const DeviceCount& device_count() {
  static const DeviceCount found = [] {
    DeviceCount asked;
    asked.status = cudaGetDeviceCount(&asked.count);
    if (asked.status != cudaSuccess) {
      cudaGetLastError();  // no driver or no device is not an error to report in a later call
      asked.count = 0;
    }
    return asked;
  }();
  return found;
}

int attribute(cudaDeviceAttr attr, int index) {
  int value = 0;
  cuda_check(cudaDeviceGetAttribute(&value, attr, index), "cudaDeviceGetAttribute");
  return value;
}

DeviceInfo query(int index) {
  cudaDeviceProp properties;
  cuda_check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  return {.name = properties.name,
          .compute_capability = 10 * properties.major + properties.minor,
          .num_sms = properties.multiProcessorCount,
          .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
          .l2_bytes = properties.l2CacheSize,
          .shared_bytes_per_block = static_cast<int64_t>(properties.sharedMemPerBlockOptin),
          .sm_clock_khz = attribute(cudaDevAttrClockRate, index)};
}

std::vector<DeviceInfo> query_all() {
  std::vector<DeviceInfo> infos;
  for (int index = 0; index < num_cuda_devices(); ++index) infos.push_back(query(index));
  return infos;
}

void check_index(Device device, std::string_view what) {
  if (device.index >= 0 && device.index < num_cuda_devices()) return;
  fail(concat(what, ": ", to_string(device), " was asked for; this machine has ",
              num_cuda_devices(), " CUDA devices",
              num_cuda_devices() == 0 ? " (is the driver installed?)" : ""));
}

struct DriverMemory {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
};

DriverMemory memory_of(Device device) {
  const DeviceGuard guard(device);
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  cuda_check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  return {static_cast<int64_t>(free_bytes), static_cast<int64_t>(total_bytes)};
}

std::string version_text(int version) {  // 13000: "13.0"
  return version == 0 ? std::string() : concat(version / 1000, ".", version % 1000 / 10);
}

}  // namespace

bool is_fault(cudaError_t status) {
  return std::ranges::find(kFaults, status) != std::end(kFaults);
}

void fail_cuda(cudaError_t status, std::string_view what, std::source_location where) {
  cudaGetLastError();  // clears it, so that a later call does not report it again
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

int num_cuda_devices() { return device_count().count; }

std::string cuda_problem() {
  const cudaError_t status = device_count().status;
  const std::string driver = cuda_driver_version();
  if (status == cudaSuccess || status == cudaErrorNoDevice || driver.empty()) return {};
  if (status == cudaErrorInsufficientDriver) {
    const std::string runtime = cuda_runtime_version();
    return concat("the NVIDIA driver supports CUDA up to ", driver, ", and this build uses CUDA ",
                  runtime, ": install a driver that supports CUDA ", runtime);
  }
  return concat("the NVIDIA driver, which supports CUDA up to ", driver,
                ", shows no device: ", cudaGetErrorString(status));
}

const DeviceInfo& device_info(Device device) {
  expects(!device.is_cpu(), "device_info: describes GPUs, and was asked about cpu");
  check_index(device, "device_info");
  static const std::vector<DeviceInfo> infos = query_all();
  return infos[static_cast<size_t>(device.index)];
}

int64_t free_device_bytes(Device device) {
  expects(!device.is_cpu(), "free_device_bytes: asks GPUs, and was asked about cpu");
  return memory_of(device).free_bytes;
}

int64_t used_device_bytes(Device device) {
  expects(!device.is_cpu(), "used_device_bytes: asks GPUs, and was asked about cpu");
  const DriverMemory memory = memory_of(device);
  return memory.total_bytes - memory.free_bytes;
}

std::string cuda_runtime_version() {
  int version = 0;
  cuda_check(cudaRuntimeGetVersion(&version), "cudaRuntimeGetVersion");
  return version_text(version);
}

std::string cuda_driver_version() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess) {
    cudaGetLastError();
    return {};
  }
  return version_text(version);
}

DeviceGuard::DeviceGuard(Device device) {
  if (device.is_cpu()) return;
  check_index(device, "DeviceGuard");
  refuse_after_fault(device);
  int current = 0;
  cuda_check(cudaGetDevice(&current), "cudaGetDevice");
  if (current == device.index) return;
  cuda_check(cudaSetDevice(device.index), "cudaSetDevice");
  previous_ = current;
}

DeviceGuard::~DeviceGuard() {
  if (previous_ >= 0) cudaSetDevice(previous_);  // was current before, so this cannot fail
}

namespace backend {

void* allocate(Device device, size_t num_bytes) {
  const DeviceGuard guard(device);
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, num_bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    const DriverMemory memory = memory_of(device);
    throw OutOfMemory(concat("allocate: no room for ", num_bytes, " bytes on ", to_string(device),
                             "; ", memory.free_bytes, " of ", memory.total_bytes, " are free"));
  }
  cuda_check(status, "cudaMalloc");
  return data;
}

void deallocate(Device, void* data) noexcept {
  // A static tensor may outlive the CUDA runtime; then the failure does not matter.
  if (cudaFree(data) != cudaSuccess) cudaGetLastError();
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t num_bytes,
                Stream stream) {
  const DeviceGuard guard(to_device.is_cpu() ? from_device : to_device);
  if (!to_device.is_cpu() && !from_device.is_cpu() && to_device != from_device) {
    cuda_check(cudaMemcpyPeerAsync(to, to_device.index, from, from_device.index, num_bytes, stream),
               "cudaMemcpyPeerAsync");
    return;
  }
  const cudaMemcpyKind kind = to_device.is_cpu()     ? cudaMemcpyDeviceToHost
                              : from_device.is_cpu() ? cudaMemcpyHostToDevice
                                                     : cudaMemcpyDeviceToDevice;
  cuda_check(cudaMemcpyAsync(to, from, num_bytes, kind, stream), "cudaMemcpyAsync");
}

void fill_bytes(void* data, Device device, uint8_t value, size_t num_bytes, Stream stream) {
  const DeviceGuard guard(device);
  cuda_check(cudaMemsetAsync(data, value, num_bytes, stream), "cudaMemsetAsync");
}

void synchronize(Device device, Stream stream) {
  const DeviceGuard guard(device);
  cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

Stream create_stream(Device device) {
  const DeviceGuard guard(device);
  cudaStream_t stream = nullptr;
  cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  return stream;
}

// Waits, so that memory which the stream's work uses may be freed afterwards.
void destroy_stream(Device, Stream stream) noexcept {
  if (cudaStreamSynchronize(stream) != cudaSuccess) cudaGetLastError();
  if (cudaStreamDestroy(stream) != cudaSuccess) cudaGetLastError();
}

void* allocate_pinned(size_t num_bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaHostAlloc(&data, num_bytes, cudaHostAllocPortable);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw OutOfMemory(
        concat("allocate_pinned: the system pins no ", num_bytes,
               " bytes more; other programs, or a limit on locked memory, may have taken them"));
  }
  cuda_check(status, "cudaHostAlloc");
  return data;
}

void deallocate_pinned(void* data) noexcept {
  if (cudaFreeHost(data) != cudaSuccess) cudaGetLastError();  // as in deallocate
}

}  // namespace backend
}  // namespace tessera
