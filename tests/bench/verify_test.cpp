// The comparison fails where it should: these are the tests' own tests.
// SPDX-License-Identifier: MIT
#include "bench/verify.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tessera::bench {
namespace {

Operand operand_of(std::vector<int64_t> shape, Bound bound) {
  Operand operand;
  operand.name = "out";
  operand.role = Role::output;
  operand.bound = bound;
  operand.strides = {shape.back(), 1};
  operand.shape = std::move(shape);
  return operand;
}

std::string compare_floats(std::vector<float> got, std::vector<float> want, Bound bound) {
  const auto count = static_cast<int64_t>(want.size());
  return compare(operand_of({1, count}, bound),
                 TensorView::contiguous(got.data(), DType::f32, {count}),
                 TensorView::contiguous(want.data(), DType::f32, {count}));
}

TEST(Compare, WithoutABoundAsksForTheSameBits) {
  EXPECT_EQ(compare_floats({1, 2}, {1, 2}, {}), "");
  EXPECT_NE(compare_floats({1, 0x1.000002p1f}, {1, 2}, {}), "");
  EXPECT_NE(compare_floats({1, -0.0f}, {1, 0.0f}, {}), "");
}

TEST(Compare, TakesWhatIsWithinTheBoundAndNothingBeyond) {
  EXPECT_EQ(compare_floats({1.5f}, {1}, {.absolute = 0.5}), "");
  EXPECT_NE(compare_floats({1.5001f}, {1}, {.absolute = 0.5}), "");
  EXPECT_EQ(compare_floats({110}, {100}, {.relative = 0.1}), "");
  EXPECT_NE(compare_floats({110.1f}, {100}, {.relative = 0.1}), "");
}

TEST(Compare, NeverTakesNaNForANumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(compare_floats({nan}, {-nan}, {}), "");
  EXPECT_NE(compare_floats({nan}, {1}, {.absolute = 1e30, .relative = 1}), "");
  EXPECT_NE(compare_floats({1}, {nan}, {.absolute = 1e30, .relative = 1}), "");
  EXPECT_NE(compare_floats({inf}, {-inf}, {.absolute = 1e30, .relative = 1e-3}), "");
}

TEST(Compare, CountsStepsOfQuantizedTypes) {
  const auto compare_bytes = [](DType dtype, uint8_t got, uint8_t want, int steps) {
    return compare(operand_of({1, 1}, {.steps = steps}), TensorView::contiguous(&got, dtype, {1}),
                   TensorView::contiguous(&want, dtype, {1}));
  };
  EXPECT_EQ(compare_bytes(DType::i8, 0xff, 0x00, 1), "");  // -1 and 0
  EXPECT_NE(compare_bytes(DType::i8, 0xfe, 0x00, 1), "");
  EXPECT_EQ(compare_bytes(DType::e4m3, 0x7e, 0x7d, 1), "");  // 448 and 416
  EXPECT_NE(compare_bytes(DType::e4m3, 0x7e, 0x7c, 1), "");
  EXPECT_EQ(compare_bytes(DType::e4m3, 0x80, 0x01, 1), "");  // -0 and the least positive
  EXPECT_NE(compare_bytes(DType::e4m3, 0x7f, 0x7e, 1), "") << "NaN is no neighbour of 448";
}

TEST(Compare, NamesTheWorstElementBothValuesAndTheBound) {
  const std::string text = compare_floats({1, 5, 3.5f}, {1, 2, 3}, {.absolute = 0.25});
  EXPECT_NE(text.find("2 of 3 elements"), std::string::npos) << text;
  EXPECT_NE(text.find("row 0 column 1, is 5, should be 2 within 0.25"), std::string::npos) << text;
}

// A problem whose call writes one element too many, one too few, or into its input.
Problem faulty_problem(int64_t first, int64_t count, bool writes_input) {
  Problem problem;
  problem.shape = {{"rows", 1}};
  for (const char* name : {"x", "out"}) {
    Operand operand = operand_of({1, 64}, {});
    operand.name = name;
    operand.role = operand.name == "x" ? Role::input : Role::output;
    operand.host = Tensor(DType::f32, {64});
    std::fill_n(operand.host.view().as<float>(), 64, 1.0f);
    problem.operands.push_back(std::move(operand));
  }
  problem.call = [=](std::span<const TensorView> v, const Context&) {
    for (int64_t i = first; i < first + count; ++i) v[1].as<float>()[i] = 2.0f;
    if (writes_input) v[0].as<float>()[3] = 9.0f;
  };
  return problem;
}

TEST(Instance, SeesWritesBesideABuffer) {
  for (const auto& [first, expected] : {std::pair<int64_t, const char*>{0, ""},
                                        {-1, "memory before out was written"},
                                        {1, "memory behind out was written"}}) {
    const Problem problem = faulty_problem(first, 64, false);
    Instance instance(problem, cpu_device());
    instance.reset();
    instance.run(0, {});
    EXPECT_EQ(instance.damage(), expected);
  }
}

TEST(Instance, LeavesPoisonInWhatWasNotWritten) {
  const Problem problem = faulty_problem(0, 63, false);
  Instance instance(problem, cpu_device());
  instance.reset();
  instance.run(0, {});
  EXPECT_TRUE(std::isnan(instance.download(1).view().as<float>()[63]));
}

TEST(Instance, GivesEverySetTheSameInputsOfItsOwn) {
  const Problem problem = faulty_problem(0, 64, true);
  Instance instance(problem, cpu_device(), 3);
  instance.reset();
  instance.run(2, {});
  EXPECT_EQ(instance.download(0).view().as<float>()[3], 1.0f) << "set 0 was written by set 2";
  instance.run(0, {});
  EXPECT_EQ(instance.download(0).view().as<float>()[3], 9.0f);
}

}  // namespace
}  // namespace tessera::bench
