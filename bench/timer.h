// Batches of calls that are recorded once and timed many times.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tessera/core/context.h"
#include "tessera/core/device.h"

namespace tessera::bench {

using Call = std::function<void(int64_t index, const Context& ctx)>;

class Batch {
 public:
  virtual ~Batch() = default;
  // Runs the batch `count` times back to back, and returns how long each took in microseconds.
  virtual std::vector<double> run(int count) = 0;
};

// Calls 0 … num_calls - 1. On a GPU they become one CUDA graph: gaps between launches are then the
// device's own. On the CPU they are simply called.
std::unique_ptr<Batch> make_batch(Device device, int64_t num_calls, const Call& call);
// The CUDA half of it (timer_cuda.cpp; refused by timer_none.cpp).
std::unique_ptr<Batch> make_cuda_batch(Device device, int64_t num_calls, const Call& call);

// Microseconds of one call: over the batches timed, the median and the 10th and 90th percentiles.
struct Timing {
  double us = 0;
  double p10 = 0;
  double p90 = 0;
  int64_t num_calls = 0;  // in a batch
  int num_batches = 0;
  std::shared_ptr<Batch> batch;  // to run on, while energy is measured
};

struct TimerOptions {
  int num_warmup = 3;           // batches run before any is timed
  int num_batches = 0;          // timed; 0: enough for `seconds`
  double seconds = 0.15;        // of timed batches, where their number is not given
  double least_batch_us = 500;  // long enough that gaps between graphs do not count
  int64_t least_calls = 20;     // in a GPU's batch
};

// A batch that has been recorded and run: its next run loads, compiles and chooses nothing.
struct WarmBatch {
  std::shared_ptr<Batch> batch;
  int64_t num_calls = 0;
  double batch_us = 0;  // roughly, and never 0
};

// A batch of calls on `num_sets` input sets in turn, each set equally often.
WarmBatch warm_batch(Device device, int64_t num_sets, const Call& call,
                     const TimerOptions& options);
// The Timing of samples: microseconds of one call, one figure per timed batch.
Timing timing_of(const WarmBatch& warm, const std::vector<double>& call_times);

// Times such a batch.
Timing time_calls(Device device, int64_t num_sets, const Call& call, const TimerOptions& options);

// The value below which a share of the samples lies: percentile(samples, 0.5) is the median.
double percentile(std::vector<double> samples, double share);

}  // namespace tessera::bench
