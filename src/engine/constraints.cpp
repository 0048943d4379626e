// Constraints found again, or compiled.
// SPDX-License-Identifier: MIT
#include "engine/constraints.h"

#include <algorithm>
#include <utility>

namespace tessera::engine {

std::shared_ptr<grammar::TokenMasks> ConstraintTable::find(const Request& request) {
  if (!request.constraint && !request.constraint_spec) return nullptr;
  const auto is_same = [&](const Kept& kept) {
    if (request.constraint) return &kept.masks->constraint() == request.constraint.get();
    return kept.spec == request.constraint_spec;
  };
  const auto found = std::ranges::find_if(kept_, is_same);
  if (found != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, found);
    return kept_.front().masks;
  }
  if (!tries_) tries_ = std::make_shared<const grammar::VocabularyTries>(*tokenizer_);
  std::shared_ptr<const Constraint> constraint =
      request.constraint ? request.constraint : Constraint::compile(*request.constraint_spec);
  auto masks = std::make_shared<grammar::TokenMasks>(std::move(constraint), tries_, kBytesOfMasks);
  kept_.push_front({request.constraint_spec, masks});
  if (kept_.size() > kMostKept) kept_.pop_back();
  return masks;
}

}  // namespace tessera::engine
