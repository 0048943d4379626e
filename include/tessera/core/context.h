// What a call needs beside its arguments: where it runs and what it may use.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/core/device.h"
#include "tessera/core/tensor.h"

namespace tessera {

// Scratch memory handed out in order and taken back all at once, so that a step allocates nothing.
// Contexts point at it, so it stays where it was made.
class Workspace {
 public:
  Workspace(Device device, int64_t num_bytes);
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // `num_bytes` aligned to 256. Refuses when the rest is too small, saying how much is missing.
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
  bool batch_invariant = false;    // only rows whose result does not depend on batch mates
};

}  // namespace tessera
