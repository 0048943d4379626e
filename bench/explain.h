// Where the time of a step goes: each operation's bytes, floor, time and the gap before it, summed
// up to the step's wall time.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/ceilings.h"
#include "bench/trace.h"
#include "core/op_log.h"

namespace tessera::bench {

// A step as it was traced. Its work is what the host launched during the step; an engine that plans
// ahead runs it while the host is already in the next step.
struct TracedStep {
  size_t index = 0;                       // into Trace::steps
  std::vector<Activity> work = {};        // by begin
  std::optional<int64_t> before_ns = {};  // the end of all earlier work; none for the first step
  int64_t end_ns = 0;                     // of its last work

  // From the end of the previous step's work to the end of its own: in a steady state, the time a
  // step takes.
  int64_t wall_ns() const { return before_ns ? end_ns - *before_ns : 0; }
};
// Steps without work are left out.
std::vector<TracedStep> traced_steps(const Trace& trace);

// Calls of one operation at one place of the step; if the place is in a repeated part, of every
// repetition.
struct ExplainedRow {
  std::string op;   // "gemm"; "copy host to device"; the name of a kernel that no operation called
  std::string row;  // "gemm_sm90_bf16"
  std::string shape;  // "16x6144x4096"
  int64_t count = 0;
  int64_t num_kernels = 0;           // of one call
  std::optional<double> bytes = {};  // of one call; none: not known
  double flops = 0;                  // of one call
  double floor_us = 0;               // of one call; 0: none
  double time_us = 0;                // of all calls
  double gap_us = 0;
};

// Rows are in the order of the step: those before the repeated part, the repeated part (the
// layers), those after it.
//
//   time  from the end of the work before it, or its own beginning if that is later, to its own
//   end:
//         kernels that overlap are counted once, and the one that ends later gets the rest
//   gap   from the end of the work before it to its beginning, if nothing ran in between
//
// so that all times and gaps add up to the wall time.
struct Explanation {
  std::vector<ExplainedRow> rows;
  size_t first_repeated = 0;  // rows [first_repeated, first_repeated + num_repeated)
  size_t num_repeated = 0;
  int64_t num_repeats = 0;
  int64_t num_missing = 0;  // launches that were recorded and do not appear in the trace

  double wall_us = 0;  // TracedStep::wall_ns
  double time_us = 0;  // sums over rows
  double gap_us = 0;
  double floor_us = 0;
  double bytes = 0;
  double busy_us = 0;  // in which at least one kernel (or call, on the CPU) ran

  double host_us = 0;    // of the step's stages without waiting; on the CPU also without its calls
  double hidden_us = 0;  // of these, while the device was busy
  std::vector<Span> stages = {};

  double busy_share() const { return wall_us > 0 ? busy_us / wall_us : 0; }
  double floor_share() const { return wall_us > 0 ? floor_us / wall_us : 0; }
};

// `log` has the operations of this step, or of one with the same batch. Work is matched to them by
// the kernels' symbols, in order. `waiting` is the name of the stage in which the host waits.
Explanation explain(const Trace& trace, const TracedStep& step, const OpLog& log,
                    const Ceilings& ceilings, std::string_view waiting);

// Operations that ran on the CPU, as work.
std::vector<Activity> work_of(const OpLog& log);

// The longest part of a sequence that repeats itself without a break: `count` times `period`
// elements from `first` on. A count of 1 if nothing repeats.
struct Repeat {
  size_t first = 0;
  size_t period = 0;
  size_t count = 1;
};
Repeat find_repeat(const std::vector<std::string>& keys);

}  // namespace tessera::bench
