// End-to-end workloads: prompts in, tokens out, timed step by step through the engine.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "apps/step_clock.h"
#include "bench/power.h"
#include "tessera/engine/engine.h"

namespace tessera::apps {

// `batch` sequences of `prompt` random tokens, each followed by `generate` greedy tokens.
struct E2eShape {
  int64_t batch = 1;
  int64_t prompt = 512;
  int64_t generate = 128;

  int64_t num_tokens() const { return prompt + generate; }  // per sequence
};

struct E2eWorkload {
  std::string name;
  std::vector<E2eShape> shapes;
};

// e2e/single, e2e/locked, e2e/batch64, e2e/prefill, e2e/context.
const std::vector<E2eWorkload>& e2e_workloads();
std::string e2e_workload_names();  // "e2e/single, e2e/locked, …"
// One of those, with or without "e2e/", or pp512, tg128, pp512+tg128; none for other names.
std::optional<E2eWorkload> find_e2e_workload(std::string_view name);

// Energy that a GPU took, and the tokens computed with it: generated ones, or those of the prompts
// if nothing was generated.
struct Energy {
  double joules = 0;
  double seconds = 0;
  int64_t tokens = 0;
};

// One run of the whole batch.
struct Pass {
  double seconds = 0;  // from the first step to the last output
  double prefill_seconds = 0;
  std::vector<double> step_seconds = {};
  int64_t num_decoded = 0;                // tokens of these steps
  std::vector<double> host_seconds = {};  // of the same steps: StepClock::host_seconds
  EngineMetrics fullest = {};             // at the step with the most pages in use
  int64_t num_steps = 0;
  int64_t num_prefill_steps = 0;  // until every sequence had a token
  std::optional<Energy> energy = {};
};
struct PassWatch {
  std::function<void(int64_t step)> before_step = {};
  std::function<void(const StepClock& clock, int64_t step)> after_step = {};
  const bench::PowerMeter* power = nullptr;
};
using ConstraintPtr = std::shared_ptr<const Constraint>;

// A step counts as decoding once every sequence has its first token. If there is a constraint,
// every sequence is held to it.
Pass run_pass(Engine& engine, const E2eShape& shape, std::mt19937& random,
              const PassWatch& watch = {}, const ConstraintPtr& constraint = {});

struct E2eResult {
  E2eShape shape;
  double pass_seconds = 0;                // median over the repeats, until the last output
  double prefill_seconds = 0;             // likewise, until every sequence has a token
  std::vector<double> step_seconds = {};  // of steps that made a token for each sequence
  int64_t num_decoded = 0;                // tokens of these steps
  std::vector<double> host_seconds = {};  // of the same steps
  EngineMetrics metrics = {};             // at the step with the most pages in use
  int64_t num_steps = 0;                  // of one pass
  int64_t num_prefill_steps = 0;
  std::optional<Energy> energy = {};  // of all repeats

  double prefill_rate() const;  // tokens a second
  double decode_rate() const;   // tokens a second over step_seconds; 0: nothing was generated
};

// Engine options with room for all KV pages of the shape, of page_bytes each, and no prefix cache.
EngineOptions e2e_options(EngineOptions options, const E2eShape& shape, int64_t page_bytes);

// Runs the shape `num_warmup + num_repeats` times; only the last num_repeats are timed.
E2eResult run_e2e(Engine& engine, const E2eShape& shape, int num_warmup, int num_repeats,
                  const ConstraintPtr& constraint = {}, uint32_t seed = 7);

}  // namespace tessera::apps
