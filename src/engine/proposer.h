// Guesses at how a sequence goes on.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::engine {

// One for each sequence. A wrong guess costs time and never changes the output.
class Proposer {
 public:
  virtual ~Proposer() = default;

  // Takes in the tokens that are new since the last call; `tokens` is the whole sequence. Returns
  // how many of them it would have guessed from those before.
  virtual int64_t follow(std::span<const int32_t> tokens) = 0;
  // Appends up to `most` tokens that may come next; none if there is nothing to go by.
  virtual void propose(int64_t most, std::vector<int32_t>& draft) const = 0;
};

}  // namespace tessera::engine
