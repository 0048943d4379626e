// Finds stop strings in text that arrives in pieces.
// SPDX-License-Identifier: MIT
#include "text/text_stream.h"

#include <algorithm>

namespace tessera::text {
namespace {

struct Match {
  size_t begin = std::string::npos;
  size_t end = std::string::npos;
};

Match first_complete(std::string_view text, const std::vector<std::string>& stops) {
  Match best;
  for (const std::string& stop : stops) {
    const size_t begin = text.find(stop);
    if (begin == std::string_view::npos) continue;
    const size_t end = begin + stop.size();
    if (end < best.end || (end == best.end && begin < best.begin)) best = {begin, end};
  }
  return best;
}

// Length of the longest suffix of `text` that is a prefix of some stop string.
size_t num_undecided(std::string_view text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t length = std::min(text.size(), stop.size() - 1); length > longest; --length) {
      if (text.ends_with(std::string_view(stop).substr(0, length))) longest = length;
    }
  }
  return longest;
}

}  // namespace

bool StopText::push(std::string_view piece, const std::vector<std::string>& stops,
                    std::string& out) {
  if (stops.empty()) {
    out.append(piece);
    return false;
  }
  held_.append(piece);
  const Match match = first_complete(held_, stops);
  const bool is_complete = match.begin != std::string::npos;
  const size_t decided = is_complete ? match.begin : held_.size() - num_undecided(held_, stops);
  out.append(held_, 0, decided);
  held_.erase(0, is_complete ? held_.size() : decided);
  return is_complete;
}

void StopText::flush(std::string& out) {
  out.append(held_);
  held_.clear();
}

}  // namespace tessera::text
