// `tessera bench e2e --explain` and `--profile`: one more look at some steps of a workload.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "apps/e2e.h"
#include "bench/device_trace.h"
#include "bench/explain.h"

namespace tessera::apps {

// The host's steps that are looked at, both ends included: around the middle of decoding, or the
// last of the prompts if nothing is generated.
struct StepWindow {
  int64_t first = 0;
  int64_t last = 0;
};
StepWindow explained_window(const E2eResult& timed);

struct Look {
  bench::Trace trace;
  int64_t step = 0;  // the one that is explained
  bench::Explanation explanation;
};
// Runs the shape again: once with the operations noted and, on a GPU, once more with its work
// traced, so that noting does not slow down what is timed. Explains the step of median wall time,
// or the last step of the prompts. `tracer` is null on the CPU.
Look look_at_steps(Engine& engine, const E2eResult& timed, const bench::Ceilings& ceilings,
                   bench::DeviceTracer* tracer);

// The table a person reads, and the same as data: rows, and sums.
std::string explain_text(const Look& look, const bench::Ceilings& ceilings);
nlohmann::ordered_json explain_rows_json(const bench::Explanation& explanation);
nlohmann::ordered_json explain_sum_json(const Look& look, const bench::Ceilings& ceilings);

}  // namespace tessera::apps
