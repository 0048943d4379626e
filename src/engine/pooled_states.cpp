// Sums and means of hidden states.
// SPDX-License-Identifier: MIT
#include "engine/pooled_states.h"

namespace tessera::engine {

void PooledStates::add(std::span<const float> states, int64_t num_states) {
  if (num_states == 0) return;
  const size_t hidden = states.size() / static_cast<size_t>(num_states);
  sum_.resize(hidden, 0.0);
  for (size_t i = 0; i < states.size(); i += hidden) {
    for (size_t j = 0; j < hidden; ++j) sum_[j] += double{states[i + j]};
  }
  num_states_ += num_states;
}

std::vector<float> PooledStates::mean() const {
  std::vector<float> mean;
  mean.reserve(sum_.size());
  for (const double sum : sum_) {
    mean.push_back(static_cast<float>(sum / static_cast<double>(num_states_)));
  }
  return mean;
}

}  // namespace tessera::engine
