// When the steps of an engine and their stages begin and end, on the clock of bench/trace.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/trace.h"
#include "engine/engine_impl.h"
#include "tessera/engine/engine.h"

namespace tessera::apps {

class StepClock {
 public:
  // Uses the engine's hook for stages until it is destroyed; the engine must live longer.
  explicit StepClock(Engine& engine);
  ~StepClock();
  StepClock(const StepClock&) = delete;
  StepClock& operator=(const StepClock&) = delete;

  void begin_step(int64_t index);
  void end_step();

  const bench::Span& step() const { return step_; }  // the last one
  const std::vector<bench::Span>& stages() const { return stages_; }
  // Of the last step: without waiting for a GPU, or without the model itself on the CPU.
  double host_seconds() const;

 private:
  void close_stage(int64_t now_ns);

  engine::EngineImpl& engine_;
  bench::Span step_;
  std::vector<bench::Span> stages_;  // of the last step
  std::string device_stage_;         // the one in which the device works and the host does not
};

// The stage in which the host only waits for a GPU.
std::string waiting_stage();

}  // namespace tessera::apps
