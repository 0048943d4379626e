// One workspace a stream, kept; beyond a bound, memory ordered on the stream.
// SPDX-License-Identifier: MIT
#include "kernels/gemm/cublaslt/workspace.h"

#include <map>
#include <mutex>
#include <utility>

#include "core/cuda_check.h"

namespace tessera::kernels {
namespace {

// Null where every kept workspace belongs to another stream.
void* kept_workspace(Device device, Stream stream) {
  // Never freed: at exit the runtime may be gone, and graphs may still name the addresses.
  static auto& kept = *new std::map<std::pair<int, Stream>, void*>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const std::pair key(device.index, stream);
  if (const auto it = kept.find(key); it != kept.end()) return it->second;
  if (kept.size() >= kMaxKeptWorkspaces) return nullptr;
  void* data = allocate(device, kCublasLtWorkspaceBytes);
  kept.emplace(key, data);
  return data;
}

}  // namespace

CublasLtWorkspace::CublasLtWorkspace(Device device, Stream stream)
    : stream_(stream), data_(kept_workspace(device, stream)) {
  if (data_ != nullptr) return;
  is_kept_ = false;
  cuda_check(cudaMallocAsync(&data_, kCublasLtWorkspaceBytes, stream), "cudaMallocAsync");
}

CublasLtWorkspace::~CublasLtWorkspace() {
  if (!is_kept_) cudaFreeAsync(data_, stream_);  // what went wrong before it has been reported
}

}  // namespace tessera::kernels
