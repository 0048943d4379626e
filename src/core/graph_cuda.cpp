// Streams, events and graphs on the CUDA runtime.
// SPDX-License-Identifier: MIT
#include <cuda_runtime_api.h>

#include "core/cuda_check.h"
#include "core/device_backend.h"

// Destruction may come after the CUDA runtime has ended, or after a fault; then its failure does
// not matter, and the error is cleared so that no later call reports it.
namespace tessera::backend {

Stream create_stream(Device device) {
  const DeviceGuard guard(device);
  cudaStream_t stream = nullptr;
  cuda_check(cudaStreamCreate(&stream), "cudaStreamCreate");
  return stream;
}

void destroy_stream(Device, Stream stream) noexcept {
  if (cudaStreamDestroy(stream) != cudaSuccess) cudaGetLastError();
}

void* create_event(Device device) {
  const DeviceGuard guard(device);
  cudaEvent_t event = nullptr;
  cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  return event;
}

void destroy_event(Device, void* event) noexcept {
  if (cudaEventDestroy(static_cast<cudaEvent_t>(event)) != cudaSuccess) cudaGetLastError();
}

void record_event(Device device, void* event, Stream stream) {
  const DeviceGuard guard(device);
  cuda_check(cudaEventRecord(static_cast<cudaEvent_t>(event), stream), "cudaEventRecord");
}

void wait_for_event(Device device, void* event) {
  const DeviceGuard guard(device);
  cuda_check(cudaEventSynchronize(static_cast<cudaEvent_t>(event)), "cudaEventSynchronize");
}

// Relaxed: a kernel that is used for the first time is loaded while the capture runs.
void begin_capture(Device device, Stream stream) {
  const DeviceGuard guard(device);
  cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed),
             "cudaStreamBeginCapture");
}

void drop_capture(Device, Stream stream) noexcept {
  cudaGraph_t graph = nullptr;
  if (cudaStreamEndCapture(stream, &graph) != cudaSuccess) cudaGetLastError();
  if (graph != nullptr && cudaGraphDestroy(graph) != cudaSuccess) cudaGetLastError();
}

void* end_capture(Device device, Stream stream) {
  const DeviceGuard guard(device);
  cudaGraph_t graph = nullptr;
  cuda_check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  cuda_check(status, "cudaGraphInstantiate");
  return executable;
}

void launch_graph(Device device, void* graph, Stream stream) {
  const DeviceGuard guard(device);
  cuda_check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream), "cudaGraphLaunch");
}

void destroy_graph(Device, void* graph) noexcept {
  if (cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)) != cudaSuccess) cudaGetLastError();
}

}  // namespace tessera::backend
