// The GPU half of device.h in a build without CUDA: there are no GPUs, and using one is refused.
// SPDX-License-Identifier: MIT
#include "core/device_backend.h"
#include "core/text.h"
#include "tessera/core/error.h"
#include "tessera/core/memory_use.h"

namespace tessera {
namespace {

[[noreturn]] void refuse(std::string_view what, Device device) {
  fail(
      concat(what, ": ", to_string(device),
             " was asked for, and Tessera was built without CUDA; use the cpu device, or configure "
             "with -DTESSERA_CUDA=ON"));
}

}  // namespace

int num_cuda_devices() { return 0; }
std::string cuda_problem() { return {}; }

const DeviceInfo& device_info(Device device) {
  expects(!device.is_cpu(), "device_info: describes GPUs, and was asked about cpu");
  refuse("device_info", device);
}

int64_t free_device_bytes(Device device) {
  expects(!device.is_cpu(), "free_device_bytes: asks GPUs, and was asked about cpu");
  refuse("free_device_bytes", device);
}

int64_t used_device_bytes(Device device) {
  expects(!device.is_cpu(), "used_device_bytes: asks GPUs, and was asked about cpu");
  refuse("used_device_bytes", device);
}

std::string cuda_runtime_version() { return {}; }
std::string cuda_driver_version() { return {}; }

DeviceGuard::DeviceGuard(Device device) {
  if (!device.is_cpu()) refuse("DeviceGuard", device);
}
DeviceGuard::~DeviceGuard() = default;

namespace backend {

void* allocate(Device device, size_t) { refuse("allocate", device); }
void deallocate(Device, void*) noexcept {}  // nothing was ever allocated
void copy_bytes(void*, Device to_device, const void*, Device from_device, size_t, Stream) {
  refuse("copy_bytes", to_device.is_cpu() ? from_device : to_device);
}
void fill_bytes(void*, Device device, uint8_t, size_t, Stream) { refuse("fill_bytes", device); }
void synchronize(Device device, Stream) { refuse("synchronize", device); }
Stream create_stream(Device device) { refuse("OwnStream", device); }
void destroy_stream(Device, Stream) noexcept {}
void* allocate_pinned(size_t) { refuse("allocate_pinned", cuda_device()); }
void deallocate_pinned(void*) noexcept {}

Stream create_stream(Device device) { refuse("create_stream", device); }
void destroy_stream(Device, Stream) noexcept {}
void* create_event(Device device) { refuse("create_event", device); }
void destroy_event(Device, void*) noexcept {}
void record_event(Device device, void*, Stream) { refuse("record_event", device); }
void wait_for_event(Device device, void*) { refuse("wait_for_event", device); }
void begin_capture(Device device, Stream) { refuse("begin_capture", device); }
void drop_capture(Device, Stream) noexcept {}
void* end_capture(Device device, Stream) { refuse("end_capture", device); }
void launch_graph(Device device, void*, Stream) { refuse("launch_graph", device); }
void destroy_graph(Device, void*) noexcept {}

}  // namespace backend
}  // namespace tessera
