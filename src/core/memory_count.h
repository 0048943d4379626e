// How much memory of each device this process holds, for allocated_bytes.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

#include "tessera/core/memory_use.h"

namespace tessera {

// For every allocation and before every deallocation. Counting GPU memory may itself run out of
// host memory: std::bad_alloc.
void count_allocated(Device device, void* data, size_t num_bytes);
void count_freed(Device device, void* data) noexcept;

}  // namespace tessera
