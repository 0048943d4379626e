// Expression to nondeterministic automaton (Thompson), and that to a deterministic one (subsets).
// SPDX-License-Identifier: MIT
#include "grammar/determinize.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tessera/core/error.h"

namespace tessera::grammar {
namespace {

struct NfaState {
  std::vector<int32_t> empty_edges = {};
  std::vector<RuleState::Edge> edges = {};
  std::vector<RuleState::Call> calls = {};
};

// States 0 and 1 are the start and the end of the whole.
class Nfa {
 public:
  Nfa(const Rules& rules, ExprId body) : rules_(rules) {
    add_state();
    add_state();
    add(body, 0, 1);
  }

  const NfaState& at(int32_t state) const { return states_[static_cast<size_t>(state)]; }
  size_t size() const { return states_.size(); }

 private:
  int32_t add_state() {
    rules_.budget().check_time();
    rules_.budget().take_memory(sizeof(NfaState) + 32);
    states_.emplace_back();
    return static_cast<int32_t>(states_.size() - 1);
  }
  NfaState& state(int32_t index) { return states_[static_cast<size_t>(index)]; }
  void join(int32_t from, int32_t to) { state(from).empty_edges.push_back(to); }

  // Everything that leads from one state to another over `id`.
  void add(ExprId id, int32_t from, int32_t to) {
    const Expr& expr = rules_.at(id);
    switch (expr.kind) {
      case Expr::Kind::text: return add_text(expr.text, from, to);
      case Expr::Kind::character: return add_character(expr.set, from, to);
      case Expr::Kind::call: state(from).calls.push_back({expr.rule, to}); return;
      case Expr::Kind::sequence: return add_sequence(expr.parts, from, to);
      case Expr::Kind::any_of:
        for (const ExprId part : expr.parts) {
          // A state of its own at either end, so that loops within a part stay there.
          const int32_t first = add_state();
          join(from, first);
          add(part, first, to);
        }
        return;
      case Expr::Kind::repeat: return add_repeat(expr, from, to);
      case Expr::Kind::graph: return add_graph(expr.arcs, from, to);
    }
  }

  void add_text(std::string_view text, int32_t from, int32_t to) {
    for (const char c : text) {
      const int32_t next = add_state();
      const auto byte = static_cast<uint8_t>(c);
      state(from).edges.push_back({byte, byte, next});
      from = next;
    }
    join(from, to);
  }

  void add_character(const CodeSet& set, int32_t from, int32_t to) {
    for (const ByteSequence& sequence : utf8_sequences(set)) {
      int32_t at = from;
      for (int i = 0; i < sequence.size; ++i) {
        const int32_t next = i + 1 == sequence.size ? to : add_state();
        const ByteSequence::Range range = sequence.ranges[static_cast<size_t>(i)];
        state(at).edges.push_back({range.first, range.last, next});
        at = next;
      }
    }
  }

  void add_sequence(const std::vector<ExprId>& parts, int32_t from, int32_t to) {
    for (const ExprId part : parts) {
      const int32_t next = add_state();
      add(part, from, next);
      from = next;
    }
    join(from, to);
  }

  void add_repeat(const Expr& expr, int32_t from, int32_t to) {
    const ExprId part = expr.parts.front();
    for (int64_t i = 0; i < expr.least; ++i) {
      const int32_t next = add_state();
      add(part, from, next);
      from = next;
    }
    if (expr.most == kNoEnd) {
      const int32_t loop = add_state();
      join(from, loop);
      const int32_t end = add_state();
      add(part, loop, end);
      join(end, loop);
      join(loop, to);
      return;
    }
    for (int64_t i = expr.least; i < expr.most; ++i) {
      join(from, to);
      const int32_t next = add_state();
      add(part, from, next);
      from = next;
    }
    join(from, to);
  }

  void add_graph(const std::vector<Expr::Arc>& arcs, int32_t from, int32_t to) {
    std::map<int32_t, int32_t> states{{kGraphStart, add_state()}, {kGraphEnd, to}};
    join(from, states[kGraphStart]);
    const auto state_of = [&](int32_t vertex) {
      const auto [place, is_new] = states.try_emplace(vertex, -1);
      if (is_new) place->second = add_state();
      return place->second;
    };
    for (const Expr::Arc& arc : arcs) {
      const int32_t first = state_of(arc.from);
      add(arc.part, first, state_of(arc.to));
    }
  }

  const Rules& rules_;
  std::vector<NfaState> states_;
};

class Subsets {
 public:
  Subsets(const Nfa& nfa, Budget& budget) : nfa_(nfa), budget_(budget), marks_(nfa.size(), 0) {}

  std::vector<RuleState> run() {
    number_of({0});
    for (size_t i = 0; i < sets_.size(); ++i) expand(i);
    return std::move(states_);
  }

 private:
  using Set = std::vector<int32_t>;

  // The set with all that its members reach without a byte, sorted.
  Set closed(Set set) {
    ++mark_;
    for (const int32_t state : set) marks_[static_cast<size_t>(state)] = mark_;
    for (size_t i = 0; i < set.size(); ++i) {
      for (const int32_t next : nfa_.at(set[i]).empty_edges) {
        if (std::exchange(marks_[static_cast<size_t>(next)], mark_) != mark_) set.push_back(next);
      }
    }
    // Only states with edges of their own tell sets apart, and the end.
    std::erase_if(set, [&](int32_t state) {
      return state != 1 && nfa_.at(state).edges.empty() && nfa_.at(state).calls.empty();
    });
    std::ranges::sort(set);
    const auto repeated = std::ranges::unique(set);
    set.erase(repeated.begin(), repeated.end());
    return set;
  }

  int32_t number_of(Set members) {
    Set set = closed(std::move(members));
    const auto [place, is_new] = numbers_.try_emplace(std::move(set), std::ssize(sets_));
    if (is_new) {
      budget_.take_state();
      budget_.take_memory(static_cast<int64_t>(place->first.size() * sizeof(int32_t) + 128));
      sets_.push_back(&place->first);
      states_.emplace_back().accepts = std::ranges::binary_search(place->first, 1);
    }
    return static_cast<int32_t>(place->second);
  }

  void expand(size_t index) {
    const Set& set = *sets_[index];
    // Between two neighbouring cuts all bytes lead to the same set.
    std::vector<int> cuts;
    std::map<RuleId, Set> calls;
    for (const int32_t state : set) {
      budget_.check_time();
      for (const RuleState::Edge& edge : nfa_.at(state).edges) {
        cuts.push_back(edge.first);
        cuts.push_back(edge.last + 1);
      }
      for (const RuleState::Call& call : nfa_.at(state).calls) {
        calls[call.rule].push_back(call.target);
      }
    }
    std::ranges::sort(cuts);
    const auto repeated = std::ranges::unique(cuts);
    cuts.erase(repeated.begin(), repeated.end());
    std::vector<RuleState::Edge> edges;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      Set targets;
      for (const int32_t state : set) {
        for (const RuleState::Edge& edge : nfa_.at(state).edges) {
          if (edge.first <= cuts[i] && edge.last >= cuts[i]) targets.push_back(edge.target);
        }
      }
      if (targets.empty()) continue;
      const auto first = static_cast<uint8_t>(cuts[i]);
      const auto last = static_cast<uint8_t>(cuts[i + 1] - 1);
      const int32_t target = number_of(std::move(targets));
      if (!edges.empty() && edges.back().target == target && edges.back().last + 1 == first) {
        edges.back().last = last;
      } else {
        edges.push_back({first, last, target});
      }
    }
    states_[index].edges = std::move(edges);
    for (auto& [rule, targets] : calls) {
      const int32_t target = number_of(std::move(targets));
      states_[index].calls.push_back({rule, target});
    }
  }

  const Nfa& nfa_;
  Budget& budget_;
  std::vector<uint32_t> marks_;
  uint32_t mark_ = 0;
  std::map<Set, int64_t> numbers_;
  std::vector<const Set*> sets_;  // keys of numbers_
  std::vector<RuleState> states_;
};

}  // namespace

std::vector<RuleState> determinize(const Rules& rules, ExprId body) {
  const Nfa nfa(rules, body);
  return Subsets(nfa, rules.budget()).run();
}

}  // namespace tessera::grammar
