// What a call needs besides its arguments: the stream, scratch memory, and which row to run.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/core/device.h"
#include "tessera/core/tensor.h"

namespace tessera {

// Scratch memory handed out piece by piece and freed all at once, so that a step allocates nothing.
// Not movable, because contexts point to it.
class Workspace {
 public:
  Workspace(Device device, int64_t num_bytes);
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // `num_bytes` aligned to 256. Refuses if too little is left; the message says how much is needed.
  void* take(int64_t num_bytes);
  void reset() { used_bytes_ = 0; }
  int64_t used_bytes() const { return used_bytes_; }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  Tensor memory_;
  int64_t size_bytes_ = 0;
  int64_t used_bytes_ = 0;
};

struct Context {
  Stream stream = nullptr;         // GPU work is ordered on it; ignored on the CPU
  Workspace* workspace = nullptr;  // scratch for operations that say they need it
  std::string_view row = {};       // run exactly this row, for tests and benches; empty: choose
  bool batch_invariant = false;    // only rows whose result does not depend on the batch
};

}  // namespace tessera
