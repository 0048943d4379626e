// Every row of every operation on a GPU, compared with the CPU: exact on integers, close on random
// data, repeatable, batch-invariant, and writing nothing but its outputs. TESSERA_SMALL=1 keeps to
// small problems, for runs under compute-sanitizer.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench/instance.h"
#include "bench/problem.h"
#include "bench/verify.h"
#include "core/library.h"
#include "ops/registry.h"
#include "tessera/core/error.h"
#include "tests/gpu.h"

namespace tessera {
namespace {

using bench::Fill;
using bench::Instance;
using bench::Problem;
using bench::Shape;

constexpr int64_t kSmallBytes = 1 << 20;  // includes the longest rows in 16 bits
constexpr int kLeastProblems = 8;         // tried even if the row takes few shapes

bool is_small_run() {
  const char* value = std::getenv("TESSERA_SMALL");
  return value != nullptr && std::string_view(value) == "1";
}

class EveryRowOnGpu : public testing::GpuTest, public ::testing::WithParamInterface<ops::RowInfo> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const DeviceInfo& info = device_info(cuda_device());
    if (!runs_on(GetParam().library, info.compute_capability)) {
      GTEST_SKIP() << GetParam().name << " is not built for " << info.name;
    }
    maker_ = bench::find_maker(GetParam().op);
    ASSERT_NE(maker_, nullptr) << "no problem maker for " << GetParam().op;
  }

  // Calls test(instance) for every test shape that suits the row's types and that the row takes.
  template <class Test>
  void for_each_problem(Fill fill, const Test& test) {
    int num_fitting = 0, num_taken = 0;
    for (const Shape& shape : maker_->test_shapes) {
      if (!maker_->fits(GetParam().key, shape)) continue;
      const Problem sizes = maker_->make(GetParam().key, shape, Fill::none, 0);
      if (is_small_run() && sizes.storage_bytes > kSmallBytes) continue;
      ++num_fitting;
      if (!bench::is_taken(sizes, cuda_device(), forced())) continue;
      ++num_taken;
      SCOPED_TRACE(GetParam().name + " " + bench::to_string(shape));
      const Problem problem = maker_->make(GetParam().key, shape, fill, 7);
      Instance instance(problem, cuda_device());
      test(instance);
    }
    EXPECT_GT(num_fitting, 0) << "no test shape suits the types of this row";
    EXPECT_GE(num_taken, std::min(num_fitting, kLeastProblems))
        << "the row refuses all other test shapes of its types";
  }

  Context forced() const { return Context{.row = GetParam().name}; }
  // With batch_invariant, as the engine calls it, if the row claims to be.
  Context forced_invariant() const {
    return Context{.row = GetParam().name, .batch_invariant = GetParam().is_batch_invariant};
  }

  static void run(Instance& instance, const Context& ctx) {
    instance.reset();
    instance.run(0, ctx);
    synchronize(cuda_device());
  }

  // Compares outputs, guard bytes, inputs and the gaps between rows with the CPU, then runs again.
  void expect_right_and_repeatable(Instance& instance, const Context& ctx) const {
    const Problem& problem = instance.problem();
    ASSERT_NO_THROW(run(instance, ctx));
    ASSERT_EQ(bench::verify(*maker_, GetParam().key, instance, int64_t{1} << 40), "");
    if (is_small_run()) return;  // a sanitizer has seen all it needs to
    std::vector<Tensor> first;
    for (size_t i = 0; i < problem.operands.size(); ++i) first.push_back(instance.download(i));
    ASSERT_NO_THROW(run(instance, ctx));
    for (size_t i = 0; i < problem.operands.size(); ++i) {
      const Tensor again = instance.download(i);
      ASSERT_TRUE(same_bytes(first[i], again))
          << problem.operands[i].name << " changes from run to run";
    }
  }

  // These launch nothing, so no row is chosen.
  static bool is_empty(const Problem& problem) {
    return std::ranges::any_of(problem.operands, [](const bench::Operand& operand) {
      return std::ranges::find(operand.shape, 0) != operand.shape.end();
    });
  }

  static bool same_bytes(const Tensor& a, const Tensor& b) {
    const auto num_bytes = static_cast<size_t>(a.size_bytes());
    return a.size_bytes() == b.size_bytes() &&
           (num_bytes == 0 || std::memcmp(a.view().data, b.view().data, num_bytes) == 0);
  }

  const bench::ProblemMaker* maker_ = nullptr;
};

// Makers say for each operation why integer data leaves no room for rounding; an operation that
// cannot be exact states a bound even here.
TEST_P(EveryRowOnGpu, IsExactOnIntegers) {
  for_each_problem(Fill::integers,
                   [&](Instance& instance) { expect_right_and_repeatable(instance, forced()); });
}

TEST_P(EveryRowOnGpu, IsCloseOnRandomData) {
  for_each_problem(Fill::normal, [&](Instance& instance) {
    expect_right_and_repeatable(instance, forced_invariant());
  });
}

// A row of a batch has the same bits as that row computed alone, even if another kernel serves a
// single row.
TEST_P(EveryRowOnGpu, GivesARowTheSameBitsAloneAsInABatch) {
  if (!GetParam().is_batch_invariant) GTEST_SKIP() << GetParam().name << " does not claim it";
  int num_compared = 0;
  for_each_problem(Fill::normal, [&](Instance& batch) {
    const Problem& problem = batch.problem();
    const int64_t num_rows =
        problem.row_dim.empty() ? 0 : bench::value_of(problem.shape, problem.row_dim);
    if (num_rows < 2) return;
    ASSERT_NO_THROW(run(batch, forced_invariant()));
    for (const int64_t row : {int64_t{0}, num_rows / 2, num_rows - 1}) {
      const int64_t rows[] = {row};
      const Problem alone = bench::take_rows(*maker_, GetParam().key, problem, rows);
      Instance single(alone, cuda_device());
      const bool takes_one = bench::is_taken(alone, cuda_device(), forced_invariant());
      const Context ctx = takes_one ? forced_invariant() : Context{.batch_invariant = true};
      ASSERT_NO_THROW(run(single, ctx));
      for (size_t i = 0; i < problem.operands.size(); ++i) {
        if (!problem.operands[i].is_per_row) continue;
        ASSERT_TRUE(same_bytes(batch.download_rows(i, rows), single.download(i)))
            << problem.operands[i].name << ", row " << row << " of " << num_rows;
        ++num_compared;
      }
    }
  });
  if (num_compared == 0) GTEST_SKIP() << GetParam().op << " has no independent rows";
}

TEST_P(EveryRowOnGpu, IsRefusedByNameWhereItsTypesDoNotFit) {
  for (const RowKey other : maker_->keys) {
    if (other == GetParam().key) continue;
    for (const Shape& shape : maker_->test_shapes) {
      if (!maker_->fits(other, shape)) continue;
      const Problem problem = maker_->make(other, shape, Fill::integers, 7);
      if (problem.storage_bytes > kSmallBytes || is_empty(problem)) continue;
      Instance instance(problem, cuda_device());
      instance.reset();
      EXPECT_THROW(instance.run(0, forced()), Error) << bench::to_string(shape);
      return;
    }
  }
}

std::string case_name(const ::testing::TestParamInfo<ops::RowInfo>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Rows, EveryRowOnGpu, ::testing::ValuesIn(ops::all_rows()), case_name);

}  // namespace

namespace ops {
// For GoogleTest's messages.
void PrintTo(const RowInfo& row, std::ostream* out) { *out << row.name; }
}  // namespace ops

}  // namespace tessera
