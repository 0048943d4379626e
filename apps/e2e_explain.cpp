// Passes that note operations and trace the device.
// SPDX-License-Identifier: MIT
#include "apps/e2e_explain.h"

#include <algorithm>
#include <map>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::apps {
namespace {

constexpr int64_t kStepsBeside = 4;  // on either side of the middle
constexpr int64_t kPromptSteps = 4;  // the last of the prompts
constexpr uint32_t kSeed = 7;

using Logs = std::map<int64_t, OpLog>;

bool is_inside(const StepWindow& window, int64_t step) {
  return step >= window.first && step <= window.last;
}

void add_host(bench::Trace& trace, const StepClock& clock) {
  trace.steps.push_back(clock.step());
  trace.stages.insert(trace.stages.end(), clock.stages().begin(), clock.stages().end());
}

// On the CPU this is all there is to see: the trace is made of the calls.
Logs run_noted(Engine& engine, const E2eShape& shape, const StepWindow& window,
               bench::Trace& trace) {
  Logs logs;
  std::optional<OpLogScope> scope;
  const bool is_cpu = engine.device().is_cpu();
  const auto before = [&](int64_t step) {
    if (is_inside(window, step)) scope.emplace(logs[step]);
  };
  const auto after = [&](const StepClock& clock, int64_t step) {
    scope.reset();
    if (!is_cpu || !is_inside(window, step)) return;
    add_host(trace, clock);
    for (bench::Activity& work : bench::work_of(logs[step])) {
      trace.device.push_back(std::move(work));
    }
  };
  std::mt19937 random(kSeed);
  run_pass(engine, shape, random, {.before_step = before, .after_step = after});
  return logs;
}

void run_traced(Engine& engine, const E2eShape& shape, const StepWindow& window,
                bench::DeviceTracer& tracer, bench::Trace& trace) {
  const auto before = [&](int64_t step) {
    if (step == window.first) tracer.start();
  };
  const auto after = [&](const StepClock& clock, int64_t step) {
    if (is_inside(window, step)) add_host(trace, clock);
    if (step == window.last) tracer.stop(trace);
  };
  std::mt19937 random(kSeed);
  run_pass(engine, shape, random, {.before_step = before, .after_step = after});
}

bool has_prompt(const OpLog& log) {
  return std::ranges::any_of(log.calls,
                             [](const OpCall& call) { return call.op == "attention_prefill"; });
}

// Of steps that have operations. While decoding the one of median wall time, of those whose wall
// time is known; otherwise the last with a prompt.
const bench::TracedStep* choose(const std::vector<const bench::TracedStep*>& steps,
                                const std::vector<const OpLog*>& logs, bool is_decode) {
  std::vector<const bench::TracedStep*> timed;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (is_decode && steps[i]->before_ns) timed.push_back(steps[i]);
    if (!is_decode && has_prompt(*logs[i])) timed = {steps[i]};
  }
  if (timed.empty()) return steps.empty() ? nullptr : steps.back();
  std::ranges::sort(timed, {}, [](const bench::TracedStep* step) { return step->wall_ns(); });
  return timed[timed.size() / 2];
}

}  // namespace

StepWindow explained_window(const E2eResult& timed) {
  const int64_t prompts = timed.num_prefill_steps, all = timed.num_steps;
  if (timed.shape.generate == 0) return {std::max<int64_t>(0, prompts - kPromptSteps), all - 1};
  const int64_t middle = prompts + (all - prompts) / 2;
  return {std::max(prompts, middle - kStepsBeside), std::min(all - 1, middle + kStepsBeside)};
}

Look look_at_steps(Engine& engine, const E2eResult& timed, const bench::Ceilings& ceilings,
                   bench::DeviceTracer* tracer) {
  const StepWindow window = explained_window(timed);
  Look look;
  Logs logs = run_noted(engine, timed.shape, window, look.trace);
  if (tracer != nullptr) run_traced(engine, timed.shape, window, *tracer, look.trace);
  const std::vector<bench::TracedStep> steps = bench::traced_steps(look.trace);
  std::vector<const bench::TracedStep*> candidates;
  std::vector<const OpLog*> of_candidates;
  for (const bench::TracedStep& step : steps) {
    const auto found = logs.find(window.first + static_cast<int64_t>(step.index));
    if (found == logs.end() || found->second.calls.empty()) continue;
    candidates.push_back(&step);
    of_candidates.push_back(&found->second);
  }
  const bench::TracedStep* chosen = choose(candidates, of_candidates, timed.shape.generate > 0);
  if (chosen == nullptr) {
    fail(concat("bench e2e: nothing to explain: of steps ", window.first, " to ", window.last, ", ",
                steps.size(), " have traced work and ", logs.size(), " noted operations"));
  }
  look.step = window.first + static_cast<int64_t>(chosen->index);
  look.explanation =
      bench::explain(look.trace, *chosen, logs[look.step], ceilings, waiting_stage());
  return look;
}

}  // namespace tessera::apps
