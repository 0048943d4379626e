// What the functions of the CUDA runtime share: the error of the process, streams and graphs.
//
// Everything happens at once, in the order of the calls: a launch returns when its blocks have run.
// The fault of a kernel is kept, as on a device: the launch itself succeeds, and every later call
// returns the error.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <vector>

namespace tessera::emulator {

using Work = std::function<void()>;

// Remembers an error for cudaGetLastError and returns it. After a fault it is that of the fault.
cudaError_t finish(cudaError_t error = cudaSuccess);
cudaError_t last_error();
void clear_last_error();
// Ends the use of the device and says why on stderr.
void report_fault(cudaError_t error, const char* what);
bool has_faulted();

struct UserObject {  // something that graphs keep alive
  void* object;
  cudaHostFn_t destroy;
  unsigned references;

  void release(unsigned count);
};

struct Graph {
  std::vector<Work> nodes;
  std::vector<UserObject*> retained;

  ~Graph() {
    for (UserObject* object : retained) object->release(1);
  }
};

// A capture may hold several streams: those that waited for an event of one that it holds.
struct Capture {
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
  unsigned long long id = 0;
  cudaStream_t origin = nullptr;
};

struct StreamState {
  unsigned long long id = 0;
  std::shared_ptr<Capture> capture;  // null: work happens at once
};

StreamState& state_of(cudaStream_t stream);

// Does the work now, or adds it to the graph that the stream is being captured into.
cudaError_t submit(cudaStream_t stream, Work work);

// The number that an environment variable is; `otherwise` if it is not set.
long environment(const char* name, long otherwise);

}  // namespace tessera::emulator
