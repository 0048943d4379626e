// The rule by which a text's perplexity is taken, so that figures can be laid side by side.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/score.h"

namespace tessera::apps {

// The text without the lines that are exactly <|endoftext|>, which mark where documents meet.
std::string drop_separators(std::string_view text);

// Windows of `window` tokens: the model's prefix (its begin-of-text token) and the next tokens of
// the text, each token of the text in one window and scored there. What is left at the end and
// fills no window is dropped. Without a prefix a window's first token has nothing to be scored by.
std::vector<ScoreJob> cut_windows(std::span<const int32_t> tokens,
                                  const std::vector<int32_t>& prefix, int64_t window);

}  // namespace tessera::apps
