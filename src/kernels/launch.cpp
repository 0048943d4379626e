// Launches kernels: attributes, limits, and the message if one fails.
// SPDX-License-Identifier: MIT
#include "kernels/launch.h"

#include <array>
#include <atomic>

#include "core/cuda_check.h"
#include "core/launch_log.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::kernels {
namespace {

// A block may use 48 KB without an attribute; 16 KB of them are left for static shared memory.
constexpr size_t kSharedWithoutOptIn = 32 * 1024;

const char* ask_name(const void* kernel) {
  const char* name = "unknown_kernel";
  if (cudaFuncGetName(&name, kernel) != cudaSuccess) cudaGetLastError();
  return name;
}

// The name of a kernel. The runtime is asked at the first launch, because after a fault it may not
// answer, and because asking takes time. Entries are only added.
const char* name_of(const void* kernel) {
  struct Entry {
    std::atomic<const void*> kernel{nullptr};
    std::atomic<const char*> name{nullptr};
  };
  constexpr size_t kEntries = 4096, kTries = 16;
  static std::array<Entry, kEntries> entries;
  const size_t first = reinterpret_cast<uintptr_t>(kernel) / 16;
  for (size_t i = 0; i < kTries; ++i) {
    Entry& entry = entries[(first + i) % kEntries];
    const void* found = entry.kernel.load(std::memory_order_relaxed);
    if (found == nullptr && entry.kernel.compare_exchange_strong(found, kernel)) {
      entry.name.store(ask_name(kernel), std::memory_order_release);
      found = kernel;
    }
    if (found != kernel) continue;
    const char* name = entry.name.load(std::memory_order_acquire);
    return name != nullptr ? name : ask_name(kernel);  // null: another thread is asking now
  }
  return ask_name(kernel);
}

[[noreturn]] void fail_launch(const void* kernel, const LaunchShape& shape, cudaError_t status) {
  const char* name = name_of(kernel);
  if (is_fault(status)) cuda_check(status, "cudaLaunchKernelExC");
  cudaGetLastError();  // the failure is reported here; it must not surface in a later call
  fail(concat("launch of ", name, " failed: ", cudaGetErrorString(status), "; grid ", shape.grid.x,
              "x", shape.grid.y, "x", shape.grid.z, ", block ", shape.block.x, "x", shape.block.y,
              "x", shape.block.z, ", ", shape.shared_bytes, " bytes of dynamic shared memory"));
}

// Allows a kernel all the shared memory a block may have. The last kernels are remembered, because
// the call to the runtime takes longer than a launch.
void allow_shared(const void* kernel, const LaunchShape& shape) {
  static std::atomic<uintptr_t> known[256];
  int device = 0;
  cudaGetDevice(&device);
  const uintptr_t key = reinterpret_cast<uintptr_t>(kernel) + static_cast<uintptr_t>(device);
  std::atomic<uintptr_t>& slot = known[key / 16 % 256];
  if (slot.load(std::memory_order_relaxed) == key) return;
  cudaFuncAttributes attributes{};
  int most = 0;
  cudaError_t status = cudaFuncGetAttributes(&attributes, kernel);
  if (status == cudaSuccess) {
    status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (status == cudaSuccess) {
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  most - static_cast<int>(attributes.sharedSizeBytes));
  }
  if (status != cudaSuccess) fail_launch(kernel, shape, status);
  slot.store(key, std::memory_order_relaxed);
}

}  // namespace

void launch_raw(const void* kernel, const LaunchShape& shape, void** params, const Context& ctx) {
  if (shape.shared_bytes > kSharedWithoutOptIn) allow_shared(kernel, shape);
  cudaLaunchAttribute attributes[2];
  unsigned num_attributes = 0;
  if (shape.overlaps_previous) {
    attributes[num_attributes].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[num_attributes++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[num_attributes].id = cudaLaunchAttributeClusterDimension;
    attributes[num_attributes++].val.clusterDim = {shape.cluster, 1, 1};
  }
  const cudaLaunchConfig_t config{.gridDim = shape.grid,
                                  .blockDim = shape.block,
                                  .dynamicSmemBytes = shape.shared_bytes,
                                  .stream = ctx.stream,
                                  .attrs = attributes,
                                  .numAttrs = num_attributes};
  const cudaError_t status = cudaLaunchKernelExC(&config, kernel, params);
  if (status != cudaSuccess) fail_launch(kernel, shape, status);
  log_launch(name_of(kernel));
}

}  // namespace tessera::kernels
