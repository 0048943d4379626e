// What a GPU does, kernel by kernel, nodes of CUDA graphs included: CUPTI, loaded at run time.
// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "bench/trace.h"

namespace tessera::bench {

// Only one may be active in a process.
class DeviceTracer {
 public:
  virtual ~DeviceTracer() = default;
  // Kernels, copies and fills that are launched from now on are recorded. Graphs that were made
  // before are recorded too.
  virtual void start() = 0;
  // Waits for the device, and adds what was recorded to trace.device and trace.api.
  virtual void stop(Trace& trace) = 0;
};

// Refuses, saying what is missing, if this build or this machine has no CUPTI.
std::unique_ptr<DeviceTracer> make_device_tracer();

}  // namespace tessera::bench
