// Length and credit of drafts.
// SPDX-License-Identifier: MIT
#include "engine/drafter.h"

#include <algorithm>
#include <utility>

namespace tessera::engine {
namespace {

constexpr int64_t kRow = 64;  // the credit that a wasted row costs; a token earns 1
constexpr int64_t kFirstRows = 4;
constexpr int64_t kFirstLength = 2;

}  // namespace

Drafter::Drafter(std::unique_ptr<Proposer> proposer, int64_t max_draft,
                 std::span<const int32_t> prompt)
    : proposer_(std::move(proposer)),
      max_draft_(max_draft),
      num_followed_(std::ssize(prompt)),
      length_(std::min(kFirstLength, max_draft)),
      credit_(std::min(kFirstRows, max_draft) * kRow) {
  proposer_->follow(prompt);
}

void Drafter::propose(std::span<const int32_t> tokens, int64_t most, std::vector<int32_t>& draft) {
  draft.clear();
  const int64_t num_foreseen = proposer_->follow(tokens);
  const int64_t num_new = std::ssize(tokens) - std::exchange(num_followed_, std::ssize(tokens));
  credit_ = std::min(credit_ + num_new + num_foreseen * kRow, max_draft_ * kRow);
  const int64_t length = std::min({length_, credit_ / kRow, most});
  if (length > 0) proposer_->propose(length, draft);
}

void Drafter::learn(int64_t num_drafted, int64_t num_accepted) {
  credit_ -= (num_drafted - num_accepted) * kRow;
  if (num_accepted < num_drafted) {
    length_ = std::max<int64_t>(1, num_accepted);
  } else if (num_drafted >= length_) {
    length_ = std::min(2 * length_, max_draft_);
  }
}

}  // namespace tessera::engine
