// What a run did and when: the device's work and the host's stages on one clock, the steady_clock
// of this process, in nanoseconds.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::bench {

// What the host did: a stage of a step, a whole step, a call of the CUDA runtime.
struct Span {
  std::string name;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

enum class ActivityKind : uint8_t {
  kernel,
  copy,
  fill,
  call,  // an operation on the CPU
};
std::string_view name(ActivityKind kind);

// One piece of work of a device.
struct Activity {
  ActivityKind kind = ActivityKind::kernel;
  std::string name;         // for people: "norm_kernel", "copy host to device"
  std::string symbol = {};  // of a kernel, as the linker knows it
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t launch_ns = 0;  // when the host asked for it; 0: not known
  uint32_t stream = 0;
  int64_t bytes = 0;         // copied or filled
  bool is_in_graph = false;  // a node of a CUDA graph
};

struct Trace {
  std::vector<Activity> device;
  std::vector<Span> steps;
  std::vector<Span> stages;  // of steps, in order
  std::vector<Span> api;     // calls of the CUDA runtime
};

// Trace events in JSON, as Perfetto (ui.perfetto.dev) and chrome://tracing open them. Time 0 is the
// first event. Work that overlaps on one stream gets several tracks, as a track's events must nest.
std::string trace_json(const Trace& trace, std::string_view device);

// A set of times: disjoint intervals in order. Intervals that touch or overlap are merged.
class Intervals {
 public:
  void add(int64_t begin, int64_t end);
  int64_t length() const;
  int64_t length_within(int64_t begin, int64_t end) const;
  int64_t length_shared_with(const Intervals& other) const;

 private:
  std::vector<std::pair<int64_t, int64_t>> parts_;
};

}  // namespace tessera::bench
