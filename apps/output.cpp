// Writing to the terminal, and Ctrl-C.
// SPDX-License-Identifier: MIT
#include "apps/output.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::apps {

void write_out(std::string_view text) {
  const bool is_written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (is_written) return;
  if (errno == EPIPE) throw OutputClosed{};
  throw Error(concat("the output could not be written: ", std::strerror(errno)));
}

OutputStream::OutputStream() : std::ostream(nullptr) {
  rdbuf(&buffer_);
  exceptions(std::ios::badbit);  // lets the exceptions of write_out through
}

std::streamsize OutputStream::Buffer::xsputn(const char* text, std::streamsize size) {
  write_out({text, static_cast<size_t>(size)});
  return size;
}

OutputStream::Buffer::int_type OutputStream::Buffer::overflow(int_type letter) {
  if (letter == traits_type::eof()) return 0;
  const char text = traits_type::to_char_type(letter);
  write_out({&text, 1});
  return letter;
}

void write_note(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

bool is_out_terminal() { return isatty(STDOUT_FILENO) == 1; }
bool is_note_terminal() { return isatty(STDERR_FILENO) == 1; }
bool is_in_terminal() { return isatty(STDIN_FILENO) == 1; }

std::string fixed(double value, int digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

std::string show_bytes(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return fixed(value, unit == 0 || value >= 99.95 ? 0 : 1) + " " + kUnits[unit];
}

std::string show_count(int64_t count) {
  std::string text = std::to_string(count);
  const size_t first = count < 0 ? 1 : 0;
  for (size_t end = text.size(); end > first + 3; end -= 3) text.insert(end - 3, 1, ',');
  return text;
}

std::string show_rate(double tokens_per_second) {
  const std::string value = tokens_per_second < 100
                                ? fixed(tokens_per_second, 1)
                                : show_count(static_cast<int64_t>(tokens_per_second + 0.5));
  return value + " tok/s";
}

double rounded(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return std::strtod(text.data(), nullptr);
}

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

std::string transfer_note(int64_t done, int64_t total, double seconds) {
  const auto gigabytes = [](int64_t bytes) { return fixed(static_cast<double>(bytes) * 1e-9, 1); };
  std::string note = concat(gigabytes(done), " of ", gigabytes(total), " GB");
  if (seconds > 0 && done > 0) {
    note += concat(", ", fixed(static_cast<double>(done) * 1e-9 / seconds, 1), " GB/s");
  }
  return note;
}

Progress::Progress(std::string what) : Progress(std::move(what), is_note_terminal()) {}

Progress::Progress(std::string what, bool is_shown) : what_(std::move(what)), is_shown_(is_shown) {}

Progress::~Progress() { erase(); }

void Progress::erase() {
  if (is_drawn_) write_note("\r\x1b[K");
  is_drawn_ = false;
}

void Progress::show_bytes(int64_t done, int64_t total) {
  if (!is_shown_) return;
  if (done == 0) {
    start_ = Clock::now();
    return;
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  show(done, total, transfer_note(done, total, seconds));
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

namespace {

// Global, because a signal handler can reach nothing else.
std::atomic<bool> is_interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);

}  // namespace

InterruptGuard::InterruptGuard() {
  is_interrupted = false;
  struct sigaction action = {};
  action.sa_handler = [](int) { is_interrupted = true; };
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a read at the prompt must return
  sigaction(SIGINT, &action, &previous_);
}

InterruptGuard::~InterruptGuard() { sigaction(SIGINT, &previous_, nullptr); }

bool InterruptGuard::is_raised() const { return is_interrupted; }
void InterruptGuard::clear() { is_interrupted = false; }

}  // namespace tessera::apps
