// Where copies into shared memory go.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tests/emulator/launch.h"
#include "tests/emulator/memory.h"
#include "tests/emulator/warp.h"

namespace tessera::emulator {

// Calls copy_to(address, barrier) for each block that a copy goes to: the one of the address, or
// those of a multicast's mask, each with the same offsets and its own mbarrier.
template <class F>
void for_each_destination(Warp& warp, uint32_t address, uint32_t barrier, bool is_multicast,
                          uint32_t mask, const F& copy_to) {
  if (!is_multicast) return copy_to(address, barrier);
  for (uint32_t rank = 0; rank < warp.cluster().blocks.size(); ++rank) {
    if ((mask >> rank & 1) == 0) continue;
    const uint32_t window = rank * kBlockWindow;
    copy_to(window + address % kBlockWindow, window + barrier % kBlockWindow);
  }
}

}  // namespace tessera::emulator
