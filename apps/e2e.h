// End-to-end workloads: prompts in, tokens out, timed step by step through the engine.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

// e2e/single, e2e/locked, e2e/prefill.
const std::vector<E2eWorkload>& e2e_workloads();
// One of those, with or without "e2e/", or pp512, tg128, pp512+tg128; none for other names.
std::optional<E2eWorkload> find_e2e_workload(std::string_view name);

struct E2eResult {
  E2eShape shape;
  double prefill_seconds = 0;  // median over the repeats, until every sequence has a token
  std::vector<double> step_seconds =
      {};                      // of steps that made one token for each sequence and no more
  EngineMetrics metrics = {};  // at the step with the most pages in use

  double prefill_rate() const;  // tokens a second
  double decode_rate() const;   // tokens a second over step_seconds; 0: nothing was generated
};

// Engine options with room for all KV pages of the shape, of page_bytes each, and no prefix cache.
EngineOptions e2e_options(EngineOptions options, const E2eShape& shape, int64_t page_bytes);

// Runs the shape `num_warmup + num_repeats` times; only the last num_repeats are timed.
E2eResult run_e2e(Engine& engine, const E2eShape& shape, int num_warmup, int num_repeats);

}  // namespace tessera::apps
