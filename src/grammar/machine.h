// Runs an automaton over bytes: sets of stacks, made as they are met and remembered.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/automaton.h"

namespace tessera::grammar {

// A stack: the states to go on from, outermost rule first. The last is where the next byte is
// taken.
using Stack = std::vector<int32_t>;

// Where in a constraint a text has led, as plain numbers: the stacks of all ways in which the text
// can be read. Comparable and independent of any machine.
struct StackSet {
  bool is_open = false;            // the rules around the outermost state are not known
  std::vector<Stack> stacks = {};  // sorted, each once
  auto operator<=>(const StackSet&) const = default;
};

// Sets of stacks have numbers, and the set after a byte is computed once. One thread.
class Machine {
 public:
  static constexpr int32_t kDead = -1;
  // Rules that an open set may enter.
  static constexpr size_t kOpenDepth = 16;

  explicit Machine(const Automaton& automaton) : automaton_(automaton) {}

  int32_t number_of(StackSet set);
  int32_t start() { return number_of({.stacks = {{automaton_.root()}}}); }
  const StackSet& at(int32_t set) const { return *entries_[static_cast<size_t>(set)]->set; }
  // kDead if no stack takes the byte. Throws Error when the text can be read in too many ways.
  int32_t after(int32_t set, uint8_t byte) {
    const int32_t known = entries_[static_cast<size_t>(set)]->next[byte];
    return known != kUnknown ? known : compute_after(set, byte);
  }
  int32_t after(int32_t set, std::string_view bytes);

  // The text so far is complete; for an open set, the outermost rule of a stack may end here.
  bool may_leave(int32_t set) { return info(set).may_leave; }
  // An open set has entered more than kOpenDepth rules: what follows is not known.
  bool is_cut(int32_t set) { return info(set).is_cut; }
  // Complete, and no byte can follow.
  bool is_final(int32_t set) { return info(set).is_final; }

  // At most kMostSets; more are refused as an Error.
  static constexpr int64_t kMostSets = 20'000;
  int64_t num_sets() const { return std::ssize(entries_); }
  void clear();  // forgets all sets: their numbers are no longer valid

 private:
  static constexpr int32_t kUnknown = -2;
  struct Info {
    bool is_known = false;
    bool may_leave = false;
    bool is_cut = false;
    bool is_final = false;
  };
  struct Entry {
    const StackSet* set = nullptr;
    std::array<int32_t, 256> next = {};
    Info info = {};
  };
  struct HashSet {
    size_t operator()(const StackSet& set) const;
  };

  bool is_viable(const Stack& stack) const;
  // The stacks of a set and all that they become without a byte.
  std::vector<Stack> closure(const StackSet& set, Info& info) const;
  const Info& info(int32_t set);
  int32_t compute_after(int32_t set, uint8_t byte);
  void drop_ended(Stack& stack) const;

  const Automaton& automaton_;
  std::unordered_map<StackSet, int32_t, HashSet> numbers_;
  std::vector<std::unique_ptr<Entry>> entries_;
};

}  // namespace tessera::grammar
