// A bar for long work, on a terminal only.
// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::apps {

// "evaluating [######--------]  43 %  0:12 left  ppl 24.91", without the line's end.
std::string progress_line(std::string_view what, int64_t done, int64_t total, double seconds,
                          std::string_view note);

// Draws on standard error where that is a terminal, ten times a second at most; otherwise silent.
// The line is wiped when the bar goes.
class Progress {
 public:
  explicit Progress(std::string what);
  Progress(std::string what, bool is_shown);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(int64_t done, int64_t total, std::string_view note = {});

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  bool is_shown_;
  bool is_drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = {};
};

}  // namespace tessera::apps
