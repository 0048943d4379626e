// The error after which this process can no longer use a GPU.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/core/error.h"

namespace tessera {

// A GPU had a fault from which it does not recover in this process: every later call that needs it
// throws the same message, which names the last kernels launched.
class DeviceFault : public Error {
 public:
  explicit DeviceFault(std::string_view what,
                       std::source_location where = std::source_location::current())
      : Error(what, where) {}
};

}  // namespace tessera
