// Timing of steps and stages.
// SPDX-License-Identifier: MIT
#include "apps/step_clock.h"

#include "core/op_log.h"

namespace tessera::apps {
namespace {

std::string stage_name(engine::StepStage stage) { return std::string(engine::name(stage)); }

}  // namespace

StepClock::StepClock(Engine& engine)
    : engine_(dynamic_cast<engine::EngineImpl&>(engine)),
      device_stage_(engine.device().is_cpu() ? stage_name(engine::StepStage::forward)
                                             : waiting_stage()) {
  engine_.on_stage([this](engine::StepStage stage) {
    const int64_t now = steady_now_ns();
    close_stage(now);
    stages_.push_back({.name = stage_name(stage), .begin_ns = now, .end_ns = 0});
  });
}

StepClock::~StepClock() { engine_.on_stage({}); }

void StepClock::begin_step(int64_t index) {
  stages_.clear();
  step_ = {.name = "step " + std::to_string(index), .begin_ns = steady_now_ns(), .end_ns = 0};
}

void StepClock::end_step() {
  step_.end_ns = steady_now_ns();
  close_stage(step_.end_ns);
}

void StepClock::close_stage(int64_t now_ns) {
  if (!stages_.empty()) stages_.back().end_ns = now_ns;
}

double StepClock::host_seconds() const {
  int64_t sum = 0;
  for (const bench::Span& stage : stages_) {
    const bool is_device =
        stage.name == device_stage_ || stage.name == engine::name(engine::StepStage::draft);
    if (!is_device) sum += stage.end_ns - stage.begin_ns;
  }
  return static_cast<double>(sum) * 1e-9;
}

std::string waiting_stage() { return stage_name(engine::StepStage::wait); }

}  // namespace tessera::apps
