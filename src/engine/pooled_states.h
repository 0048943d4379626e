// Hidden states of a prompt, pooled to one vector as they arrive.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::engine {

// Adds states in the order of their tokens and in double precision, so that the result does not
// depend on how the prompt was cut into chunks.
class PooledStates {
 public:
  // [num_states, hidden], of the tokens that follow those added before.
  void add(std::span<const float> states, int64_t num_states);
  int64_t num_states() const { return num_states_; }
  std::vector<float> mean() const;  // [hidden]; empty if nothing was added

 private:
  std::vector<double> sum_;  // [hidden]
  int64_t num_states_ = 0;
};

}  // namespace tessera::engine
