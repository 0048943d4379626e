// One rule as a deterministic automaton over bytes and calls.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "grammar/rules.h"

namespace tessera::grammar {

struct RuleState {
  struct Edge {
    uint8_t first = 0;
    uint8_t last = 0;
    int32_t target = 0;  // within the rule
  };
  struct Call {
    RuleId rule = 0;
    int32_t target = 0;
  };
  std::vector<Edge> edges = {};  // ascending, apart
  std::vector<Call> calls = {};  // by rule
  bool accepts = false;
};

// The states of a rule's body; the first is its start. Time and memory are the budget's.
std::vector<RuleState> determinize(const Rules& rules, ExprId body);

}  // namespace tessera::grammar
