// The bar's line, and when it is drawn.
// SPDX-License-Identifier: MIT
#include "apps/progress.h"

#include <algorithm>
#include <utility>

#include "apps/output.h"
#include "core/text.h"

namespace tessera::apps {

std::string progress_line(std::string_view what, int64_t done, int64_t total, double seconds,
                          std::string_view note) {
  constexpr int kWidth = 24;
  const double share =
      total <= 0 ? 0.0
                 : std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const auto filled = static_cast<size_t>(share * kWidth);
  std::string line = concat(what, " [", std::string(filled, '#'), std::string(kWidth - filled, '-'),
                            "] ", fixed(share * 100, 0), " %");
  if (share > 0 && share < 1 && seconds >= 1) {
    const auto left = static_cast<int64_t>(seconds / share * (1 - share) + 0.5);
    line += concat("  ", left / 60, ":", left % 60 < 10 ? "0" : "", left % 60, " left");
  }
  if (!note.empty()) line += concat("  ", note);
  return line;
}

Progress::Progress(std::string what) : Progress(std::move(what), is_note_terminal()) {}

Progress::Progress(std::string what, bool is_shown) : what_(std::move(what)), is_shown_(is_shown) {}

Progress::~Progress() {
  if (is_drawn_) write_note("\r\x1b[K");
}

void Progress::show(int64_t done, int64_t total, std::string_view note) {
  if (!is_shown_) return;
  const Clock::time_point now = Clock::now();
  if (is_drawn_ && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  is_drawn_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  write_note(concat("\r\x1b[K", progress_line(what_, done, total, seconds, note)));
}

}  // namespace tessera::apps
