// Tests of decode attention on a GPU beyond every_row_gpu_test.cpp: random combinations of formats
// and options, captured calls, many streams.
// SPDX-License-Identifier: MIT
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bench/instance.h"
#include "bench/problem.h"
#include "bench/problems/decode_shapes.h"
#include "bench/verify.h"
#include "core/cuda_check.h"
#include "core/library.h"
#include "kernels/stream_scratch.h"
#include "ops/registry.h"
#include "tessera/core/convert.h"
#include "tests/gpu.h"

namespace tessera {
namespace {

using bench::Fill;
using bench::Instance;
using bench::Problem;
using bench::Shape;

const bench::ProblemMaker& maker() { return *bench::find_maker("attention_decode"); }

// A random shape with options that may be combined; small, so that hundreds take seconds.
class RandomShape {
 public:
  explicit RandomShape(uint64_t seed) : random_(seed) {}

  Shape draw() {
    const int64_t q_len = pick({0, 0, 1, 2, 3, 4, 7, 16});
    const int64_t kv_heads = pick({1, 2, 3});
    const KvFormat k = draw_format(true);
    const int64_t kv_len = draw_int(std::max<int64_t>(1, q_len), pick({40, 300, 1500}));
    Shape shape{{"batch", draw_int(1, 7)}};
    if (q_len != 0) shape.emplace_back("q_len", q_len);
    shape.emplace_back("kv_len", kv_len);
    shape.emplace_back("heads", kv_heads * pick({1, 2, 3, 4, 5, 8, 32}));
    shape.emplace_back("kv_heads", kv_heads);
    const bool has_tail = traits(k).has_tail();
    const KvFormat v = has_tail || is_true(3) ? draw_format(false) : k;
    shape.emplace_back("d", draw_dim(traits(k).dtype == DType::i4 || traits(v).dtype == DType::i4));
    shape.emplace_back("k_format", bench::option(k));
    shape.emplace_back("v_format", bench::option(v));
    if (has_tail && !is_true(4)) {
      shape.emplace_back("tail_dtype", pick({bench::option(DType::f32), bench::option(DType::f16),
                                             bench::option(DType::bf16)}));
    }
    if (!is_true(4)) {
      shape.emplace_back("page", has_tail ? pick({32, 64, 128}) : pick({1, 5, 16, 32, 64, 128}));
      if (is_true(3)) shape.emplace_back("shared", draw_int(1, 3));
    }
    add(shape, "head_scales", draw_int(0, 2));
    add(shape, "strided", is_true(2) ? draw_int(1, 3) : 0);
    add(shape, "lens", is_true(2) ? 1 : 0);
    add(shape, "window", is_true(4) ? draw_int(1, kv_len + 10) : 0);
    add(shape, "tree", is_true(4) ? 1 : 0);
    add(shape, "blocks", is_true(5) ? 1 : 0);
    add(shape, "keys", is_true(5) ? draw_int(1, kv_len) : 0);
    for (const char* option : {"softcap", "sinks", "alibi", "in_place"}) {
      add(shape, option, is_true(4) ? 1 : 0);
    }
    add(shape, "lse", is_true(2) ? 1 : 0);
    return shape;
  }

 private:
  // Values have no scales by column.
  KvFormat draw_format(bool are_keys) {
    while (true) {
      const auto last = static_cast<int64_t>(std::size(kKvFormats)) - 1;
      const KvFormat format = kKvFormats[static_cast<size_t>(draw_int(0, last))].format;
      if (are_keys || !traits(format).has_tail()) return format;
    }
  }
  static void add(Shape& shape, const char* name, int64_t value) {
    if (value != 0) shape.emplace_back(name, value);
  }
  int64_t draw_int(int64_t lowest, int64_t highest) {
    const auto span = static_cast<uint64_t>(std::max(lowest, highest) - lowest + 1);
    return lowest + static_cast<int64_t>(random_() % span);
  }
  int64_t pick(std::initializer_list<int64_t> values) {
    return values.begin()[random_() % values.size()];
  }
  bool is_true(uint64_t one_in) { return random_() % one_in == 0; }
  int64_t draw_dim(bool is_even) {
    const int64_t d = is_true(3) ? draw_int(1, 256) : pick({64, 64, 96, 128, 128, 256});
    return is_even ? (d + 1) / 2 * 2 : d;
  }

  std::mt19937_64 random_;
};

class DecodeOnGpu : public testing::GpuTest {
 protected:
  // The rows for these types that take the problem on this device.
  static std::vector<std::string> rows_that_take(RowKey key, const Problem& sizes) {
    std::vector<std::string> names;
    const int capability = device_info(cuda_device()).compute_capability;
    for (const ops::RowInfo& row : ops::all_rows()) {
      if (row.op != "attention_decode" || row.key != key) continue;
      if (!runs_on(row.library, capability)) continue;
      if (bench::is_taken(sizes, cuda_device(), Context{.row = row.name})) {
        names.push_back(row.name);
      }
    }
    return names;
  }

  // Whether the Hopper kernel is among them, where there is one.
  static bool is_taken_on_hopper(RowKey key, const Problem& sizes) {
    if (device_info(cuda_device()).compute_capability != 90) return true;
    const std::vector<std::string> rows = rows_that_take(key, sizes);
    return std::any_of(rows.begin(), rows.end(), [](const std::string& row) {
      return row.find("_sm90_") != std::string::npos;
    });
  }
};

// A shape that the kernel refuses, for example because of a stride, would not test it.
TEST_F(DecodeOnGpu, TakesTheShapesOfEveryPlanByTheHopperKernel) {
  constexpr RowKey kKey{DType::bf16, DType::bf16};
  for (const Shape& shape : bench::decode_plan_shapes()) {
    EXPECT_TRUE(is_taken_on_hopper(kKey, maker().make(kKey, shape, Fill::none, 0)))
        << bench::to_string(shape);
  }
}

TEST_F(DecodeOnGpu, IsCloseToTheCpuForRandomCombinations) {
  constexpr int kNumShapes = 400;
  RandomShape random(20261115);
  int num_run = 0;
  for (int i = 0; i < kNumShapes; ++i) {
    const Shape shape = random.draw();
    const RowKey key = maker().keys[static_cast<size_t>(i) % maker().keys.size()];
    SCOPED_TRACE(std::string(name(key.in)) + " " + bench::to_string(shape));
    const Problem sizes = maker().make(key, shape, Fill::none, 0);
    const std::vector<std::string> rows = rows_that_take(key, sizes);
    EXPECT_FALSE(rows.empty()) << "the portable row takes all";
    if (rows.empty()) continue;
    const Problem problem = maker().make(key, shape, Fill::normal, static_cast<uint64_t>(i));
    Instance instance(problem, cuda_device());
    const bench::Reference reference(maker(), key, problem, int64_t{1} << 40);
    for (const std::string& row : rows) {
      instance.reset();
      const bool is_invariant = row.find("_streaming") == std::string::npos;
      ASSERT_NO_THROW(instance.run(0, Context{.row = row, .batch_invariant = is_invariant}));
      synchronize(cuda_device());
      ASSERT_EQ(reference.check(instance), "") << row;
      ++num_run;
    }
  }
  EXPECT_GE(num_run, kNumShapes);
}

// Integer keys are multiplied by queries quantised to integers, and infinity has no integer. The
// output of such a query must still be NaN, and its neighbours must agree with the CPU.
TEST_F(DecodeOnGpu, GivesNanForAQueryThatIsNotFinite) {
  constexpr RowKey kKey{DType::bf16, DType::bf16};
  constexpr int64_t kDim = 128, kHead = 2, kQ = 0, kOut = 1;
  for (const KvFormat format :
       {KvFormat::plain, KvFormat::e4m3, KvFormat::int8, KvFormat::uint8, KvFormat::int4_token}) {
    for (const int64_t group : {4, 8}) {
      for (const float bad : {INFINITY, -INFINITY, NAN}) {
        const Shape shape{{"batch", 2},    {"kv_len", 304}, {"heads", 2 * group},
                          {"kv_heads", 2}, {"d", kDim},     {"k_format", bench::option(format)}};
        SCOPED_TRACE(bench::to_string(shape) + " " + std::to_string(bad));
        const Problem problem = maker().make(kKey, shape, Fill::normal, 11);
        EXPECT_TRUE(is_taken_on_hopper(kKey, problem));
        problem.operands[kQ].host.view().as<Bf16>()[kHead * kDim + 5] = from_float<Bf16>(bad);
        const bench::Reference reference(maker(), kKey, problem, int64_t{1} << 40);
        for (const std::string& row : rows_that_take(kKey, problem)) {
          Instance instance(problem, cuda_device());
          instance.reset();
          instance.run(0, Context{.row = row});
          synchronize(cuda_device());
          EXPECT_EQ(reference.check(instance), "") << row;
          const Tensor out = instance.download(kOut);
          for (int64_t i = 0; i < kDim; ++i) {
            ASSERT_TRUE(std::isnan(to_float(out.view().as<Bf16>()[kHead * kDim + i]))) << row;
          }
        }
      }
    }
  }
}

// Two sequences that have several pieces each, so that scratch memory is used.
Problem long_problem() {
  const Shape shape{{"batch", 2}, {"kv_len", 3000}, {"heads", 8}, {"kv_heads", 2},
                    {"d", 128},   {"page", 64},     {"lse", 1}};
  return maker().make({DType::bf16, DType::bf16}, shape, Fill::normal, 5);
}

TEST_F(DecodeOnGpu, IsCapturedWhenItsFirstCallIsUnderCaptureAndReplayed) {
  const Problem problem = long_problem();
  const bench::Reference reference(maker(), {DType::bf16, DType::bf16}, problem, int64_t{1} << 40);
  for (const std::string& row : rows_that_take({DType::bf16, DType::bf16}, problem)) {
    Instance instance(problem, cuda_device());
    instance.reset();
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin capture");
    EXPECT_NO_THROW(instance.run(0, Context{.stream = stream, .row = row}));
    cuda_check(cudaStreamEndCapture(stream, &graph), "end capture");
    cuda_check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    for (int replay = 0; replay < 3; ++replay) {
      instance.reset();
      cuda_check(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
      cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
      EXPECT_EQ(reference.check(instance), "") << row << ", replay " << replay;
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
  }
}

// More streams than keep scratch memory of their own.
TEST_F(DecodeOnGpu, RunsOnManyStreamsAtOnce) {
  constexpr int64_t kNumStreams = kernels::kMaxKeptScratches + 4;
  const Problem problem = long_problem();
  const bench::Reference reference(maker(), {DType::bf16, DType::bf16}, problem, int64_t{1} << 40);
  std::vector<cudaStream_t> streams(kNumStreams);
  std::vector<Instance> instances;
  for (cudaStream_t& stream : streams) {
    cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    instances.emplace_back(problem, cuda_device()).reset();
  }
  for (int round = 0; round < 10; ++round) {
    for (size_t i = 0; i < streams.size(); ++i) {
      instances[i].run(0, Context{.stream = streams[i]});
    }
  }
  cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  for (const Instance& instance : instances) EXPECT_EQ(reference.check(instance), "");
  for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace tessera
