// How much memory of a device is in use.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tessera/core/device.h"

namespace tessera {

// Memory of a device that this process has allocated with allocate(): now, and the most at once
// since the process began or reset_peak_bytes was called. Any thread may ask.
struct AllocatedBytes {
  int64_t now = 0;
  int64_t peak = 0;
};
AllocatedBytes allocated_bytes(Device device);
void reset_peak_bytes(Device device);

// GPU memory in use by all processes, with contexts and the code of kernels, as the driver reports
// it. Asking takes much longer than allocated_bytes.
int64_t used_device_bytes(Device device);

// The most memory that this process has had on the host.
int64_t peak_host_bytes();

}  // namespace tessera
