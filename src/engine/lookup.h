// Prompt lookup: guesses that a sequence repeats what followed its latest tokens earlier on.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <span>
#include <vector>

#include "engine/draft_source.h"

namespace tessera::engine {

// Looks for the last tokens of the sequence, 4 of them or else 3 or 2, earlier in the sequence and
// proposes what followed there. The most recent place is taken. If the sequence ends before the
// proposal does, the proposal goes on with its own beginning, as a short cycle would.
//
// Each token costs three entries of a hash table: where its n-gram was last seen. An entry that is
// overwritten by another n-gram is lost, which makes a guess shorter and never a wrong one.
class PromptLookup {
 public:
  // Takes in the tokens that are new since the last call; `tokens` is the whole sequence. Returns
  // how many of them it would have guessed from those before.
  int64_t follow(std::span<const int32_t> tokens);
  // Appends `most` tokens that may come next; none if there is nothing to go by.
  void propose(int64_t most, std::vector<int32_t>& draft) const;
  bool has_guess() const { return !tokens_.empty() && find(std::ssize(tokens_)) > 0; }

 private:
  static constexpr int64_t kShortest = 2;
  static constexpr int64_t kLongest = 4;

  size_t slot_of(int64_t end, int64_t count) const;
  int64_t find(int64_t end) const;
  void add(int64_t end);
  void make_room(int64_t num_tokens);

  std::vector<int32_t> tokens_;
  std::vector<int32_t> ends_;  // a power of two of them: where an n-gram ended; 0: empty
};

// A lookup for each sequence.
class LookupSource final : public DraftSource {
 public:
  int64_t follow(uint64_t sequence, std::span<const int32_t> tokens) override;
  bool has_guess(uint64_t sequence) const override;
  void propose(std::span<const DraftWish> wishes) override;
  void forget(uint64_t sequence) override { lookups_.erase(sequence); }

 private:
  std::map<uint64_t, PromptLookup> lookups_;
};

}  // namespace tessera::engine
