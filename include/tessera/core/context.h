// What a call needs besides its arguments: the stream, and which row to run.
// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

#include "tessera/core/device.h"
#include "tessera/core/tensor.h"

namespace tessera {

struct Context {
  Stream stream = nullptr;       // GPU work is ordered on it; ignored on the CPU
  std::string_view row = {};     // run exactly this row, for tests and benches; empty: choose
  bool batch_invariant = false;  // only rows whose result does not depend on the batch
};

}  // namespace tessera
