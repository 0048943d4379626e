// Edit distance with swaps, over a table of two words' prefixes.
// SPDX-License-Identifier: MIT
#include "apps/suggest.h"

#include <algorithm>
#include <vector>

#include "core/text.h"

namespace tessera::apps {

size_t edit_distance(std::string_view a, std::string_view b) {
  const size_t width = b.size() + 1;
  std::vector<size_t> table((a.size() + 1) * width);  // [prefix of a, prefix of b]
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      size_t& cell = table[i * width + j];
      if (i == 0 || j == 0) {
        cell = i + j;
        continue;
      }
      const size_t replaced = table[(i - 1) * width + j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cell = std::min({table[(i - 1) * width + j] + 1, table[i * width + j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cell = std::min(cell, table[(i - 2) * width + j - 2] + 1);
      }
    }
  }
  return table.back();
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  const size_t most = std::max<size_t>(1, word.size() / 3);
  std::string best;
  size_t best_distance = most + 1;
  for (const std::string& candidate : candidates) {
    const bool is_beginning = word.size() >= 3 && candidate.starts_with(word);
    const size_t distance = is_beginning ? 1 : edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const std::string found = nearest(word, candidates);
  return found.empty() ? std::string() : concat("; did you mean ", found, "?");
}

}  // namespace tessera::apps
