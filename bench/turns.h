// Two rows timed in turns, so that both run on a GPU in the same state: hot, and at its power
// limit.
// SPDX-License-Identifier: MIT
#pragma once

#include "bench/timer.h"

namespace tessera::bench {

struct TurnOptions {
  int num_rounds = 7;     // a turn each
  double turn_us = 30e3;  // a turn replays a batch for about this long, at least once
  int num_batches = 0;    // replays in a turn; 0: enough for `turn_us`
};

struct Turns {
  Timing ours;  // over the batches of all turns
  Timing peer;
  double ratio = 0;  // median over the rounds of the peer's time over ours; above 1: ours is faster
};

// The first round is not counted. The two begin a round alternately, so that heat or a lowered
// clock left by one affects both alike.
Turns time_in_turns(const WarmBatch& ours, const WarmBatch& peer, const TurnOptions& options);

}  // namespace tessera::bench
