// Every operation has a maker, and what makers make runs on the CPU.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "bench/instance.h"
#include "bench/problem.h"
#include "bench/verify.h"
#include "ops/registry.h"
#include "tessera/core/error.h"
#include "tessera/ops/gemm.h"
#include "tessera/ops/norm.h"

namespace tessera::bench {
namespace {

constexpr int64_t kMakerBytes = 200 * 1000;  // keeps this to seconds

std::string label(const ProblemMaker& maker, RowKey key, const Shape& shape) {
  return std::string(maker.op) + " " + std::string(name(key.in)) + " " +
         std::string(name(key.out)) + " " + to_string(shape);
}

TEST(EveryRow, HasAMakerWithTestShapesAndAWorkloadThatFitItsTypes) {
  const std::vector<ops::RowInfo> rows = ops::all_rows();
  if (rows.empty()) GTEST_SKIP() << "this build has no CUDA rows; the makers' types stand for them";
  for (const ops::RowInfo& row : rows) {
    SCOPED_TRACE(row.name);
    const ProblemMaker* maker = find_maker(row.op);
    ASSERT_NE(maker, nullptr) << "add a maker for " << row.op << " to bench/problems";
    const auto fits = [&](const Shape& shape) { return maker->fits(row.key, shape); };
    EXPECT_GE(std::ranges::count_if(maker->test_shapes, fits), 5);
    // Every row is timed somewhere, or at least every operation in its widest type is.
    bool has_workload = false;
    for (const Workload& workload : maker->workloads) {
      has_workload = has_workload || std::ranges::any_of(workload.shapes, fits);
    }
    EXPECT_TRUE(has_workload);
    EXPECT_NE(std::ranges::find(maker->keys, row.key), maker->keys.end())
        << "the maker's keys lack a row's types";
  }
}

TEST(EveryMaker, ListsOnlyTypesThatSomeRowHas) {
  const std::vector<ops::RowInfo> rows = ops::all_rows();
  if (rows.empty()) GTEST_SKIP() << "this build has no CUDA rows";
  for (const ProblemMaker& maker : problem_makers()) {
    for (const RowKey key : maker.keys) {
      const auto has_key = [&](const ops::RowInfo& row) {
        return row.op == maker.op && row.key == key;
      };
      EXPECT_TRUE(std::ranges::any_of(rows, has_key)) << label(maker, key, {});
    }
  }
}

TEST(EveryMaker, HasTestShapesAndAWorkloadForEachOfItsTypes) {
  for (const ProblemMaker& maker : problem_makers()) {
    EXPECT_FALSE(maker.keys.empty()) << maker.op;
    for (const RowKey key : maker.keys) {
      const auto fits = [&](const Shape& shape) { return maker.fits(key, shape); };
      EXPECT_GE(std::ranges::count_if(maker.test_shapes, fits), 5) << label(maker, key, {});
      const bool has_workload = std::ranges::any_of(
          maker.workloads, [&](const Workload& w) { return std::ranges::any_of(w.shapes, fits); });
      EXPECT_TRUE(has_workload) << label(maker, key, {});
    }
  }
}

TEST(EveryMaker, CountsBytesAndFlopsOfItsWorkloads) {
  for (const ProblemMaker& maker : problem_makers()) {
    for (const Workload& workload : maker.workloads) {
      for (const Shape& shape : workload.shapes) {
        for (const RowKey key : maker.keys) {
          if (!maker.fits(key, shape)) continue;
          const Problem problem = maker.make(key, shape, Fill::none, 0);
          EXPECT_GT(problem.bytes, 0) << label(maker, key, shape);
          EXPECT_GE(problem.flops, 0) << label(maker, key, shape);
          EXPECT_GT(problem.storage_bytes, 0) << label(maker, key, shape);
        }
      }
    }
  }
}

TEST(RmsNormProblem, CountsEachInputAndOutputOnce) {
  const ProblemMaker& maker = *find_maker("rms_norm");
  const RowKey bf16{DType::bf16, DType::bf16};
  const Shape plain{{"rows", 16}, {"hidden", 4096}};
  const double matrix = 16 * 4096 * 2, weight = 4096 * 2;
  EXPECT_EQ(maker.make(bf16, plain, Fill::none, 0).bytes, 2 * matrix + weight);
  // The residual is read and written.
  const Shape added = with_value(plain, "residual", 1);
  EXPECT_EQ(maker.make(bf16, added, Fill::none, 0).bytes, 4 * matrix + weight);
}

TEST(GemmProblem, CountsTheWeightOnceAndHalfTheColumnsOfAGate) {
  const ProblemMaker& maker = *find_maker("gemm");
  const RowKey bf16{DType::bf16, DType::bf16};
  const Shape plain{{"m", 16}, {"n", 64}, {"k", 32}};
  const double a = 16 * 32 * 2, b = 64 * 32 * 2, out = 16 * 64 * 2;
  const Problem product = maker.make(bf16, plain, Fill::none, 0);
  EXPECT_EQ(product.bytes, a + b + out);
  EXPECT_EQ(product.flops, 2 * 16 * 64 * 32);
  const Shape gated = with_value(with_value(plain, "activation", 2), "gated", 1);
  const Problem half = maker.make(bf16, gated, Fill::none, 0);
  EXPECT_EQ(half.bytes, a + b + out / 2);
  EXPECT_EQ(half.flops, product.flops);
  const Shape in_place = with_value(plain, "residual", 2);
  EXPECT_EQ(maker.make(bf16, in_place, Fill::none, 0).bytes, a + b + 2 * out);
  const Shape shared = with_value(with_value(plain, "batch", 3), "shared_b", 1);
  EXPECT_EQ(maker.make(bf16, shared, Fill::none, 0).bytes, 3 * a + b + 3 * out);
  EXPECT_EQ(maker.make(bf16, shared, Fill::none, 0).flops, 3 * product.flops);
}

// Sums of integer problems fit every output type, so that no row may round them.
TEST(GemmProblem, KeepsIntegerSumsWithinEightBits) {
  const ProblemMaker& maker = *find_maker("gemm");
  const RowKey key{DType::bf16, DType::f32};
  for (const int64_t k : {1000, 1024, 4096, 14336}) {
    const Problem problem = maker.make(key, {{"m", 40}, {"n", 100}, {"k", k}}, Fill::integers, 7);
    const std::vector<Tensor> storages = run_on_cpu(problem);
    const TensorView out = storages.back();
    float largest = 0;
    for (int64_t i = 0; i < out.num_elements(); ++i) {
      largest = std::max(largest, std::abs(out.as<float>()[i]));
    }
    EXPECT_LE(largest, 256) << "k = " << k;
    EXPECT_GE(largest, 32) << "k = " << k;
  }
}

TEST(IsTaken, AsksWithoutMemory) {
  const ProblemMaker& maker = *find_maker("gemm");
  const Problem sizes = maker.make({DType::bf16, DType::bf16},
                                   {{"m", 4096}, {"n", 4096}, {"k", 4096}}, Fill::none, 0);
  EXPECT_TRUE(is_taken(sizes, cpu_device(), {}));
  EXPECT_FALSE(is_taken(sizes, cpu_device(), {.row = "gemm_of_no_table"}));
}

// Runs every small problem on the CPU between guards. With integer data the oracle must be its
// own twin on a second run; an element left unwritten still holds poison, which for floats is NaN.
TEST(EveryMaker, MakesProblemsTheCpuRunsWithoutLeavingItsOutputs) {
  for (const ProblemMaker& maker : problem_makers()) {
    for (const RowKey key : maker.keys) {
      for (const Shape& shape : maker.test_shapes) {
        if (!maker.fits(key, shape)) continue;
        if (maker.make(key, shape, Fill::none, 0).storage_bytes > kMakerBytes) continue;
        for (const Fill fill : {Fill::integers, Fill::normal}) {
          SCOPED_TRACE(label(maker, key, shape));
          const Problem problem = maker.make(key, shape, fill, 7);
          Instance instance(problem, cpu_device());
          instance.reset();
          ASSERT_NO_THROW(instance.run(0, {}));
          EXPECT_EQ(instance.damage(), "");
          EXPECT_EQ(verify(maker, key, instance, int64_t{1} << 40), "");
        }
      }
    }
  }
}

// What the exact tests rest on: integer problems come out as values the formula gives exactly.
TEST(IntegerProblem, OfRmsNormNormalizesToPlusOrMinusTheWeight) {
  const ProblemMaker& maker = *find_maker("rms_norm");
  const RowKey key{DType::f32, DType::f32};
  const Shape shape{{"rows", 3}, {"hidden", 64}, {"residual", 1}};
  const Problem problem = maker.make(key, shape, Fill::integers, 7);
  const std::vector<Tensor> result = run_on_cpu(problem);
  ASSERT_EQ(problem.operands[1].name, "weight");
  ASSERT_EQ(problem.operands[2].name, "out");
  const float* weight = result[1].view().as<float>();
  const float* out = result[2].view().as<float>();
  for (int i = 0; i < 3 * 64; ++i) EXPECT_EQ(std::abs(out[i]), std::abs(weight[i % 64])) << i;
}

TEST(IntegerProblem, OfSoftmaxGivesPowersOfTwoAndZeros) {
  const ProblemMaker& maker = *find_maker("softmax");
  const RowKey key{DType::f32, DType::f32};
  const Shape shape{{"rows", 6}, {"cols", 100}, {"mask", 1}, {"mask_rows", 3}, {"scaled", 1}};
  const std::vector<Tensor> result = run_on_cpu(maker.make(key, shape, Fill::integers, 7));
  const float* out = result[1].view().as<float>();
  std::set<float> values(out, out + 600);
  EXPECT_EQ(values, (std::set<float>{0.0f, 1.0f / 32}));
}

TEST(IntegerProblem, OfQuantizeHasScalesThatArePowersOfTwo) {
  const ProblemMaker& maker = *find_maker("quantize");
  for (const RowKey key : maker.keys) {
    for (const Shape& shape : maker.test_shapes) {
      if (!maker.fits(key, shape) || value_of(shape, "rows") == 0) continue;
      if (value_of(shape, "special") != 0) continue;  // some scales are NaN
      if (maker.make(key, shape, Fill::none, 0).storage_bytes > kMakerBytes) continue;
      const Problem problem = maker.make(key, shape, Fill::integers, 7);
      const std::vector<Tensor> result = run_on_cpu(problem);
      const TensorView scale = problem.operands[2].place(result[2].view().data, cpu_device());
      for (int64_t i = 0; i < scale.num_elements(); ++i) {
        int exponent = 0;
        ASSERT_EQ(std::frexp(scale.as<float>()[i], &exponent), 0.5f) << label(maker, key, shape);
      }
    }
  }
}

TEST(TakeRows, GivesTheSameRowsAlone) {
  for (const ProblemMaker& maker : problem_makers()) {
    for (const Shape& shape : maker.test_shapes) {
      const RowKey key = maker.keys.front();
      if (!maker.fits(key, shape)) continue;
      const Problem problem = maker.make(key, shape, Fill::none, 0);
      if (problem.row_dim.empty() || value_of(shape, problem.row_dim) < 3) continue;
      if (problem.storage_bytes > kMakerBytes) continue;
      SCOPED_TRACE(label(maker, key, shape));
      const Problem whole = maker.make(key, shape, Fill::normal, 7);
      const int64_t rows[] = {2, 0};
      const Problem part = take_rows(maker, key, whole, rows);
      Instance instance(whole, cpu_device());
      instance.reset();
      instance.run(0, {});
      const std::vector<Tensor> alone = run_on_cpu(part);
      for (size_t i = 0; i < part.operands.size(); ++i) {
        if (!part.operands[i].is_per_row) continue;
        Operand exact;
        exact.name = part.operands[i].name;
        exact.strides = part.operands[i].strides;
        exact.shape = part.operands[i].shape;
        EXPECT_EQ(compare(exact, instance.download_rows(i, rows), alone[i]), "");
      }
    }
  }
}

// A norm in front of a product writes its codes, and some rows alone are what they are among all.
TEST(GemmProblem, WithANormMultipliesWhatTheNormWrites) {
  const ProblemMaker& maker = *find_maker("gemm");
  const Shape shape{{"m", 6}, {"n", 64}, {"k", 256}, {"a_scale", 1}, {"b_scale", 1}, {"norm", 1}};
  for (const DType dtype : {DType::e4m3, DType::i8}) {
    const RowKey key{dtype, DType::bf16, dtype};
    ASSERT_TRUE(maker.fits(key, shape));
    const Problem problem = maker.make(key, shape, Fill::normal, 7);
    const std::vector<Tensor> done = run_on_cpu(problem);
    const auto view = [&](size_t i) {
      return problem.operands[i].place(done[i].view().data, cpu_device());
    };
    const Tensor codes(dtype, {6, 256}), scales(DType::f32, {6}), out(DType::bf16, {6, 64});
    rms_norm({.x = view(4), .weight = view(5), .out = codes, .token_scale = scales.view()});
    gemm({.a = codes,
          .b = Weight{.values = view(2), .scale = view(3)},
          .out = out,
          .a_scale = scales.view()});
    EXPECT_EQ(compare(problem.operands.back(), done.back(), out), "");
    const int64_t rows[] = {4, 1};
    const std::vector<Tensor> alone = run_on_cpu(take_rows(maker, key, problem, rows));
    for (int64_t i = 0; i < 2 * 64; ++i) {
      EXPECT_EQ(alone.back().view().as<Bf16>()[i].bits,
                out.view().as<Bf16>()[rows[i / 64] * 64 + i % 64].bits);
    }
  }
}

TEST(Maker, RefusesAnOptionItDoesNotKnow) {
  const Shape misspelt{{"rows", 1}, {"hidden", 8}, {"residaul", 1}};
  try {
    find_maker("rms_norm")->make({DType::f32, DType::f32}, misspelt, Fill::normal, 0);
    FAIL() << "a misspelt option was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("\"residaul\"; known: rows, hidden"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tessera::bench
