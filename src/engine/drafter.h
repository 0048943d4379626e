// How much is guessed about a sequence: as much as its guesses have been worth so far.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace tessera::engine {

// The length of a sequence's drafts. A draft of k tokens is verified by k more rows of one step,
// and rows whose token is rejected are wasted.
//
// Length  Doubles when a whole draft is accepted, and falls to what was accepted otherwise.
// Credit  Wasted rows are paid for: a few are free, and each token that was foreseen, in a draft or
//         not, allows for rows_per_hit more. Without any, there is one for 64 tokens. So a text
//         that cannot be foreseen is hardly slower.
class Drafter {
 public:
  // The tokens so far, the prompt, say nothing about how well the rest can be foreseen.
  Drafter(int64_t max_draft, int64_t rows_per_hit, int64_t num_prompt);

  // How many tokens to guess now that the sequence has num_tokens, of which num_foreseen are new
  // and were foreseen. At most `most`.
  int64_t next_length(int64_t num_tokens, int64_t num_foreseen, int64_t most);
  // The last draft has been verified, as far as it was used.
  void learn(int64_t num_drafted, int64_t num_accepted);

 private:
  int64_t max_draft_;
  int64_t rows_per_hit_;
  int64_t num_followed_;  // tokens
  int64_t length_;
  int64_t credit_;  // in 64ths of a row
};

}  // namespace tessera::engine
