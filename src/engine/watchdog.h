// Ends the process when a step takes too long, and says where the step was.
// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <thread>

namespace tessera::engine {

// Where a step is: `draft` runs the draft model, if there is one, `assemble` takes pages and fills
// the batch, `forward` launches the model, `wait` waits until the device has run it.
enum class StepStage : uint8_t { idle, draft, plan, assemble, forward, wait, sample, commit };
std::string_view name(StepStage stage);

// A kernel that never ends blocks the step's thread inside the driver, where nothing can wake it:
// only the end of the process frees thread and device. So a second thread checks the step at
// intervals. If it has overrun, the thread writes the stage, the batch and the last launches to
// stderr and ends the process with status kStepTimeoutStatus, without running destructors, which
// would wait for the device. Between steps nothing is watched.
class Watchdog {
 public:
  explicit Watchdog(double limit_s);  // 0: no thread, no limit
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void enter(StepStage stage);  // `plan` begins a step, `idle` ends it
  void set_batch(int64_t num_rows, int64_t num_tokens);

 private:
  using Clock = std::chrono::steady_clock;

  void watch();
  [[noreturn]] void end_process(double seconds) const;

  double limit_s_;
  std::atomic<Clock::duration> began_{Clock::duration::zero()};  // zero: no step is running
  std::atomic<StepStage> stage_{StepStage::idle};
  std::atomic<int64_t> num_rows_{0};
  std::atomic<int64_t> num_tokens_{0};
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool is_stopped_ = false;
  std::thread thread_;
};

}  // namespace tessera::engine
