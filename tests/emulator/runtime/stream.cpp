// Streams, events and graphs. A graph is the list of what was submitted during its capture.
// SPDX-License-Identifier: MIT
#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <utility>

#include "tests/emulator/runtime/state.h"

namespace tessera::emulator {
namespace {

struct Event {
  std::chrono::steady_clock::time_point time;
  std::shared_ptr<Capture> capture;  // of the stream that recorded it
};

Event* event_of(cudaEvent_t event) { return reinterpret_cast<Event*>(event); }
Graph* graph_of(cudaGraph_t graph) { return reinterpret_cast<Graph*>(graph); }
Graph* graph_of(cudaGraphExec_t graph) { return reinterpret_cast<Graph*>(graph); }
UserObject* user_object_of(cudaUserObject_t object) {
  return reinterpret_cast<UserObject*>(object);
}

// A capture ends for all its streams, so one whose graph has been taken counts as none.
Capture* capture_of(StreamState& state) {
  if (state.capture != nullptr && state.capture->graph == nullptr) state.capture.reset();
  return state.capture.get();
}

cudaStreamCaptureStatus status_of(StreamState& state) {
  return capture_of(state) != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
}

}  // namespace
}  // namespace tessera::emulator

using namespace tessera::emulator;  // NOLINT: the functions of the runtime have C linkage

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(new char);
  state_of(*stream) = {};
  return finish();
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  state_of(stream) = {};
  delete reinterpret_cast<char*>(stream);
  return finish();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (capture_of(state_of(stream)) != nullptr) return finish(cudaErrorStreamCaptureUnsupported);
  return finish();
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  *id = state_of(stream).id;
  return finish();
}

// What an event was recorded in goes on here: a stream that waits for a captured one joins it.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const auto& capture = event_of(event)->capture;
  if (capture != nullptr && capture->graph != nullptr) state_of(stream).capture = capture;
  return finish();
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  static std::atomic<unsigned long long> next_id{1};
  StreamState& state = state_of(stream);
  if (capture_of(state) != nullptr) return finish(cudaErrorIllegalState);
  state.capture = std::make_shared<Capture>();
  state.capture->id = next_id++;
  state.capture->origin = stream;
  return finish();
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  StreamState& state = state_of(stream);
  *graph = nullptr;
  if (capture_of(state) == nullptr) return finish(cudaErrorIllegalState);
  if (state.capture->origin != stream) return finish(cudaErrorStreamCaptureUnmatched);
  *graph = reinterpret_cast<cudaGraph_t>(state.capture->graph.release());
  state.capture.reset();
  return finish();
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = status_of(state_of(stream));
  return finish();
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* num_dependencies) {
  StreamState& state = state_of(stream);
  *status = status_of(state);
  const Capture* const capture = capture_of(state);
  if (id != nullptr) *id = capture != nullptr ? capture->id : 0;
  if (graph != nullptr) {
    *graph = capture != nullptr ? reinterpret_cast<cudaGraph_t>(capture->graph.get()) : nullptr;
  }
  if (dependencies != nullptr) *dependencies = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (num_dependencies != nullptr) *num_dependencies = 0;
  return finish();
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return finish(); }

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  auto* const copy = new Graph(*graph_of(graph));
  for (UserObject* object : copy->retained) ++object->references;
  *executable = reinterpret_cast<cudaGraphExec_t>(copy);
  return finish();
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph_of(graph);
  return finish();
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph_of(graph);
  return finish();
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  for (const Work& work : graph_of(graph)->nodes) {
    const cudaError_t error = submit(stream, work);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return finish(); }

cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* value, cudaHostFn_t destroy,
                                 unsigned references, unsigned) {
  *object = reinterpret_cast<cudaUserObject_t>(new UserObject{value, destroy, references});
  return finish();
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count) {
  user_object_of(object)->release(count);
  return finish();
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned,
                                      unsigned flags) {
  graph_of(graph)->retained.push_back(user_object_of(object));
  if ((flags & cudaGraphUserObjectMove) == 0) ++user_object_of(object)->references;
  return finish();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new Event);
  return finish();
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event_of(event);
  return finish();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  StreamState& state = state_of(stream);
  event_of(event)->time = std::chrono::steady_clock::now();
  event_of(event)->capture = capture_of(state) != nullptr ? state.capture : nullptr;
  return finish();
}

cudaError_t cudaEventSynchronize(cudaEvent_t) { return finish(); }
cudaError_t cudaEventQuery(cudaEvent_t) { return finish(); }

// Never 0, because callers divide by it.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  constexpr float kSmallest = 1e-3f;
  const std::chrono::duration<float, std::milli> time = event_of(end)->time - event_of(begin)->time;
  *milliseconds = time.count() + kSmallest;
  return finish();
}

}  // extern "C"
