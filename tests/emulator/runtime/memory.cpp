// Allocation, copies and fills.
// SPDX-License-Identifier: MIT
#include "tests/emulator/memory.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

#include "tests/emulator/runtime/device.h"
#include "tests/emulator/runtime/state.h"

namespace tessera::emulator {
namespace {

constexpr size_t kAlign = 512;
constexpr int kUnwritten = 0xcb;               // so that reading before writing shows
constexpr size_t kLargestPoisoned = 64 << 20;  // a larger block is left to the system, unused

cudaError_t allocate(void** memory, size_t bytes) {
  *memory = nullptr;
  if (has_faulted()) return finish();
  if (bytes == 0) return finish();
  if (bytes > kDeviceBytes) return finish(cudaErrorMemoryAllocation);
  void* const block = std::aligned_alloc(kAlign, (bytes / kAlign + 1) * kAlign);
  if (block == nullptr) return finish(cudaErrorMemoryAllocation);
  if (bytes <= kLargestPoisoned) std::memset(block, kUnwritten, bytes);
  allocations().add(block, bytes);
  *memory = block;
  return finish();
}

cudaError_t release(void* memory) {
  if (memory == nullptr) return finish();
  if (!allocations().remove(memory)) return finish(cudaErrorInvalidValue);
  std::free(memory);
  return finish();
}

// A length of 0 may come with null pointers.
void copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memmove(to, from, bytes);
}

void fill(void* memory, int value, size_t bytes) {
  if (bytes > 0) std::memset(memory, value, bytes);
}

}  // namespace
}  // namespace tessera::emulator

using namespace tessera::emulator;  // NOLINT: the functions of the runtime have C linkage

extern "C" {

cudaError_t cudaMalloc(void** memory, size_t bytes) { return allocate(memory, bytes); }
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) { return allocate(memory, bytes); }
cudaError_t cudaFree(void* memory) { return release(memory); }
cudaError_t cudaFreeHost(void* memory) { return release(memory); }

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  const size_t used = allocations().total_bytes();
  *total_bytes = kDeviceBytes;
  *free_bytes = used < kDeviceBytes ? kDeviceBytes - used : 0;
  return finish();
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return submit(stream, [=] { copy(to, from, bytes); });
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  if (!has_faulted()) copy(to, from, bytes);
  return finish();
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes,
                                cudaStream_t stream) {
  return submit(stream, [=] { copy(to, from, bytes); });
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  return submit(stream, [=] { fill(memory, value, bytes); });
}

cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  if (!has_faulted()) fill(memory, value, bytes);
  return finish();
}

}  // extern "C"
