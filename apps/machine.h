// What the machine has, asked of the system.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/core/device.h"

namespace tessera::apps {

int64_t total_memory_bytes();      // 0 where the system does not say
int64_t available_memory_bytes();  // what could be allocated without swapping
int64_t peak_resident_bytes();     // of this process, so far

// "cpu", "cuda:0, NVIDIA H200".
std::string show_device(Device device);

// A memory that a model may be put into.
struct MemoryPlace {
  std::string name;
  int64_t bytes = 0;
};
// This machine's memory and GPUs, then two sizes of GPU for comparison.
std::vector<MemoryPlace> memory_places();

}  // namespace tessera::apps
