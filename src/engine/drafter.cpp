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

Drafter::Drafter(int64_t max_draft, int64_t rows_per_hit, int64_t num_prompt)
    : max_draft_(max_draft),
      rows_per_hit_(rows_per_hit),
      num_followed_(num_prompt),
      length_(std::min(kFirstLength, max_draft)),
      credit_(std::min(kFirstRows, max_draft) * kRow) {}

int64_t Drafter::next_length(int64_t num_tokens, int64_t num_foreseen, int64_t most) {
  const int64_t num_new = num_tokens - std::exchange(num_followed_, num_tokens);
  credit_ = std::min(credit_ + num_new + num_foreseen * rows_per_hit_ * kRow, max_draft_ * kRow);
  return std::min({length_, credit_ / kRow, most});
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
