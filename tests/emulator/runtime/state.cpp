// The errors and streams that the functions of the runtime share.
// SPDX-License-Identifier: MIT
#include "tests/emulator/runtime/state.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

namespace tessera::emulator {
namespace {

std::atomic<cudaError_t> fault{cudaSuccess};
thread_local cudaError_t last = cudaSuccess;

// One piece of work at a time, whichever thread it comes from.
std::mutex& device_mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

struct Streams {
  std::mutex mutex;
  std::map<cudaStream_t, StreamState> states;
  unsigned long long next_id = 1;
};

Streams& streams() {
  static Streams& instance = *new Streams;
  return instance;
}

}  // namespace

cudaError_t finish(cudaError_t error) {
  if (fault != cudaSuccess) error = fault;
  if (error != cudaSuccess) last = error;
  return error;
}

cudaError_t last_error() { return fault != cudaSuccess ? fault.load() : last; }
void clear_last_error() { last = cudaSuccess; }
bool has_faulted() { return fault != cudaSuccess; }

void report_fault(cudaError_t error, const char* what) {
  std::fprintf(stderr, "emulator: %s: %s\n", cudaGetErrorName(error), what);
  fault = error;
}

void UserObject::release(unsigned count) {
  references -= count;
  if (references > 0) return;
  destroy(object);
  delete this;
}

StreamState& state_of(cudaStream_t stream) {
  Streams& all = streams();
  const std::lock_guard guard(all.mutex);
  StreamState& state = all.states[stream];
  if (state.id == 0) state.id = all.next_id++;
  return state;
}

cudaError_t submit(cudaStream_t stream, Work work) {
  StreamState& state = state_of(stream);
  if (state.capture != nullptr) {
    state.capture->graph->nodes.push_back(std::move(work));
    return finish();
  }
  if (has_faulted()) return finish();
  const std::lock_guard guard(device_mutex());
  work();
  return cudaSuccess;
}

long environment(const char* name, long otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : std::atol(value);
}

}  // namespace tessera::emulator
