// Random texts under a constraint, drawn token by token over the bundled tokenizer.
// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <random>
#include <string>

#include "grammar/token_masks.h"

namespace tessera::grammar::testing {

const Tokenizer& bundled_tokenizer();
std::shared_ptr<const VocabularyTries> bundled_tries();

struct Walk {
  std::string text;
  bool is_complete = false;  // ended within the tokens allowed
};

// Each token is drawn uniformly from the mask; where the text is complete it ends with a chance of
// 1 in 4. After half of max_tokens the shortest way out is taken, one byte at a time.
Walk random_walk(TokenMasks& masks, std::mt19937& random, int max_tokens = 200);

}  // namespace tessera::grammar::testing
