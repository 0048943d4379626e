// The index of n-grams that prompt lookup works with.
// SPDX-License-Identifier: MIT
#include "engine/lookup.h"

#include <algorithm>
#include <bit>

namespace tessera::engine {

// Of the `count` tokens before `end`.
size_t PromptLookup::slot_of(int64_t end, int64_t count) const {
  auto hash = static_cast<uint64_t>(count);
  for (int64_t i = end - count; i < end; ++i) {
    hash ^= static_cast<uint32_t>(tokens_[static_cast<size_t>(i)]);
    hash *= 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return static_cast<size_t>(hash) & (ends_.size() - 1);
}

// Where the tokens before `end` have been seen earlier: the end of that place, or 0 if nowhere.
int64_t PromptLookup::find(int64_t end) const {
  for (int64_t count = std::min(end, kLongest); count >= kShortest; --count) {
    const int64_t other = ends_[slot_of(end, count)];
    if (other == 0) continue;
    const auto last = tokens_.begin() + end;
    if (other >= count && std::equal(last - count, last, tokens_.begin() + other - count)) {
      return other;
    }
  }
  return 0;
}

// Enters the n-grams before `end`, once it is known what follows them.
void PromptLookup::add(int64_t end) {
  for (int64_t count = kShortest; count <= std::min(end, kLongest); ++count) {
    ends_[slot_of(end, count)] = static_cast<int32_t>(end);
  }
}

void PromptLookup::make_room(int64_t num_tokens) {
  constexpr int64_t kEntries = kLongest - kShortest + 1;
  const auto wanted = static_cast<size_t>(2 * kEntries * num_tokens);
  if (wanted <= ends_.size()) return;
  ends_.assign(std::bit_ceil(std::max<size_t>(wanted, 1024)), 0);
  for (int64_t end = kShortest; end < std::ssize(tokens_); ++end) add(end);
}

int64_t PromptLookup::follow(std::span<const int32_t> tokens) {
  make_room(std::ssize(tokens));
  int64_t num_foreseen = 0;
  for (int64_t i = std::ssize(tokens_); i < std::ssize(tokens); ++i) {
    const int32_t token = tokens[static_cast<size_t>(i)];
    const int64_t place = find(i);
    num_foreseen += place > 0 && tokens_[static_cast<size_t>(place)] == token ? 1 : 0;
    tokens_.push_back(token);
    add(i);
  }
  return num_foreseen;
}

void PromptLookup::propose(int64_t most, std::vector<int32_t>& draft) const {
  if (!has_guess()) return;
  const auto num_tokens = std::ssize(tokens_);
  const int64_t place = find(num_tokens);
  const auto first = std::ssize(draft);
  for (int64_t i = 0; i < most; ++i) {
    const int64_t from = place + i;
    draft.push_back(from < num_tokens ? tokens_[static_cast<size_t>(from)]
                                      : draft[static_cast<size_t>(first + from - num_tokens)]);
  }
}

int64_t LookupSource::follow(uint64_t sequence, std::span<const int32_t> tokens) {
  return lookups_[sequence].follow(tokens);
}

bool LookupSource::has_guess(uint64_t sequence) const {
  const auto found = lookups_.find(sequence);
  return found != lookups_.end() && found->second.has_guess();
}

void LookupSource::propose(std::span<const DraftWish> wishes) {
  for (const DraftWish& wish : wishes) lookups_[wish.sequence].propose(wish.most, *wish.draft);
}

}  // namespace tessera::engine
