// Masks by walks of the vocabulary's trie, and the cache of them.
// SPDX-License-Identifier: MIT
#include "grammar/token_masks.h"

#include <algorithm>
#include <utility>

#include "grammar/automaton.h"
#include "tessera/core/error.h"

namespace tessera::grammar {
namespace {

size_t num_words(int64_t num_ids) { return static_cast<size_t>((num_ids + 31) / 32); }

void set_bit(std::vector<uint32_t>& bits, int32_t id) {
  bits[static_cast<size_t>(id) / 32] |= 1u << (static_cast<uint32_t>(id) % 32);
}

bool has_bit(const std::vector<uint32_t>& bits, int32_t id) {
  return (bits[static_cast<size_t>(id) / 32] >> (static_cast<uint32_t>(id) % 32) & 1u) != 0;
}

}  // namespace

int64_t TokenMasks::Mask::num_bytes() const {
  return static_cast<int64_t>(sizeof(Cached) + 128 + bits.size() * sizeof(uint32_t) +
                              open_tokens.size() * sizeof(int32_t));
}

TokenMasks::TokenMasks(std::shared_ptr<const Constraint> constraint,
                       std::shared_ptr<const VocabularyTries> tries, int64_t cache_bytes)
    : constraint_(std::move(constraint)),
      tries_(std::move(tries)),
      machine_(constraint_->automaton()),
      max_bytes_(cache_bytes) {}

// Numbers of sets are not kept between calls, so the machine may forget them here.
void TokenMasks::make_room() {
  if (machine_.num_sets() > Machine::kMostSets / 2) machine_.clear();
}

Progress TokenMasks::start() {
  make_room();
  return {.place = machine_.at(machine_.start())};
}

bool TokenMasks::advance(Progress& progress, int32_t token) {
  make_room();
  const TokenTrie& trie = tries_->of(progress.is_first);
  if (token < 0 || token >= trie.num_ids() || trie.text(token).empty()) return false;
  const int32_t set = machine_.after(machine_.number_of(progress.place), trie.text(token));
  if (set == Machine::kDead) return false;
  progress = {.place = machine_.at(set), .is_first = false};
  return true;
}

bool TokenMasks::is_complete(const Progress& progress) {
  make_room();
  return machine_.may_leave(machine_.number_of(progress.place));
}

bool TokenMasks::is_final(const Progress& progress) {
  make_room();
  return machine_.is_final(machine_.number_of(progress.place));
}

TokenMasks::MaskPtr TokenMasks::find(const Progress& key) {
  const auto found = places_.find(key);
  if (found == places_.end()) return nullptr;
  cached_.splice(cached_.begin(), cached_, found->second);
  return found->second->mask;
}

TokenMasks::MaskPtr TokenMasks::keep(const Progress& key, Mask mask) {
  auto kept = std::make_shared<const Mask>(std::move(mask));
  num_bytes_ += kept->num_bytes();
  cached_.push_front({key, kept});
  places_[key] = cached_.begin();
  while (num_bytes_ > max_bytes_ && cached_.size() > 1) {
    num_bytes_ -= cached_.back().mask->num_bytes();
    places_.erase(cached_.back().key);
    cached_.pop_back();
  }
  return kept;
}

// Walks the trie from a set of stacks. For an open set, tokens that go on after a place where the
// set may be left are neither in nor out.
TokenMasks::MaskPtr TokenMasks::walk(const Progress& from) {
  ++num_walks_;
  const TokenTrie& trie = tries_->of(from.is_first);
  const bool is_open = from.place.is_open;
  Mask mask{.bits = std::vector<uint32_t>(num_words(trie.num_ids()), 0)};
  struct Level {
    int32_t set;
    bool may_leave;  // here or before
  };
  std::vector<Level> levels{{machine_.number_of(from.place), false}};
  const std::span<const TokenTrie::Node> nodes = trie.nodes();
  for (int32_t i = 0; i < std::ssize(nodes);) {
    const TokenTrie::Node& node = nodes[static_cast<size_t>(i)];
    levels.resize(static_cast<size_t>(node.depth));
    const Level above = levels.back();
    const int32_t set = machine_.after(above.set, node.byte);
    if (set == Machine::kDead) {
      if (above.may_leave) {
        const auto tokens = trie.tokens_of_branch(i);
        mask.open_tokens.insert(mask.open_tokens.end(), tokens.begin(), tokens.end());
      }
      i = node.end;
      continue;
    }
    for (const int32_t token : trie.tokens(i)) set_bit(mask.bits, token);
    if (node.end > i + 1) {
      const bool may_leave = is_open && (machine_.may_leave(set) || machine_.is_cut(set));
      levels.push_back({set, above.may_leave || may_leave});
    }
    ++i;
  }
  return keep(from, std::move(mask));
}

TokenMasks::MaskPtr TokenMasks::mask_of_state(int32_t state, bool is_first) {
  const Progress key{.place = {.is_open = true, .stacks = {{state}}}, .is_first = is_first};
  MaskPtr found = find(key);
  return found ? found : walk(key);
}

// What a stack allows, without the rules that it may leave before its next byte.
void TokenMasks::add_stack(const Stack& stack, bool is_first, Mask& mask) {
  const MaskPtr part = mask_of_state(stack.back(), is_first);
  for (size_t i = 0; i < mask.bits.size(); ++i) mask.bits[i] |= part->bits[i];
  if (part->open_tokens.empty()) return;
  const TokenTrie& trie = tries_->of(is_first);
  const int32_t set = machine_.number_of({.stacks = {stack}});
  for (const int32_t token : part->open_tokens) {
    if (has_bit(mask.bits, token)) continue;
    if (machine_.after(set, trie.text(token)) != Machine::kDead) set_bit(mask.bits, token);
  }
}

TokenMasks::MaskPtr TokenMasks::mask_of(const Progress& progress) {
  if (MaskPtr found = find(progress)) return found;
  const Automaton& automaton = constraint_->automaton();
  const auto room = static_cast<int64_t>(Machine::kOpenDepth) + automaton.max_need() + 1;
  const auto is_near_limit = [&](const Stack& stack) {
    return std::ssize(stack) + room > automaton.max_depth();
  };
  if (std::ranges::any_of(progress.place.stacks, is_near_limit)) return walk(progress);
  Mask mask{.bits = std::vector<uint32_t>(num_words(tries_->rest.num_ids()), 0)};
  std::vector<Stack> stacks = progress.place.stacks;
  for (size_t i = 0; i < stacks.size(); ++i) {
    const Stack stack = stacks[i];
    const int32_t innermost = machine_.number_of({.is_open = true, .stacks = {{stack.back()}}});
    if (machine_.is_cut(innermost)) return walk(progress);
    add_stack(stack, progress.is_first, mask);
    if (stack.size() == 1 || !machine_.may_leave(innermost)) continue;
    Stack outer(stack.begin(), stack.end() - 1);
    if (std::ranges::find(stacks, outer) == stacks.end()) stacks.push_back(std::move(outer));
  }
  return keep(progress, std::move(mask));
}

void TokenMasks::fill(const Progress& progress, std::span<uint32_t> bits) {
  make_room();
  const MaskPtr mask = mask_of(progress);
  expects(bits.size() >= mask->bits.size(), "TokenMasks: the mask has too few words");
  std::ranges::copy(mask->bits, bits.begin());
  std::ranges::fill(bits.subspan(mask->bits.size()), 0u);
}

}  // namespace tessera::grammar
