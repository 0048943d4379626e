// The scratch memory that cuBLASLt's kernels may use.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/core/device.h"

namespace tessera::kernels {

// What NVIDIA advises for Hopper.
inline constexpr size_t kCublasLtWorkspaceBytes = size_t{32} << 20;

// The workspace of a stream, for one call. Two calls that run at once must not share one, so each
// of the first kMaxKeptWorkspaces pairs of device and stream keeps its own until the process ends;
// calls on further streams take memory ordered on the stream and give it back. A graph keeps the
// address it was captured with: two graphs captured on one stream must not be replayed at once.
inline constexpr size_t kMaxKeptWorkspaces = 16;
class CublasLtWorkspace {
 public:
  CublasLtWorkspace(Device device, Stream stream);
  ~CublasLtWorkspace();
  CublasLtWorkspace(const CublasLtWorkspace&) = delete;
  CublasLtWorkspace& operator=(const CublasLtWorkspace&) = delete;

  void* data() const { return data_; }

 private:
  Stream stream_;
  void* data_ = nullptr;
  bool is_kept_ = true;
};

}  // namespace tessera::kernels
