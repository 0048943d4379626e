// Whether a step can run here, and the message for an unknown name.
// SPDX-License-Identifier: MIT
#include "ladder/steps.h"

#include "core/text.h"
#include "tessera/core/device.h"
#include "tessera/core/error.h"

namespace tessera::ladder {

std::string why_missing(Library library, bool (*is_present)()) {
  if (num_cuda_devices() == 0) return "no CUDA device on this machine";
  const DeviceInfo& info = device_info(cuda_device());
  if (!runs_on(library, info.compute_capability)) {
    return concat("it is not built for compute capability ", info.compute_capability);
  }
  if (is_present != nullptr && !is_present()) return "the library has no row of its own for it";
  return {};
}

void fail_unknown_step(std::string_view name, const std::string& names) {
  fail(concat("ladder: there is no step ", name, "; there are ", names));
}

}  // namespace tessera::ladder
