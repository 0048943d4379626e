// A string in runs of one origin.
// SPDX-License-Identifier: MIT
#include "text/chat/text.h"

#include <algorithm>

namespace tessera::chat {

void Text::append(std::string_view bytes, bool is_control) {
  if (bytes.empty()) return;
  bytes_.append(bytes);
  if (!runs_.empty() && runs_.back().is_control == is_control) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), is_control});
  }
}

size_t Text::run_at(size_t position) const {
  const auto ends_after = [](size_t value, const Run& run) { return value < run.end; };
  const auto it = std::upper_bound(runs_.begin(), runs_.end(), position, ends_after);
  return static_cast<size_t>(it - runs_.begin());
}

}  // namespace tessera::chat
