// Stacks grow by calls, shrink at the ends of rules, and move on with bytes.
// SPDX-License-Identifier: MIT
#include "grammar/machine.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::grammar {
namespace {

constexpr size_t kMostStacks = 256;

}  // namespace

size_t Machine::HashSet::operator()(const StackSet& set) const {
  uint64_t hash = set.is_open ? 1 : 2;
  const auto mix = [&](uint64_t word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  };
  for (const Stack& stack : set.stacks) {
    mix(stack.size());
    for (const int32_t state : stack) mix(static_cast<uint32_t>(state));
  }
  return static_cast<size_t>(hash);
}

int32_t Machine::number_of(StackSet set) {
  const auto [place, is_new] =
      numbers_.try_emplace(std::move(set), static_cast<int32_t>(entries_.size()));
  if (is_new) {
    if (num_sets() >= kMostSets) {
      numbers_.erase(place);
      fail(concat("constraint: the next token can be read in too many ways: more than ", kMostSets,
                  " states of the grammar are in reach; make it less ambiguous"));
    }
    auto entry = std::make_unique<Entry>();
    entry->set = &place->first;
    entry->next.fill(kUnknown);
    entries_.push_back(std::move(entry));
  }
  return place->second;
}

void Machine::clear() {
  entries_.clear();
  numbers_.clear();
}

int32_t Machine::after(int32_t set, std::string_view bytes) {
  for (size_t i = 0; i < bytes.size() && set != kDead; ++i) {
    set = after(set, static_cast<uint8_t>(bytes[i]));
  }
  return set;
}

// Whether each rule on the stack can still end within the depth allowed.
bool Machine::is_viable(const Stack& stack) const {
  const auto top = static_cast<int32_t>(stack.size()) - 1;
  return top + automaton_.need(stack.back()) <= automaton_.max_depth();
}

// Leaves rules that are over, so that equal places in a text have equal stacks.
void Machine::drop_ended(Stack& stack) const {
  while (stack.size() > 1 && automaton_.is_end(stack.back())) stack.pop_back();
}

std::vector<Stack> Machine::closure(const StackSet& set, Info& info) const {
  std::vector<Stack> stacks = set.stacks;
  std::set<Stack> seen(stacks.begin(), stacks.end());
  const auto add = [&](Stack stack) {
    if (!seen.insert(stack).second) return;
    if (stacks.size() >= kMostStacks) {
      fail(concat("constraint: the text can be read in more than ", kMostStacks,
                  " ways; make the grammar less ambiguous"));
    }
    stacks.push_back(std::move(stack));
  };
  for (size_t i = 0; i < stacks.size(); ++i) {
    const int32_t state = stacks[i].back();
    if (automaton_.accepts(state)) {
      if (stacks[i].size() == 1) {
        info.may_leave = true;
      } else {
        add(Stack(stacks[i].begin(), stacks[i].end() - 1));
      }
    }
    for (const Automaton::Call& call : automaton_.calls(state)) {
      Stack next = stacks[i];
      next.back() = call.target;
      if (!set.is_open && !is_viable(next)) continue;
      // A rule in whose place the called one ends need not be returned to.
      if (automaton_.is_end(call.target)) next.pop_back();
      next.push_back(call.start);
      if (set.is_open && next.size() > kOpenDepth) {
        info.is_cut = true;
      } else if (set.is_open || is_viable(next)) {
        add(std::move(next));
      }
    }
  }
  return stacks;
}

const Machine::Info& Machine::info(int32_t set) {
  Info& info = entries_[static_cast<size_t>(set)]->info;
  if (info.is_known) return info;
  const std::vector<Stack> stacks = closure(at(set), info);
  const auto can_go_on = [&](Stack stack) {
    return std::ranges::any_of(automaton_.edges(stack.back()), [&](const Automaton::Edge& edge) {
      stack.back() = edge.target;
      return is_viable(stack);
    });
  };
  info.is_final = info.may_leave && std::ranges::none_of(stacks, can_go_on);
  info.is_known = true;
  return info;
}

int32_t Machine::compute_after(int32_t set, uint8_t byte) {
  const bool is_open = at(set).is_open;
  Info info;
  StackSet result{.is_open = is_open};
  for (Stack& stack : closure(at(set), info)) {
    const int32_t next = automaton_.after(stack.back(), byte);
    if (next < 0) continue;
    stack.back() = next;
    if (!is_open && !is_viable(stack)) continue;
    drop_ended(stack);
    result.stacks.push_back(std::move(stack));
  }
  std::ranges::sort(result.stacks);
  const auto repeated = std::ranges::unique(result.stacks);
  result.stacks.erase(repeated.begin(), repeated.end());
  const int32_t number = result.stacks.empty() ? kDead : number_of(std::move(result));
  return entries_[static_cast<size_t>(set)]->next[byte] = number;
}

}  // namespace tessera::grammar
