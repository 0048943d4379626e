// What compiling a constraint may still cost.
// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "tessera/grammar/constraint.h"

namespace tessera::grammar {

// Refuses, with the limit and the value, what exceeds one of the limits.
class Budget {
 public:
  explicit Budget(const ConstraintLimits& limits);

  const ConstraintLimits& limits() const { return limits_; }
  void check_source(std::string_view text) const;
  void check_nesting(int64_t depth) const;
  void check_repetition(int64_t count, std::string_view what) const;
  void take_state();
  void take_memory(int64_t bytes);
  void check_time();  // cheap: looks at the clock once in 256 calls

 private:
  ConstraintLimits limits_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  int64_t num_states_ = 0;
  int64_t num_bytes_ = 0;
  uint32_t num_calls_ = 0;
};

}  // namespace tessera::grammar
