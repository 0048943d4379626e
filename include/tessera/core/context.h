// What a call needs besides its arguments: the stream, and which row to run.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/device.h"
#include "tessera/core/tensor.h"

namespace tessera {

// Answers "would these calls run here?" without running them: under Context::dry_run a call checks
// its arguments and looks for a kernel as always, then returns. No address is read or written, so
// views may point anywhere. A call that would have been refused leaves its error message here.
struct DryRun {
  std::vector<std::string> refusals;
};

// Sees, under Context::product_inputs, the left factor of every matrix product before it is
// computed: quantisers collect what linear layers read.
class ProductInputs {
 public:
  virtual ~ProductInputs() = default;
  // `b` is the values of the weight. Returns what is multiplied: `a`, or a tensor of its type and
  // shape in its place.
  virtual TensorView see(const TensorView& a, const TensorView& b) = 0;
};

struct Context {
  Stream stream = nullptr;       // GPU work is ordered on it; ignored on the CPU
  std::string_view row = {};     // run exactly this row, for tests and benches; empty: choose
  bool batch_invariant = false;  // only rows whose result does not depend on the batch
  DryRun* dry_run = nullptr;     // if given, calls are only checked
  ProductInputs* product_inputs = nullptr;  // if given, gemm shows its operands
};

}  // namespace tessera
