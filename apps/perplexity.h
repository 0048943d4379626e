// How a text is cut for perplexity, so that results can be compared.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/score.h"

namespace tessera::apps {

// Removes lines that are exactly <|endoftext|>, which separate documents.
std::string drop_separators(std::string_view text);

// Windows of `window` tokens: the model's prefix (its begin-of-text token), then the next tokens of
// the text. Each token is in one window and scored there; a last, incomplete window is dropped.
// Without a prefix, the first token of a window is not scored, as nothing precedes it.
std::vector<ScoreJob> cut_windows(std::span<const int32_t> tokens,
                                  const std::vector<int32_t>& prefix, int64_t window);

}  // namespace tessera::apps
