// Rows shared out over threads. A row is always computed by one thread in a fixed order, so results
// do not depend on how many there are.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::cpu {

// Waking the threads costs some microseconds: about this many elements of work.
inline constexpr int64_t kParallelElements = 16 * 1024;

// Calls body(item) for every item in [0, num_items).
template <class Body>
void parallel_for(int64_t num_items, int64_t elements_per_item, Body&& body) {
  if (num_items <= 1 || num_items * elements_per_item <= kParallelElements) {
    for (int64_t item = 0; item < num_items; ++item) body(item);
    return;
  }
#pragma omp parallel for schedule(static)
  for (int64_t item = 0; item < num_items; ++item) body(item);
}

// At least `count` floats of this thread's own. They are kept from call to call, so that a step of
// the same size as the one before allocates nothing.
inline float* thread_scratch(int64_t count) {
  thread_local std::vector<float> scratch;
  if (scratch.size() < static_cast<size_t>(count)) scratch.resize(static_cast<size_t>(count));
  return scratch.data();
}

// Calls body(row, scratch) for every row; scratch is `scratch_floats` floats of the thread's own.
template <class Body>
void for_each_row(int64_t num_rows, int64_t num_cols, int64_t scratch_floats, Body&& body) {
  if (num_rows <= 1 || num_rows * num_cols <= kParallelElements) {
    float* scratch = thread_scratch(scratch_floats);
    for (int64_t row = 0; row < num_rows; ++row) body(row, scratch);
    return;
  }
#pragma omp parallel
  {
    float* scratch = thread_scratch(scratch_floats);
#pragma omp for schedule(static)
    for (int64_t row = 0; row < num_rows; ++row) body(row, scratch);
  }
}

}  // namespace tessera::cpu
