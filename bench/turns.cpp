// Rounds of two turns, and their medians.
// SPDX-License-Identifier: MIT
#include "bench/turns.h"

#include <algorithm>
#include <utility>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::bench {
namespace {

// One side: its batch, and microseconds of a call in every batch timed so far.
class Side {
 public:
  Side(const WarmBatch& warm, const TurnOptions& options) : warm_(warm) {
    const double wanted = options.turn_us / warm.batch_us;
    num_batches_ = options.num_batches > 0 ? options.num_batches
                                           : static_cast<int>(std::clamp(wanted, 1.0, 200.0));
  }

  // The median of the turn.
  double take_turn(bool is_counted) {
    std::vector<double> times = warm_.batch->run(num_batches_);
    for (double& time : times) time /= static_cast<double>(warm_.num_calls);
    if (is_counted) all_.insert(all_.end(), times.begin(), times.end());
    return percentile(std::move(times), 0.5);
  }

  Timing timing() const { return timing_of(warm_, all_); }

 private:
  WarmBatch warm_;
  int num_batches_ = 0;
  std::vector<double> all_;
};

}  // namespace

Turns time_in_turns(const WarmBatch& ours, const WarmBatch& peer, const TurnOptions& options) {
  if (options.num_rounds < 1) {
    fail(concat("bench: ", options.num_rounds, " rounds; at least 1 is needed"));
  }
  Side our_side(ours, options), peer_side(peer, options);
  std::vector<double> ratios;
  for (int round = -1; round < options.num_rounds; ++round) {
    const bool is_counted = round >= 0;
    const bool is_peer_first = round % 2 != 0;
    double peer_us = is_peer_first ? peer_side.take_turn(is_counted) : 0;
    const double our_us = our_side.take_turn(is_counted);
    if (!is_peer_first) peer_us = peer_side.take_turn(is_counted);
    if (is_counted) ratios.push_back(peer_us / our_us);
  }
  return {our_side.timing(), peer_side.timing(), percentile(std::move(ratios), 0.5)};
}

}  // namespace tessera::bench
