// How a block finds out that it is the last of several to finish.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace tessera::kernels {

// Whether this block is the last of `num_blocks` to call this; the ticket is 0 again afterwards.
// The last block may read what the others wrote, bypassing L1.
__device__ inline bool is_last_block(uint32_t* ticket, int num_blocks, bool& shared_answer) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    const auto last = static_cast<uint32_t>(num_blocks - 1);
    shared_answer = atomicInc(ticket, last) == last;
  }
  __syncthreads();
  __threadfence();
  return shared_answer;
}

}  // namespace tessera::kernels
