// The signal handler: it sets a flag and nothing else.
// SPDX-License-Identifier: MIT
#include "apps/interrupt.h"

#include <atomic>

namespace tessera::apps {
namespace {

// A signal handler can reach nothing but a global.
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
