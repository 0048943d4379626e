// Rows distributed over threads, with scratch memory for each thread. A row is always computed by
// one thread in a fixed order, so results do not depend on the number of threads.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/parallel.h"

namespace tessera::cpu {

// At least `count` floats that belong to this thread. They are kept from call to call, so that
// repeated calls of one size allocate nothing.
inline float* thread_scratch(int64_t count) {
  thread_local std::vector<float> scratch;
  if (scratch.size() < static_cast<size_t>(count)) scratch.resize(static_cast<size_t>(count));
  return scratch.data();
}

// Calls body(row, scratch) for every row; scratch is `scratch_floats` floats of this thread.
template <class Body>
void for_each_row(int64_t num_rows, int64_t num_cols, int64_t scratch_floats, Body&& body) {
  parallel_shares(num_rows, items_in_run(num_rows, num_cols), [&](Share& share) {
    float* scratch = thread_scratch(scratch_floats);
    while (share.next()) {
      for (int64_t row = share.begin(); row < share.end(); ++row) body(row, scratch);
    }
  });
}

}  // namespace tessera::cpu
