// What a call costs the calling thread, not counting the GPU's time.
// SPDX-License-Identifier: MIT
#pragma once

#include "bench/timer.h"

namespace tessera::bench {

// How many calls are made between two waits: 64, which the launch queue holds with room to spare,
// or fewer where `call_us`, one call's time on the device, would make the waits long.
int64_t num_host_calls(double call_us);

// Microseconds of the calling thread per call: the median over a few batches of num_host_calls
// calls on the default stream, which is idle when each batch begins. The sets are walked in turn.
double measure_host_us(Device device, int64_t num_sets, const Call& call, double call_us);

}  // namespace tessera::bench
