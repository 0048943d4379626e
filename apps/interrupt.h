// Ctrl-C as a question the work asks, instead of the end of the program.
// SPDX-License-Identifier: MIT
#pragma once

#include <csignal>

namespace tessera::apps {

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
