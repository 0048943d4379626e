// The terminal: standard output and error, figures for people, a progress bar, Ctrl-C.
// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

namespace tessera::apps {

// The reader of standard output has gone (`tessera run | head -1`): nothing is left to do, and
// nothing is wrong.
struct OutputClosed {};

// Writes and flushes. Throws OutputClosed for a closed pipe, Error for a full disk.
void write_out(std::string_view text);
// A stream to standard output that writes as write_out does, and throws what it throws.
class OutputStream : public std::ostream {
 public:
  OutputStream();

 private:
  struct Buffer : std::streambuf {
    std::streamsize xsputn(const char* text, std::streamsize size) override;
    int_type overflow(int_type letter) override;
  };
  Buffer buffer_;
};
// To standard error, whatever becomes of it.
void write_note(std::string_view text);

bool is_out_terminal();
bool is_note_terminal();
bool is_in_terminal();

std::string fixed(double value, int digits);      // fixed(2.5, 2) == "2.50"
std::string show_bytes(int64_t bytes);            // "25.2 MB", powers of 1000
std::string show_count(int64_t count);            // "12,601,728"
std::string show_rate(double tokens_per_second);  // "1,234 tok/s", "12.3 tok/s"

// A figure of a JSON report: four significant digits, the rest is noise.
double rounded(double value);

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

// While one lives, SIGINT is only noted, and blocking reads return with EINTR. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  bool is_raised() const;
  void clear();

 private:
  struct sigaction previous_ = {};
};

}  // namespace tessera::apps
