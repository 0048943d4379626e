// Allocations that fail on demand: operator new, which failing_allocator.cpp replaces, and
// aligned_alloc, which tensors use.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace tessera::testing {

// Makes the `countdown`-th allocation from now on fail, once, on whatever thread it happens.
void fail_allocation(int64_t countdown);
// Ends the failures. Returns whether one has happened.
bool stop_failing();

// Allocations that have not been freed.
int64_t num_live_allocations();

}  // namespace tessera::testing
