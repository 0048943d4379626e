// The CUDA half of the timer in a build without CUDA.
// SPDX-License-Identifier: MIT
#include "bench/timer.h"
#include "tessera/core/error.h"

namespace tessera::bench {

std::unique_ptr<Batch> make_cuda_batch(Device, int64_t, const Call&) {
  fail("bench: this build has no CUDA; configure with -DTESSERA_CUDA=ON to time a GPU");
}

}  // namespace tessera::bench
