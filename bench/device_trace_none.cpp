// The tracer of a build without CUPTI's header.
// SPDX-License-Identifier: MIT
#include "bench/device_trace.h"
#include "tessera/core/error.h"

namespace tessera::bench {

std::unique_ptr<DeviceTracer> make_device_tracer() {
  fail(
      "this build cannot trace a GPU: it was made without CUDA, or its toolkit has no cupti.h "
      "(package cuda-cupti-dev); install it and configure again");
}

}  // namespace tessera::bench
