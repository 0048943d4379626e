// Traces as JSON, and sums over intervals of time.
// SPDX-License-Identifier: MIT
#include "bench/trace.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "core/text.h"

namespace tessera::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kHost = 0, kDevice = 1;                 // processes of the trace
constexpr int64_t kSteps = 0, kStages = 1, kApi = 2;  // threads of the host
constexpr int64_t kLanesOfStream = 16;                // threads that a stream may take
constexpr double kMicroseconds = 1e-3;                // per nanosecond

class Writer {
 public:
  explicit Writer(int64_t origin_ns) : origin_ns_(origin_ns) {}

  void name_process(int process, std::string_view name) {
    events_.push_back({{"ph", "M"},
                       {"name", "process_name"},
                       {"pid", process},
                       {"args", {{"name", std::string(name)}}}});
  }
  void name_thread(int process, int64_t thread, const std::string& name) {
    events_.push_back({{"ph", "M"},
                       {"name", "thread_name"},
                       {"pid", process},
                       {"tid", thread},
                       {"args", {{"name", name}}}});
    events_.push_back({{"ph", "M"},
                       {"name", "thread_sort_index"},
                       {"pid", process},
                       {"tid", thread},
                       {"args", {{"sort_index", thread}}}});
  }
  void add(int process, int64_t thread, std::string_view category, const std::string& name,
           int64_t begin_ns, int64_t end_ns, Json args = Json::object()) {
    events_.push_back({{"ph", "X"},
                       {"name", name},
                       {"cat", std::string(category)},
                       {"pid", process},
                       {"tid", thread},
                       {"ts", static_cast<double>(begin_ns - origin_ns_) * kMicroseconds},
                       {"dur", static_cast<double>(end_ns - begin_ns) * kMicroseconds}});
    if (!args.empty()) events_.back()["args"] = std::move(args);
  }
  std::string text() {
    const Json trace = {{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events_)}};
    return trace.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }

 private:
  int64_t origin_ns_;
  Json events_ = Json::array();
};

int64_t first_begin(const Trace& trace) {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const Activity& one : trace.device) first = std::min(first, one.begin_ns);
  for (const auto* spans : {&trace.steps, &trace.stages, &trace.api}) {
    for (const Span& span : *spans) first = std::min(first, span.begin_ns);
  }
  return first == std::numeric_limits<int64_t>::max() ? 0 : first;
}

void add_device(const Trace& trace, Writer& writer) {
  std::vector<const Activity*> sorted;
  for (const Activity& one : trace.device) sorted.push_back(&one);
  std::ranges::stable_sort(sorted, {}, &Activity::begin_ns);
  std::map<uint32_t, std::vector<int64_t>> lanes;  // of a stream: when each lane is free again
  for (const Activity* one : sorted) {
    std::vector<int64_t>& ends = lanes[one->stream];
    size_t lane = 0;
    while (lane < ends.size() && ends[lane] > one->begin_ns) ++lane;
    if (lane == ends.size()) ends.push_back(0);
    ends[lane] = one->end_ns;
    const int64_t thread = one->stream * kLanesOfStream + static_cast<int64_t>(lane);
    Json args = Json::object();
    if (!one->symbol.empty()) args["symbol"] = one->symbol;
    if (one->bytes > 0) args["bytes"] = one->bytes;
    if (one->is_in_graph) args["in_graph"] = true;
    writer.add(kDevice, thread, name(one->kind), one->name, one->begin_ns, one->end_ns,
               std::move(args));
  }
  for (const auto& [stream, ends] : lanes) {
    for (size_t lane = 0; lane < ends.size(); ++lane) {
      writer.name_thread(kDevice, stream * kLanesOfStream + static_cast<int64_t>(lane),
                         concat("stream ", stream, lane == 0 ? "" : ", overlapping"));
    }
  }
}

}  // namespace

std::string_view name(ActivityKind kind) {
  switch (kind) {
    case ActivityKind::kernel: return "kernel";
    case ActivityKind::copy: return "copy";
    case ActivityKind::fill: return "fill";
    case ActivityKind::call: return "call";
  }
  return "unknown";
}

std::string trace_json(const Trace& trace, std::string_view device) {
  Writer writer(first_begin(trace));
  writer.name_process(kHost, "host");
  writer.name_process(kDevice, device);
  writer.name_thread(kHost, kSteps, "steps");
  writer.name_thread(kHost, kStages, "stages of a step");
  for (const Span& span : trace.steps) {
    writer.add(kHost, kSteps, "step", span.name, span.begin_ns, span.end_ns);
  }
  for (const Span& span : trace.stages) {
    writer.add(kHost, kStages, "stage", span.name, span.begin_ns, span.end_ns);
  }
  if (!trace.api.empty()) writer.name_thread(kHost, kApi, "calls of the CUDA runtime");
  for (const Span& span : trace.api) {
    writer.add(kHost, kApi, "api", span.name, span.begin_ns, span.end_ns);
  }
  add_device(trace, writer);
  return writer.text();
}

void Intervals::add(int64_t begin, int64_t end) {
  if (begin >= end) return;
  // The parts that it touches become one with it.
  const auto first =
      std::ranges::lower_bound(parts_, begin, {}, [](const auto& part) { return part.second; });
  auto last = first;
  for (; last != parts_.end() && last->first <= end; ++last) {
    begin = std::min(begin, last->first);
    end = std::max(end, last->second);
  }
  parts_.insert(parts_.erase(first, last), {begin, end});
}

int64_t Intervals::length() const {
  int64_t sum = 0;
  for (const auto& [begin, end] : parts_) sum += end - begin;
  return sum;
}

int64_t Intervals::length_within(int64_t begin, int64_t end) const {
  int64_t sum = 0;
  for (const auto& [from, to] : parts_) {
    sum += std::max<int64_t>(0, std::min(to, end) - std::max(from, begin));
  }
  return sum;
}

int64_t Intervals::length_shared_with(const Intervals& other) const {
  int64_t sum = 0;
  for (const auto& [begin, end] : parts_) sum += other.length_within(begin, end);
  return sum;
}

}  // namespace tessera::bench
