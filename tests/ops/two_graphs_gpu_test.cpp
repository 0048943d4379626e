// Two graphs captured on one stream and replayed on two at once, of every row that takes scratch
// memory: each must compute what it computes alone.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/instance.h"
#include "bench/problem.h"
#include "core/cublaslt.h"
#include "core/library.h"
#include "kernels/stream_scratch.h"
#include "ops/registry.h"
#include "tessera/core/error.h"
#include "tests/gpu.h"
#include "tests/ops/graph_capture.h"

namespace tessera {
namespace {

using bench::Fill;
using bench::Instance;
using bench::Problem;
using bench::ProblemMaker;
using bench::Role;
using bench::Shape;
using testing::Graph;
using testing::OwnStream;

constexpr size_t kMostShapes = 24;  // of a row
constexpr int kRounds = 4;
constexpr int kCallsPerGraph = 8;  // so that the graphs run at the same time, however short a call

// Longer than the tests' own shapes, as decoding meets them.
std::vector<Shape> long_shapes(std::string_view op, RowKey key) {
  if (op != "attention_decode" || key.in != DType::bf16) return {};
  std::vector<Shape> shapes;
  for (const auto& [batch, kv_len] :
       {std::pair<int64_t, int64_t>{1, 32768}, {2, 8000}, {3, 5000}, {4, 8192}, {16, 1500}}) {
    shapes.push_back(
        {{"batch", batch}, {"kv_len", kv_len}, {"heads", 32}, {"kv_heads", 8}, {"d", 128}});
  }
  return shapes;
}

// Whether a call of the row takes scratch memory. The call is captured and never run, so its
// operands need no memory.
bool takes_scratch(const Problem& sizes, const std::string& row, const OwnStream& stream) {
  constexpr uintptr_t kApart = uintptr_t{1} << 42;
  std::vector<TensorView> views;
  for (const bench::Operand& operand : sizes.operands) {
    views.push_back(
        operand.place(reinterpret_cast<void*>((views.size() + 1) * kApart), cuda_device()));
  }
  const int64_t before = kernels::scratch_stats().num_calls;
  const Graph graph(stream,
                    [&] { sizes.call(views, Context{.stream = stream.get(), .row = row}); });
  return kernels::scratch_stats().num_calls > before;
}

// The storages of everything a call writes.
std::vector<Tensor> results_of(const Instance& instance) {
  std::vector<Tensor> results;
  for (size_t i = 0; i < instance.problem().operands.size(); ++i) {
    const Role role = instance.problem().operands[i].role;
    if (role == Role::output || role == Role::in_out) results.push_back(instance.download(i));
  }
  return results;
}

bool are_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::ranges::equal(a, b, [](const Tensor& left, const Tensor& right) {
    return std::memcmp(left.view().data, right.view().data,
                       static_cast<size_t>(left.size_bytes())) == 0;
  });
}

class TwoGraphsOnGpu : public testing::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    streams_.emplace();
  }

  // The rows of an operation for these types, with the shapes for which they take scratch memory.
  std::map<std::string, std::vector<Shape>> find_scratch(const ProblemMaker& maker, RowKey key) {
    std::map<std::string, std::vector<Shape>> found;
    std::vector<Shape> shapes = maker.test_shapes;
    for (const Shape& shape : long_shapes(maker.op, key)) shapes.push_back(shape);
    for (const ops::RowInfo& row : ops::all_rows()) {
      if (row.op != maker.op || row.key != key) continue;
      if (!runs_on(row.library, device_info(cuda_device()).compute_capability)) continue;
      for (const Shape& shape : shapes) {
        if (!maker.fits(key, shape)) continue;
        const Problem sizes = maker.make(key, shape, Fill::none, 0);
        if (!bench::is_taken(sizes, cuda_device(), Context{.row = row.name})) continue;
        try {
          if (takes_scratch(sizes, row.name, streams_->capturing)) {
            found[row.name].push_back(shape);
          }
        } catch (const Error& error) {
          ADD_FAILURE() << row.name << " " << bench::to_string(shape)
                        << " cannot be captured: " << error.what();
          break;
        }
      }
    }
    return found;
  }

  void expect_independent(const ProblemMaker& maker, RowKey key, const Shape& shape,
                          const std::string& row) {
    SCOPED_TRACE(row + " " + bench::to_string(shape));
    const Problem problems[] = {maker.make(key, shape, Fill::normal, 7),
                                maker.make(key, shape, Fill::normal, 8)};
    Instance instances[] = {Instance(problems[0], cuda_device()),
                            Instance(problems[1], cuda_device())};
    const bool changes_inputs = std::ranges::any_of(
        problems[0].operands,
        [](const bench::Operand& operand) { return operand.role == Role::in_out; });
    std::vector<Tensor> want[2];
    const auto run = [&](int i) {
      instances[i].run(0, Context{.stream = streams_->capturing.get(), .row = row});
    };
    for (int i = 0; i < 2; ++i) {
      instances[i].reset();
      run(i);
      streams_->capturing.wait();
      want[i] = results_of(instances[i]);
    }
    const auto capture = [&](int i) {
      return [&, i] {
        for (int call = changes_inputs ? kCallsPerGraph - 1 : 0; call < kCallsPerGraph; ++call) {
          run(i);
        }
      };
    };
    Graph graphs[] = {Graph(streams_->capturing, capture(0)),
                      Graph(streams_->capturing, capture(1))};
    for (Graph& graph : graphs) graph.instantiate();
    for (int round = 0; round < kRounds; ++round) {
      for (Instance& instance : instances) instance.reset();
      for (int i = 0; i < 2; ++i) graphs[i].replay(streams_->replaying[i]);
      for (const OwnStream& stream : streams_->replaying) stream.wait();
      for (int i = 0; i < 2; ++i) {
        ASSERT_TRUE(are_same(results_of(instances[i]), want[i]))
            << "graph " << i << ", round " << round;
      }
    }
  }

  struct Streams {
    OwnStream capturing, replaying[2];
  };
  std::optional<Streams> streams_;  // made once it is known that there is a GPU
};

TEST_F(TwoGraphsOnGpu, ComputeAtOnceWhatTheyComputeAlone) {
  std::vector<std::string> rows;
  size_t num_shapes = 0;
  for (const ProblemMaker& maker : bench::problem_makers()) {
    for (const RowKey key : maker.keys) {
      for (const auto& [row, shapes] : find_scratch(maker, key)) {
        rows.push_back(row);
        const size_t step = (shapes.size() + kMostShapes - 1) / kMostShapes;
        for (size_t i = 0; i < shapes.size(); i += step, ++num_shapes) {
          // Starts at the end, with the longest.
          expect_independent(maker, key, shapes[shapes.size() - 1 - i], row);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  std::string all;
  for (const std::string& row : rows) all += row + " ";
  std::printf("%zu shapes of %zu rows: %s\n", num_shapes, rows.size(), all.c_str());
  // Rows are found by observing them; these are known to take scratch memory.
  const auto has = [&](std::string_view part) {
    return std::ranges::any_of(
        rows, [&](const std::string& row) { return row.find(part) != std::string::npos; });
  };
  EXPECT_TRUE(has("attention_decode_bf16")) << all;
  if (device_info(cuda_device()).compute_capability == 90) {
    EXPECT_TRUE(has("attention_decode_sm90")) << all;
  }
  if (cublaslt() != nullptr) {
    EXPECT_TRUE(has("cublaslt")) << all;
  }
}

}  // namespace
}  // namespace tessera
