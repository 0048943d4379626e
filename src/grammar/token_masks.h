// Which tokens of a vocabulary may come next, as bit masks.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "grammar/machine.h"
#include "grammar/token_trie.h"
#include "tessera/grammar/constraint.h"

namespace tessera::grammar {

// How far a sequence has come in its constraint.
struct Progress {
  StackSet place = {};
  bool is_first = true;  // no token yet
  auto operator<=>(const Progress&) const = default;
};

// A constraint over a vocabulary. One thread.
//
// A mask is found by walking the trie of the vocabulary. Most of it depends only on the innermost
// state of a stack, not on the rules around it: that part is found once for each such state, with a
// list of the few tokens that leave the rule and go on. Only those are tried with the whole stack.
// Both the parts and the whole masks are kept, the ones used last, in `cache_bytes` of memory.
class TokenMasks {
 public:
  TokenMasks(std::shared_ptr<const Constraint> constraint,
             std::shared_ptr<const VocabularyTries> tries, int64_t cache_bytes = 32 << 20);

  Progress start();
  // Takes in a token. False, and nothing changes, if the constraint does not allow it.
  bool advance(Progress& progress, int32_t token);
  bool is_complete(const Progress& progress);  // what there is satisfies the constraint
  bool is_final(const Progress& progress);     // and no token can follow
  // Bit `id` of `bits` says whether token `id` may come next. There are at least num_ids() of them;
  // those behind it are cleared. End-of-text tokens are not among them: they are the caller's.
  void fill(const Progress& progress, std::span<uint32_t> bits);

  int64_t cache_bytes() const { return num_bytes_; }
  int64_t num_walks() const { return num_walks_; }  // of a trie, so far
  const Constraint& constraint() const { return *constraint_; }

 private:
  struct Mask {
    std::vector<uint32_t> bits = {};
    std::vector<int32_t> open_tokens = {};  // that leave the rule: the rules around it decide
    int64_t num_bytes() const;
  };
  using MaskPtr = std::shared_ptr<const Mask>;
  struct Cached {
    Progress key;
    MaskPtr mask;
  };

  void make_room();
  MaskPtr find(const Progress& key);
  MaskPtr keep(const Progress& key, Mask mask);
  MaskPtr walk(const Progress& from);
  MaskPtr mask_of_state(int32_t state, bool is_first);
  MaskPtr mask_of(const Progress& progress);
  void add_stack(const Stack& stack, bool is_first, Mask& mask);

  std::shared_ptr<const Constraint> constraint_;
  std::shared_ptr<const VocabularyTries> tries_;
  Machine machine_;
  int64_t max_bytes_;
  int64_t num_bytes_ = 0;
  int64_t num_walks_ = 0;
  std::list<Cached> cached_;  // used last first
  std::map<Progress, std::list<Cached>::iterator> places_;
};

}  // namespace tessera::grammar
