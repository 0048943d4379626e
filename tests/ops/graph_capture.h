// Streams and captured graphs that are destroyed with their scope.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "core/cuda_check.h"

namespace tessera::testing {

class OwnStream {
 public:
  OwnStream() {
    cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  OwnStream(OwnStream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  OwnStream& operator=(OwnStream&& other) = delete;
  ~OwnStream() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  cudaStream_t get() const { return stream_; }
  void wait() const { cuda_check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

// What `work` puts on the stream, as a graph. It may throw: then there is no graph.
class Graph {
 public:
  template <class Work>
  Graph(const OwnStream& stream, const Work& work) {
    cuda_check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal), "begin capture");
    try {
      work();
    } catch (...) {
      if (cudaStreamEndCapture(stream.get(), &graph_) == cudaSuccess) cudaGraphDestroy(graph_);
      cudaGetLastError();
      throw;
    }
    cuda_check(cudaStreamEndCapture(stream.get(), &graph_), "end capture");
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    forget_graph();
    if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
  }

  void instantiate() { cuda_check(cudaGraphInstantiate(&exec_, graph_, 0), "instantiate"); }
  void forget_graph() {  // as PyTorch does once there is an executable
    if (graph_ != nullptr) cudaGraphDestroy(std::exchange(graph_, nullptr));
  }
  void replay(const OwnStream& stream) const {
    cuda_check(cudaGraphLaunch(exec_, stream.get()), "cudaGraphLaunch");
  }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

}  // namespace tessera::testing
