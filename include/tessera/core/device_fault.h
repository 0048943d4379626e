// The error after which a GPU is lost to the process.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/core/error.h"

namespace tessera {

// A GPU has had a fault from which it does not recover in this process: every later call that needs
// it is refused with the same text. The message names the kernels launched last.
class DeviceFault : public Error {
 public:
  explicit DeviceFault(std::string_view what,
                       std::source_location where = std::source_location::current())
      : Error(what, where) {}
};

}  // namespace tessera
