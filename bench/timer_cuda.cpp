// Batches as CUDA graphs, timed by events.
// SPDX-License-Identifier: MIT
#include <cuda_runtime_api.h>

#include <map>

#include "bench/timer.h"
#include "core/cuda_check.h"

namespace tessera::bench {
namespace {

// One stream per device is used for all batches and kept: what a row keeps per stream, such as
// cuBLASLt's workspace, then exists once, however many shapes are timed.
cudaStream_t stream_of(Device device) {
  static std::map<int, cudaStream_t> streams;
  cudaStream_t& stream = streams[device.index];
  if (stream == nullptr) {
    cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "bench: stream");
  }
  return stream;
}

// The current device must be the one the batch was made for.
class GraphBatch : public Batch {
 public:
  GraphBatch(cudaStream_t stream, int64_t num_calls, const Call& call) : stream_(stream) {
    cuda_check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
               "bench: begin capture");
    cudaGraph_t graph = nullptr;
    try {
      for (int64_t i = 0; i < num_calls; ++i) call(i, Context{.stream = stream_, .row = {}});
    } catch (...) {
      cudaStreamEndCapture(stream_, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      throw;
    }
    cuda_check(cudaStreamEndCapture(stream_, &graph), "bench: end capture");
    cuda_check(cudaGraphInstantiate(&exec_, graph, 0), "bench: instantiate graph");
    cuda_check(cudaGraphDestroy(graph), "bench: destroy graph");
    cuda_check(cudaGraphUpload(exec_, stream_), "bench: upload graph");
    cuda_check(cudaStreamSynchronize(stream_), "bench: upload graph");
  }

  ~GraphBatch() override {
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
    cudaGraphExecDestroy(exec_);
  }

  // All replays are queued before waiting for the first, so that the device's work hides the host's
  // launch latency. One extra replay at the front absorbs the latency of the start.
  std::vector<double> run(int count) override {
    while (events_.size() < static_cast<size_t>(count) + 1) {
      cuda_check(cudaEventCreate(&events_.emplace_back()), "bench: event");
    }
    cuda_check(cudaGraphLaunch(exec_, stream_), "bench: replay");
    cuda_check(cudaEventRecord(events_[0], stream_), "bench: record");
    for (int i = 0; i < count; ++i) {
      cuda_check(cudaGraphLaunch(exec_, stream_), "bench: replay");
      cuda_check(cudaEventRecord(events_[static_cast<size_t>(i) + 1], stream_), "bench: record");
    }
    cuda_check(cudaStreamSynchronize(stream_), "bench: wait for replays");
    std::vector<double> times;
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      float ms = 0;
      cuda_check(cudaEventElapsedTime(&ms, events_[i], events_[i + 1]), "bench: elapsed time");
      times.push_back(1e3 * static_cast<double>(ms));
    }
    return times;
  }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t exec_ = nullptr;
  std::vector<cudaEvent_t> events_;
};

}  // namespace

std::unique_ptr<Batch> make_cuda_batch(Device device, int64_t num_calls, const Call& call) {
  const DeviceGuard guard(device);
  return std::make_unique<GraphBatch>(stream_of(device), num_calls, call);
}

}  // namespace tessera::bench
