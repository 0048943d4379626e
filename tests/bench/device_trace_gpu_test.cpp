// A GPU's work as CUPTI sees it: kernels of graphs one by one, on the host's clock, by the symbols
// that the log of operations knows.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>

#include "bench/device_trace.h"
#include "bench/explain.h"
#include "core/op_log.h"
#include "tessera/ops/activation.h"
#include "tessera/ops/norm.h"
#include "tests/gpu.h"
#include "tests/ops/graph_capture.h"

namespace tessera::bench {
namespace {

using testing::Graph;
using testing::OwnStream;

class DeviceTraceOnGpu : public testing::GpuTest {};

// Two norms and an activation, noted when they run by themselves, then replayed as a graph that was
// made before tracing began.
TEST_F(DeviceTraceOnGpu, ExplainsAGraphByTheOperationsThatWereNoted) {
  const OwnStream stream;
  const Tensor x = Tensor::zeros(DType::bf16, {16, 4096}, cuda_device());
  const Tensor weight = Tensor::zeros(DType::bf16, {4096}, cuda_device());
  const Tensor y(DType::bf16, {16, 4096}, cuda_device());
  synchronize(cuda_device());
  const Context ctx{.stream = stream.get()};
  const auto work = [&] {
    rms_norm({.x = x, .weight = weight, .out = y}, ctx);
    activation({.x = y, .out = y}, ctx);
    rms_norm({.x = x, .weight = weight, .out = y}, ctx);
  };
  OpLog log;
  {
    const OpLogScope scope(log);
    work();
  }
  stream.wait();
  ASSERT_EQ(log.calls.size(), 3u);
  for (const OpCall& call : log.calls) EXPECT_EQ(call.kernels.size(), 1u) << call.row;
  Graph graph(stream, work);
  graph.instantiate();
  graph.replay(stream);
  stream.wait();

  const auto tracer = make_device_tracer();
  Trace trace;
  tracer->start();
  for (int i = 0; i < 3; ++i) {
    const int64_t begin = steady_now_ns();
    graph.replay(stream);
    stream.wait();
    trace.steps.push_back({"step", begin, steady_now_ns()});
  }
  tracer->stop(trace);
  ASSERT_EQ(trace.device.size(), 9u);
  EXPECT_FALSE(trace.api.empty());
  for (const Activity& one : trace.device) {
    EXPECT_EQ(one.kind, ActivityKind::kernel);
    EXPECT_TRUE(one.is_in_graph);
    EXPECT_LT(one.begin_ns, one.end_ns);
    EXPECT_GT(one.launch_ns, 0);
    EXPECT_EQ(one.name.find("_Z"), std::string::npos) << one.name;
  }
  const std::vector<TracedStep> steps = traced_steps(trace);
  ASSERT_EQ(steps.size(), 3u);
  constexpr int64_t kClockError = 20'000;  // between the GPU's clock and the host's
  for (size_t i = 0; i < steps.size(); ++i) {
    ASSERT_EQ(steps[i].work.size(), 3u);
    EXPECT_GE(steps[i].work[0].begin_ns, trace.steps[i].begin_ns - kClockError);
    EXPECT_LE(steps[i].end_ns, trace.steps[i].end_ns + kClockError);
  }
  const Explanation e = explain(trace, steps[1], log, {}, "wait");
  EXPECT_EQ(e.num_missing, 0);
  ASSERT_EQ(e.rows.size(), 3u);
  EXPECT_EQ(e.rows[0].op, "rms_norm");
  EXPECT_EQ(e.rows[1].op, "activation");
  EXPECT_NEAR(e.time_us + e.gap_us, e.wall_us, 1e-6);
  EXPECT_GT(e.busy_us, 0);
}

TEST_F(DeviceTraceOnGpu, SeesCopiesAndFillsAndNothingAfterItHasStopped) {
  const OwnStream stream;
  const Tensor from(DType::u8, {1 << 20}, cuda_device()), to(DType::u8, {1 << 20}, cuda_device());
  const auto tracer = make_device_tracer();
  Trace trace;
  tracer->start();
  fill_bytes(from.view().data, cuda_device(), 0, 1 << 20, stream.get());
  copy_bytes(to.view().data, cuda_device(), from.view().data, cuda_device(), 1 << 20, stream.get());
  tracer->stop(trace);
  const auto count = [&](ActivityKind kind) {
    return std::ranges::count_if(trace.device, [&](const Activity& one) {
      return one.kind == kind && one.bytes == 1 << 20;
    });
  };
  EXPECT_EQ(count(ActivityKind::fill), 1);
  EXPECT_EQ(count(ActivityKind::copy), 1);
  const size_t num_seen = trace.device.size();
  fill_bytes(from.view().data, cuda_device(), 0, 1 << 20, stream.get());
  stream.wait();
  Trace later;
  tracer->start();
  tracer->stop(later);
  EXPECT_EQ(trace.device.size(), num_seen);
  EXPECT_TRUE(later.device.empty());
}

}  // namespace
}  // namespace tessera::bench
