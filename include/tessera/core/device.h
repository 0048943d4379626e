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

// 0 where there is no GPU, no driver, or the build has no CUDA.
int num_cuda_devices();
// Why a driver that is installed gives no device, such as one older than this build's CUDA, with
// the versions; empty where there is a device, no driver, or a build without CUDA.
std::string cuda_problem();
// Asked of the driver once per device, then remembered.
const DeviceInfo& device_info(Device device);

// Of a GPU's memory what nobody has taken, asked of the driver now.
int64_t free_device_bytes(Device device);

// "13.0" for the runtime linked in and for the driver found; empty where there is none.
std::string cuda_runtime_version();
std::string cuda_driver_version();

// Memory on either kind of device; CPU memory is aligned to 64 bytes. allocate(0) may be null.
void* allocate(Device device, size_t num_bytes);
// The same, all zeros. Large CPU memory becomes resident only where it is written.
void* allocate_zeros(Device device, size_t num_bytes);
void deallocate(Device device, void* data) noexcept;
// Ordered on `stream` where a GPU takes part, and complete on return only between CPU buffers. From
// one GPU to another the stream is the destination's.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t num_bytes,
                Stream stream = nullptr);
void fill_bytes(void* data, Device device, uint8_t value, size_t num_bytes,
                Stream stream = nullptr);
// Waits for all work on `stream`, and reports what went wrong in it.
void synchronize(Device device, Stream stream = nullptr);

// Makes a device current for a scope, and restores the one before. Nothing for the CPU.
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
