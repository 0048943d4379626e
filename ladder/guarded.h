// An output on the GPU that starts as NaN and lies between guards.
// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>

#include "tessera/core/tensor.h"

namespace tessera::ladder {

class Guarded {
 public:
  Guarded(DType dtype, std::span<const int64_t> shape);

  // Where the step writes.
  void* data() const;

  // What was written, brought to the host once the GPU is done.
  struct Result {
    Tensor memory;       // owns what `out` shows
    TensorView out;      // of the shape asked for
    std::string damage;  // which guard was written; empty: none
  };
  Result fetch() const;

 private:
  Tensor memory_;
  TensorView shape_;  // of the output; no data
};

}  // namespace tessera::ladder
