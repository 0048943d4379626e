// A step's table and trace, from records made by hand.
// SPDX-License-Identifier: MIT
#include "bench/explain.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

namespace tessera::bench {
namespace {

using Json = nlohmann::json;

constexpr const char* kGemm = "_Z4gemmv";
constexpr const char* kNorm = "_Z4normv";
constexpr const char* kSplit = "_Z5splitv";
constexpr const char* kMerge = "_Z5mergev";

OpCall call(const char* op, double bytes, std::vector<const char*> kernels) {
  return {.op = op,
          .row = std::string(op) + "_row",
          .cost = {.read_bytes = bytes, .flops = 0, .shape = "1x2"},
          .kernels = std::move(kernels)};
}

Activity kernel(const char* symbol, int64_t begin_us, int64_t end_us, int64_t launch_us) {
  return {.name = symbol,
          .symbol = symbol,
          .begin_ns = begin_us * 1000,
          .end_ns = end_us * 1000,
          .launch_ns = launch_us * 1000};
}

Ceilings terabyte() {
  Ceilings ceilings;
  ceilings.read_tbs = 1.0;  // a megabyte takes a microsecond
  return ceilings;
}

double sum_of_all(const Explanation& e) {
  return std::accumulate(e.rows.begin(), e.rows.end(), 0.0, [](double sum, const auto& row) {
    return sum + row.time_us + row.gap_us;
  });
}

// Two steps of two layers (norm, gemm) and a head, the second planned while the first ran. Its
// kernels overlap, as programmatic dependent launch lets them.
struct TwoSteps {
  Trace trace;
  OpLog log;

  TwoSteps() {
    log.calls = {call("norm", 1e6, {kNorm}), call("gemm", 4e6, {kGemm}), call("norm", 1e6, {kNorm}),
                 call("gemm", 4e6, {kGemm}), call("head", 2e6, {kSplit, kMerge})};
    trace.steps = {{"step 0", 0, 50'000}, {"step 1", 50'000, 120'000}};
    trace.stages = {{"plan", 50'000, 55'000},
                    {"forward", 55'000, 70'000},
                    {"wait", 70'000, 110'000},
                    {"commit", 110'000, 120'000}};
    trace.device = {kernel(kNorm, 10, 40, 5),   kernel(kNorm, 60, 62, 52),
                    kernel(kGemm, 61, 70, 53),    // begins before the norm ends
                    kernel(kNorm, 70, 72, 54),    // back to back
                    kernel(kGemm, 75, 84, 55),    // 3 us idle
                    kernel(kSplit, 80, 90, 56),   // overlaps
                    kernel(kMerge, 82, 88, 57)};  // inside the split
  }
};

TEST(Explain, AddsUpToTheWallTimeWithOverlapCountedOnce) {
  const TwoSteps made;
  const std::vector<TracedStep> steps = traced_steps(made.trace);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_FALSE(steps[0].before_ns.has_value());
  ASSERT_EQ(steps[1].before_ns, 40'000);
  EXPECT_EQ(steps[1].wall_ns(), 50'000);
  const Explanation e = explain(made.trace, steps[1], made.log, terabyte(), "wait");
  EXPECT_EQ(e.num_missing, 0);
  EXPECT_DOUBLE_EQ(e.wall_us, 50);
  EXPECT_DOUBLE_EQ(e.gap_us, 20 + 3);
  EXPECT_DOUBLE_EQ(e.time_us, 27);
  EXPECT_DOUBLE_EQ(sum_of_all(e), e.wall_us);
  EXPECT_DOUBLE_EQ(e.busy_us, 27);
  EXPECT_DOUBLE_EQ(e.busy_share(), 0.54);
  EXPECT_DOUBLE_EQ(e.bytes, 12e6);
  EXPECT_DOUBLE_EQ(e.floor_us, 12);
  EXPECT_DOUBLE_EQ(e.floor_share(), 12.0 / 50);
}

TEST(Explain, GroupsWhatRepeatsAndKeepsTheOrder) {
  const TwoSteps made;
  const Explanation e =
      explain(made.trace, traced_steps(made.trace)[1], made.log, terabyte(), "wait");
  ASSERT_EQ(e.rows.size(), 3u);
  EXPECT_EQ(e.first_repeated, 0u);
  EXPECT_EQ(e.num_repeated, 2u);
  EXPECT_EQ(e.num_repeats, 2);
  EXPECT_EQ(e.rows[0].op, "norm");
  EXPECT_EQ(e.rows[0].count, 2);
  EXPECT_DOUBLE_EQ(e.rows[0].time_us, 2 + 2);
  EXPECT_DOUBLE_EQ(e.rows[0].gap_us, 20);
  EXPECT_EQ(e.rows[1].op, "gemm");
  EXPECT_DOUBLE_EQ(e.rows[1].time_us, 8 + 9);  // from the norm's end; from its own beginning
  EXPECT_DOUBLE_EQ(e.rows[1].gap_us, 3);
  EXPECT_DOUBLE_EQ(*e.rows[1].bytes, 4e6);
  EXPECT_DOUBLE_EQ(e.rows[1].floor_us, 4);
  EXPECT_EQ(e.rows[2].op, "head");
  EXPECT_EQ(e.rows[2].num_kernels, 2);
  EXPECT_DOUBLE_EQ(e.rows[2].time_us, 6);  // from the gemm's end to its own; the merge adds nothing
}

TEST(Explain, CountsTheHostsTimeAndWhatIsHiddenBehindTheDevice) {
  const TwoSteps made;
  const Explanation e =
      explain(made.trace, traced_steps(made.trace)[1], made.log, terabyte(), "wait");
  ASSERT_EQ(e.stages.size(), 4u);
  EXPECT_DOUBLE_EQ(e.host_us, 5 + 15 + 10);  // not the waiting
  EXPECT_DOUBLE_EQ(e.hidden_us, 10);         // 60 to 70; nothing runs before 60 nor after 90
}

TEST(Explain, WorkWithoutAnOperationDoesNotShiftTheRest) {
  TwoSteps made;
  Activity copy = kernel("", 71, 72, 54);
  copy.kind = ActivityKind::copy;
  copy.name = "copy device to host";
  copy.bytes = 64;
  made.trace.device.push_back(kernel("_Z6strangev", 70, 71, 54));
  made.trace.device.push_back(copy);
  made.log.calls.push_back(call("sample", 8, {"_Z6samplev"}));  // is not in the trace
  const Explanation e =
      explain(made.trace, traced_steps(made.trace)[1], made.log, terabyte(), "wait");
  EXPECT_EQ(e.num_missing, 1);
  EXPECT_DOUBLE_EQ(sum_of_all(e), e.wall_us);
  std::map<std::string, int64_t> counts;
  for (const ExplainedRow& row : e.rows) counts[row.op] += row.count;
  EXPECT_EQ(counts["gemm"], 2);
  EXPECT_EQ(counts["norm"], 2);
  EXPECT_EQ(counts["head"], 1);
  EXPECT_EQ(counts["_Z6strangev"], 1);
  EXPECT_EQ(counts["copy device to host"], 1);
  EXPECT_EQ(counts.count("sample"), 0u);
  for (const ExplainedRow& row : e.rows) {
    EXPECT_EQ(row.bytes.has_value(), row.op != "_Z6strangev") << row.op;
  }
  EXPECT_DOUBLE_EQ(e.bytes, 12e6);  // copies to the host do not count
}

TEST(Explain, OfTheCpuIsMadeOfTheCallsThemselves) {
  Trace trace;
  OpLog log{.calls = {call("norm", 1e6, {}), call("gemm", 1e6, {})}};
  log.calls[0].begin_ns = 2'000, log.calls[0].end_ns = 4'000;
  log.calls[1].begin_ns = 5'000, log.calls[1].end_ns = 9'000;
  trace.device = work_of(log);
  trace.steps = {{"step 0", 0, 10'000}};
  trace.stages = {{"plan", 0, 1'000}, {"forward", 1'000, 10'000}};
  const Explanation e = explain(trace, traced_steps(trace)[0], log, terabyte(), "wait");
  ASSERT_EQ(e.rows.size(), 2u);
  EXPECT_DOUBLE_EQ(e.rows[1].gap_us, 1);
  EXPECT_DOUBLE_EQ(e.rows[1].time_us, 4);
  EXPECT_DOUBLE_EQ(e.wall_us, 7);
  EXPECT_DOUBLE_EQ(e.host_us, 10 - 6);
  EXPECT_DOUBLE_EQ(e.hidden_us, 0);
}

TEST(FindRepeat, FindsTheLongestPartThatRepeatsAndItsShortestPeriod) {
  const auto of = [](std::string_view letters) {
    std::vector<std::string> keys;
    for (const char letter : letters) keys.emplace_back(1, letter);
    const Repeat found = find_repeat(keys);
    return std::vector<size_t>{found.first, found.period, found.count};
  };
  EXPECT_EQ(of("eabcabcabch"), (std::vector<size_t>{1, 3, 3}));
  EXPECT_EQ(of("eabababah"), (std::vector<size_t>{1, 2, 3}));  // a last norm like the layers'
  EXPECT_EQ(of("aaaa"), (std::vector<size_t>{0, 1, 4}));
  EXPECT_EQ(of("xxabcabcabc"), (std::vector<size_t>{2, 3, 3}));
  EXPECT_EQ(of("abc")[2], 1u);
  EXPECT_EQ(of("")[2], 1u);
}

TEST(Intervals, AreAUnion) {
  Intervals some;
  some.add(10, 20);
  some.add(30, 40);
  some.add(15, 25);
  some.add(50, 50);
  EXPECT_EQ(some.length(), 25);
  EXPECT_EQ(some.length_within(22, 35), 3 + 5);
  some.add(25, 30);  // closes the gap
  EXPECT_EQ(some.length(), 30);
  Intervals other;
  other.add(0, 12);
  other.add(39, 100);
  EXPECT_EQ(some.length_shared_with(other), 2 + 1);
}

TEST(TraceJson, IsWhatPerfettoReadsOnOneClock) {
  TwoSteps made;
  made.trace.api = {{"cudaGraphLaunch", 53'000, 54'000}};
  made.trace.device[0].is_in_graph = true;
  const Json trace = Json::parse(trace_json(made.trace, "a GPU"));
  std::map<std::pair<int, int64_t>, std::vector<std::pair<double, double>>> tracks;
  std::map<std::string, int> categories;
  std::vector<std::string> processes;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "M") {
      if (event["name"] == "process_name") processes.push_back(event["args"]["name"]);
      continue;
    }
    ASSERT_EQ(event["ph"], "X");
    EXPECT_GE(event["ts"].get<double>(), 0);
    ++categories[event["cat"]];
    tracks[{event["pid"].get<int>(), event["tid"].get<int64_t>()}].emplace_back(
        event["ts"].get<double>(), event["ts"].get<double>() + event["dur"].get<double>());
    if (event["cat"] == "api") {  // microseconds since step 0
      EXPECT_DOUBLE_EQ(event["ts"].get<double>(), 53);
      EXPECT_DOUBLE_EQ(event["dur"].get<double>(), 1);
    }
  }
  EXPECT_EQ(processes, (std::vector<std::string>{"host", "a GPU"}));
  EXPECT_EQ(categories["kernel"], 7);
  EXPECT_EQ(categories["stage"], 4);
  EXPECT_EQ(categories["step"], 2);
  EXPECT_EQ(categories["api"], 1);
  for (auto& [track, spans] : tracks) {  // no track has two events at a time
    std::sort(spans.begin(), spans.end());
    for (size_t i = 1; i < spans.size(); ++i) EXPECT_LE(spans[i - 1].second, spans[i].first);
  }
}

TEST(TraceJson, OfNothingIsStillATrace) {
  EXPECT_TRUE(Json::parse(trace_json({}, "a GPU")).contains("traceEvents"));
}

}  // namespace
}  // namespace tessera::bench
