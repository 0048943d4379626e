// The compiled form of every constraint: automata over bytes, one for each rule, that call each
// other.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "grammar/rules.h"

namespace tessera::grammar {

// A rule's automaton is deterministic in bytes and in calls: at most one edge takes a byte, at most
// one call names a rule. Which of them to take is left to grammar/machine.h. From every state the
// end of its rule can be reached, and no rule can call itself before it has taken a byte.
class Automaton {
 public:
  struct Edge {
    uint8_t first = 0;
    uint8_t last = 0;
    int32_t target = 0;
  };
  struct Call {
    int32_t start = 0;   // first state of the rule that is called
    int32_t target = 0;  // where to go on after it
  };
  struct State {
    int32_t first_edge = 0;
    int32_t first_call = 0;
    int32_t need = 0;  // calls within calls that it takes at least to reach the end of the rule
    bool accepts = false;
  };

  int32_t root() const { return root_; }  // the first state of the rule that is generated
  int64_t num_states() const { return std::ssize(states_) - 1; }
  int64_t num_bytes() const;
  int32_t max_depth() const { return max_depth_; }  // calls within calls
  int32_t max_need() const { return max_need_; }

  bool accepts(int32_t state) const { return at(state).accepts; }
  int32_t need(int32_t state) const { return at(state).need; }
  std::span<const Edge> edges(int32_t state) const {
    return std::span(edges_).subspan(
        static_cast<size_t>(at(state).first_edge),
        static_cast<size_t>(at(state + 1).first_edge) - static_cast<size_t>(at(state).first_edge));
  }
  std::span<const Call> calls(int32_t state) const {
    return std::span(calls_).subspan(
        static_cast<size_t>(at(state).first_call),
        static_cast<size_t>(at(state + 1).first_call) - static_cast<size_t>(at(state).first_call));
  }
  // Accepts, and nothing can follow within the rule.
  bool is_end(int32_t state) const {
    return accepts(state) && edges(state).empty() && calls(state).empty();
  }
  // The state after a byte; -1: none.
  int32_t after(int32_t state, uint8_t byte) const;

 private:
  friend Automaton build_automaton(const Rules& rules, RuleId root);
  const State& at(int32_t state) const { return states_[static_cast<size_t>(state)]; }

  std::vector<State> states_;  // and one more, which ends the lists of the last
  std::vector<Edge> edges_;    // of each state in ascending order
  std::vector<Call> calls_;
  int32_t root_ = 0;
  int32_t max_depth_ = 0;
  int32_t max_need_ = 0;
};

// Refuses rules that match nothing, that call themselves before they take a byte, or that need more
// than the budget's states or depth.
Automaton build_automaton(const Rules& rules, RuleId root);

}  // namespace tessera::grammar
