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

// Thrown when the reader of standard output is gone (`tessera run | head -1`): not an error.
struct OutputClosed {};

// Writes and flushes. Throws OutputClosed for a closed pipe, Error for a full disk.
void write_out(std::string_view text);
// A stream to standard output by write_out, with its exceptions.
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
// Writes to standard error and ignores failure.
void write_note(std::string_view text);

bool is_out_terminal();
bool is_note_terminal();
bool is_in_terminal();

std::string fixed(double value, int digits);      // fixed(2.5, 2) == "2.50"
std::string show_bytes(int64_t bytes);            // "25.2 MB", powers of 1000
std::string show_count(int64_t count);            // "12,601,728"
std::string show_rate(double tokens_per_second);  // "1,234 tok/s", "12.3 tok/s"

// For JSON reports: four significant digits, since the rest is noise.
double rounded(double value);

// "evaluating [######--------]  43 %  0:12 left  ppl 24.91", without a newline.
std::string progress_line(std::string_view what, int64_t done, int64_t total, double seconds,
                          std::string_view note);

// "3.2 of 16.1 GB, 21.4 GB/s".
std::string transfer_note(int64_t done, int64_t total, double seconds);

// A progress bar on standard error, drawn at most ten times a second and only on a terminal. Erased
// when destroyed.
class Progress {
 public:
  explicit Progress(std::string what);
  Progress(std::string what, bool is_shown);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(int64_t done, int64_t total, std::string_view note = {});
  // The same for bytes, with the rate and the time left. Call it with 0 bytes when reading begins.
  void show_bytes(int64_t done, int64_t total);
  void erase();  // until the next show

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  bool is_shown_;
  bool is_drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = {};
};

// While it exists, SIGINT only sets a flag, and blocking reads return EINTR. At most one at a time.
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
