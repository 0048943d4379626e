// Rules put together: dead ends removed, endless recursion refused.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <limits>

#include "core/text.h"
#include "grammar/automaton.h"
#include "grammar/determinize.h"
#include "tessera/core/error.h"

namespace tessera::grammar {
namespace {

constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

std::string named(const Rules& rules, RuleId rule) { return in_quotes(rules.name(rule)); }

// All states of all rules, before dead ends are removed.
class Draft {
 public:
  Draft(const Rules& rules, RuleId root) : rules_(rules), starts_(rule_count(), -1) {
    add_reachable(root);
    find_needs();
    if (need_of_rule(root) == kNever) {
      fail(concat("constraint: nothing matches: ", named(rules, root),
                  " can never end; give its recursion an end"));
    }
    remove_dead_ends();
    find_empty_rules();
    refuse_left_recursion();
  }

  const std::vector<RuleState>& states() const { return states_; }
  int32_t start(RuleId rule) const { return starts_[static_cast<size_t>(rule)]; }
  int32_t need(size_t state) const { return needs_[state]; }

 private:
  size_t rule_count() const { return static_cast<size_t>(rules_.num_rules()); }
  int32_t need_of_rule(RuleId rule) const { return needs_[static_cast<size_t>(start(rule))]; }

  void add_reachable(RuleId root) {
    std::vector<RuleId> queue{root};
    while (!queue.empty()) {
      const RuleId rule = queue.back();
      queue.pop_back();
      if (start(rule) >= 0) continue;
      if (rules_.body(rule) < 0)
        fail(concat("constraint: rule ", named(rules_, rule), " is not defined"));
      const auto first = static_cast<int32_t>(states_.size());
      starts_[static_cast<size_t>(rule)] = first;
      for (RuleState& state : determinize(rules_, rules_.body(rule))) {
        for (RuleState::Edge& edge : state.edges) edge.target += first;
        for (RuleState::Call& call : state.calls) {
          call.target += first;
          queue.push_back(call.rule);
        }
        states_.push_back(std::move(state));
      }
    }
  }

  // The smallest depth of calls with which each state reaches the end of its rule: repeated until
  // nothing gets smaller. Depths are found in rising order, so a round settles at least one depth.
  void find_needs() {
    needs_.assign(states_.size(), kNever);
    for (bool has_changed = true; has_changed;) {
      has_changed = false;
      for (size_t i = states_.size(); i-- > 0;) {
        rules_.budget().check_time();
        const RuleState& state = states_[i];
        int32_t best = state.accepts ? 0 : kNever;
        for (const RuleState::Edge& edge : state.edges) {
          best = std::min(best, needs_[static_cast<size_t>(edge.target)]);
        }
        for (const RuleState::Call& call : state.calls) {
          const int32_t inner = need_of_rule(call.rule);
          if (inner == kNever) continue;
          best = std::min(best, std::max(inner + 1, needs_[static_cast<size_t>(call.target)]));
        }
        if (best < needs_[i]) {
          needs_[i] = best;
          has_changed = true;
        }
      }
    }
  }

  void remove_dead_ends() {
    const auto is_dead = [&](int32_t state) {
      return needs_[static_cast<size_t>(state)] == kNever;
    };
    for (RuleState& state : states_) {
      std::erase_if(state.edges, [&](const auto& edge) { return is_dead(edge.target); });
      std::erase_if(state.calls, [&](const auto& call) {
        return is_dead(call.target) || is_dead(start(call.rule));
      });
    }
  }

  // The states of a rule that are reached from its start without a byte.
  template <class Visit>
  void for_each_first(RuleId rule, Visit&& visit) const {
    std::vector<int32_t> seen{start(rule)};
    for (size_t i = 0; i < seen.size(); ++i) {
      const RuleState& state = states_[static_cast<size_t>(seen[i])];
      visit(state);
      for (const RuleState::Call& call : state.calls) {
        if (!is_empty_[static_cast<size_t>(call.rule)]) continue;
        if (std::ranges::find(seen, call.target) == seen.end()) seen.push_back(call.target);
      }
    }
  }

  void find_empty_rules() {
    is_empty_.assign(rule_count(), false);
    for (bool has_changed = true; has_changed;) {
      has_changed = false;
      for (RuleId rule = 0; rule < rules_.num_rules(); ++rule) {
        rules_.budget().check_time();
        if (start(rule) < 0 || is_empty_[static_cast<size_t>(rule)]) continue;
        bool accepts = false;
        for_each_first(rule, [&](const RuleState& state) { accepts = accepts || state.accepts; });
        if (!accepts) continue;
        is_empty_[static_cast<size_t>(rule)] = true;
        has_changed = true;
      }
    }
  }

  // Depth first over "calls before it has taken a byte"; an open rule met again is a cycle.
  void refuse_left_recursion() {
    enum : uint8_t { kNew, kOpen, kDone };
    std::vector<uint8_t> marks(rule_count(), kNew);
    struct Visit {
      RuleId rule;
      std::vector<RuleId> left;
    };
    for (RuleId first = 0; first < rules_.num_rules(); ++first) {
      if (start(first) < 0 || marks[static_cast<size_t>(first)] != kNew) continue;
      std::vector<Visit> path;
      const auto open = [&](RuleId rule) {
        rules_.budget().check_time();
        marks[static_cast<size_t>(rule)] = kOpen;
        Visit visit{rule, {}};
        for_each_first(rule, [&](const RuleState& state) {
          for (const RuleState::Call& call : state.calls) visit.left.push_back(call.rule);
        });
        path.push_back(std::move(visit));
      };
      open(first);
      while (!path.empty()) {
        if (path.back().left.empty()) {
          marks[static_cast<size_t>(path.back().rule)] = kDone;
          path.pop_back();
          continue;
        }
        const RuleId next = path.back().left.back();
        path.back().left.pop_back();
        if (marks[static_cast<size_t>(next)] == kOpen) {
          fail(concat("constraint: rule ", named(rules_, next),
                      " refers to itself before it has taken a character; write the recursion at "
                      "the end, or as a repetition"));
        }
        if (marks[static_cast<size_t>(next)] == kNew) open(next);
      }
    }
  }

  const Rules& rules_;
  std::vector<int32_t> starts_;  // [rules]; -1: not reachable
  std::vector<RuleState> states_;
  std::vector<int32_t> needs_;
  std::vector<bool> is_empty_;  // [rules]: matches the empty text
};

}  // namespace

int64_t Automaton::num_bytes() const {
  return static_cast<int64_t>(states_.size() * sizeof(State) + edges_.size() * sizeof(Edge) +
                              calls_.size() * sizeof(Call));
}

int32_t Automaton::after(int32_t state, uint8_t byte) const {
  const std::span<const Edge> list = edges(state);
  const auto it = std::ranges::lower_bound(list, byte, {}, &Edge::last);
  return it != list.end() && it->first <= byte ? it->target : -1;
}

Automaton build_automaton(const Rules& rules, RuleId root) {
  const Draft draft(rules, root);
  std::vector<int32_t> numbers(draft.states().size(), -1);
  int32_t count = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (draft.need(i) != kNever) numbers[i] = count++;
  }
  const auto number = [&](int32_t state) { return numbers[static_cast<size_t>(state)]; };
  Automaton result;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] < 0) continue;
    const RuleState& state = draft.states()[i];
    result.states_.push_back({static_cast<int32_t>(result.edges_.size()),
                              static_cast<int32_t>(result.calls_.size()), draft.need(i),
                              state.accepts});
    result.max_need_ = std::max(result.max_need_, draft.need(i));
    for (const RuleState::Edge& edge : state.edges) {
      result.edges_.push_back({edge.first, edge.last, number(edge.target)});
    }
    for (const RuleState::Call& call : state.calls) {
      result.calls_.push_back({number(draft.start(call.rule)), number(call.target)});
    }
  }
  result.states_.push_back(
      {static_cast<int32_t>(result.edges_.size()), static_cast<int32_t>(result.calls_.size())});
  result.root_ = number(draft.start(root));
  result.max_depth_ = static_cast<int32_t>(rules.budget().limits().depth);
  if (result.need(result.root_) > result.max_depth_) {
    fail(concat("constraint: the shortest text needs rules ", result.need(result.root_),
                " deep; the limit is ", result.max_depth_));
  }
  return result;
}

}  // namespace tessera::grammar
