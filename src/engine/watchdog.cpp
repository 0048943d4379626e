// The thread that watches steps, and the message it leaves.
// SPDX-License-Identifier: MIT
#include "engine/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <string>

#include "core/launch_log.h"
#include "core/text.h"
#include "tessera/engine/engine.h"

namespace tessera::engine {
namespace {

using Seconds = std::chrono::duration<double>;

// At least once a second, and often enough that a step overruns its limit by a quarter at most.
Seconds time_between_checks(double limit_s) { return Seconds(std::min(1.0, limit_s / 4)); }

}  // namespace

std::string_view name(StepStage stage) {
  switch (stage) {
    case StepStage::idle: return "idle";
    case StepStage::draft: return "draft";
    case StepStage::plan: return "plan";
    case StepStage::assemble: return "assemble";
    case StepStage::forward: return "forward";
    case StepStage::wait: return "wait";
    case StepStage::sample: return "sample";
    case StepStage::commit: return "commit";
  }
  return "unknown";
}

Watchdog::Watchdog(double limit_s) : limit_s_(limit_s) {
  if (limit_s_ > 0) thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  stopped_.notify_one();
  thread_.join();
}

void Watchdog::enter(StepStage stage) {
  stage_ = stage;
  if (stage == StepStage::plan) {
    set_batch(0, 0);
    began_ = Clock::now().time_since_epoch();
  } else if (stage == StepStage::idle) {
    began_ = Clock::duration::zero();
  }
}

void Watchdog::set_batch(int64_t num_rows, int64_t num_tokens) {
  num_rows_ = num_rows;
  num_tokens_ = num_tokens;
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, time_between_checks(limit_s_), [this] { return is_stopped_; })) {
    const Clock::duration began = began_;
    if (began == Clock::duration::zero()) continue;
    const double seconds = Seconds(Clock::now().time_since_epoch() - began).count();
    if (seconds > limit_s_) end_process(seconds);
  }
}

void Watchdog::end_process(double seconds) const {
  const std::string text = concat("tessera: a step has taken ", static_cast<int64_t>(seconds * 1e3),
                                  " ms, and its limit is ", static_cast<int64_t>(limit_s_ * 1e3),
                                  " (--step-timeout): it hangs in ", name(stage_), ", with ",
                                  num_rows_.load(), " sequences and ", num_tokens_.load(),
                                  " tokens in the batch; last kernels launched: ", last_launches(),
                                  "; the process ends with status ", kStepTimeoutStatus, "\n");
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) {
    // Nothing can be done about it; the exit status still tells.
  }
  _exit(kStepTimeoutStatus);
}

}  // namespace tessera::engine
