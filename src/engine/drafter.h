// How much is guessed about a sequence: as much as its guesses have been worth so far.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/proposer.h"

namespace tessera::engine {

// A sequence's drafts. A draft of k tokens is verified by k more rows of one step, and rows whose
// token is rejected are wasted.
//
// Length  Doubles when a whole draft is accepted, and falls to what was accepted otherwise.
// Credit  Wasted rows are paid for: a few are free, and each token that the proposer foresaw, in a
//         draft or not, allows for one more. Without any, there is one for 64 tokens. So a text
//         that cannot be foreseen is hardly slower, and one that begins to repeat itself is noticed
//         at no cost.
class Drafter {
 public:
  // `prompt` is taken in, and says nothing about how well the rest can be foreseen.
  Drafter(std::unique_ptr<Proposer> proposer, int64_t max_draft, std::span<const int32_t> prompt);

  // Replaces `draft` with up to `most` tokens that may follow `tokens`, the whole sequence.
  void propose(std::span<const int32_t> tokens, int64_t most, std::vector<int32_t>& draft);
  // The last draft has been verified, as far as it was used.
  void learn(int64_t num_drafted, int64_t num_accepted);

 private:
  std::unique_ptr<Proposer> proposer_;
  int64_t max_draft_;
  int64_t num_followed_;  // tokens
  int64_t length_;
  int64_t credit_;  // in 64ths of a row
};

}  // namespace tessera::engine
