// Windows of a text.
// SPDX-License-Identifier: MIT
#include "apps/perplexity_rule.h"

#include <algorithm>

#include "apps/options.h"
#include "core/text.h"

namespace tessera::apps {

std::string drop_separators(std::string_view text) {
  constexpr std::string_view kSeparator = "<|endoftext|>";
  std::string kept;
  kept.reserve(text.size());
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const size_t next = std::min(end + 1, text.size());
    if (text.substr(0, end) != kSeparator) kept += text.substr(0, next);
    text.remove_prefix(next);
  }
  return kept;
}

std::vector<ScoreJob> cut_windows(std::span<const int32_t> tokens,
                                  const std::vector<int32_t>& prefix, int64_t window) {
  const auto num_prefix = static_cast<int64_t>(prefix.size());
  const int64_t num_taken = window - num_prefix;
  // One token to predict, and at least one before it.
  const int64_t least = std::max<int64_t>(2, num_prefix + 1);
  if (window < least) {
    throw UsageError(concat("--window is ", window, "; it must be at least ", least));
  }
  std::vector<ScoreJob> windows;
  for (size_t begin = 0; begin + static_cast<size_t>(num_taken) <= tokens.size();
       begin += static_cast<size_t>(num_taken)) {
    ScoreJob job = {.tokens = prefix, .num_scored = num_prefix > 0 ? num_taken : num_taken - 1};
    const auto part = tokens.subspan(begin, static_cast<size_t>(num_taken));
    job.tokens.insert(job.tokens.end(), part.begin(), part.end());
    windows.push_back(std::move(job));
  }
  return windows;
}

}  // namespace tessera::apps
