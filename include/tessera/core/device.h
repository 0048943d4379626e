// Where memory lives and kernels run, and what a device can do.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

struct CUstream_st;

namespace tessera {

using Stream = CUstream_st*;  // a cudaStream_t; null is the default stream

enum class DeviceKind : uint8_t { cpu, cuda };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;

  bool operator==(const Device&) const = default;
  bool is_cpu() const { return kind == DeviceKind::cpu; }
};

constexpr Device cpu_device() { return {}; }
constexpr Device cuda_device(int index = 0) { return {DeviceKind::cuda, index}; }
std::string to_string(Device device);  // "cpu", "cuda:0"

// What the row tables and `tessera doctor` need to know about a GPU.
struct DeviceInfo {
  std::string name;
  int compute_capability = 0;  // 10 * major + minor: 90 for the H200
  int num_sms = 0;
  int64_t memory_bytes = 0;
  int64_t l2_bytes = 0;
  int64_t shared_bytes_per_block = 0;  // the opt-in limit
  int sm_clock_khz = 0;
};

// 0 if there is no GPU or no driver, or the build has no CUDA.
int num_cuda_devices();
// Why an installed driver shows no device, for example because it is too old for this build's CUDA;
// empty if there is a device, or no driver, or the build has no CUDA.
std::string cuda_problem();
// Queried once per device, then cached.
const DeviceInfo& device_info(Device device);

// Free GPU memory, as the driver reports it.
int64_t free_device_bytes(Device device);

// "13.0": the runtime linked in, and what the driver supports; empty if there is none.
std::string cuda_runtime_version();
std::string cuda_driver_version();

// Memory on the CPU, aligned to at least 64 bytes, or on a GPU. allocate(0) may be null.
void* allocate(Device device, size_t num_bytes);
// The same, filled with zeros. Large CPU allocations take physical memory only as they are written.
void* allocate_zeros(Device device, size_t num_bytes);
void deallocate(Device device, void* data) noexcept;
// Between CPU buffers the copy is complete on return. With a GPU it is ordered on `stream`, which
// for two GPUs is one of the destination.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t num_bytes,
                Stream stream = nullptr);
void fill_bytes(void* data, Device device, uint8_t value, size_t num_bytes,
                Stream stream = nullptr);
// Waits for all work on `stream`, and throws if it failed.
void synchronize(Device device, Stream stream = nullptr);

// Makes a GPU the current device for a scope, then restores the previous one. No effect for the
// CPU.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = -1;  // -1: nothing to restore
};

}  // namespace tessera
