// The constraints of requests over the model's vocabulary, kept for the requests that come next.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>

#include "grammar/token_masks.h"
#include "tessera/engine/request.h"
#include "tessera/text/tokenizer.h"

namespace tessera::engine {

// Requests with the same constraint share its masks. The constraints used last are kept.
class ConstraintTable {
 public:
  static constexpr size_t kMostKept = 16;
  static constexpr int64_t kBytesOfMasks = 16 << 20;  // of one constraint

  explicit ConstraintTable(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  // Null if the request has no constraint. Compiles its description unless an equal one is kept.
  std::shared_ptr<grammar::TokenMasks> find(const Request& request);

 private:
  struct Kept {
    std::optional<ConstraintSpec> spec;
    std::shared_ptr<grammar::TokenMasks> masks;
  };

  const Tokenizer* tokenizer_;
  std::shared_ptr<const grammar::VocabularyTries> tries_;  // made for the first constraint
  std::list<Kept> kept_;                                   // used last first
};

}  // namespace tessera::engine
