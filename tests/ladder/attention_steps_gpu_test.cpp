// Every step of the attention ladder, held to the CPU on the GPU. TESSERA_SMALL=1: small sizes
// only.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "ladder/attention/check.h"
#include "ladder/attention/steps.h"
#include "tessera/core/error.h"
#include "tests/gpu.h"

namespace tessera::testing {
namespace {

using ladder::attention::Shape;
using ladder::attention::Step;

bool is_small_run() {
  const char* value = std::getenv("TESSERA_SMALL");
  return value != nullptr && std::string_view(value) == "1";
}

class EveryAttentionStep : public GpuTest, public ::testing::WithParamInterface<Step> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const std::string why = ladder::attention::missing(GetParam());
    if (!why.empty()) GTEST_SKIP() << GetParam().name << ": " << why;
  }

  static void expect_close(const Shape& shape) {
    for (const bool is_causal : {false, true}) {
      SCOPED_TRACE(::testing::Message()
                   << "batch " << shape.batch << ", " << shape.seq << " tokens, " << shape.heads
                   << " heads, " << (is_causal ? "causal" : "full"));
      EXPECT_EQ(ladder::attention::check_close(GetParam(), shape, is_causal), "");
    }
  }
};

// The output starts as NaN between guards, so an element that no thread writes is seen as well.
TEST_P(EveryAttentionStep, IsCloseToTheCpu) {
  expect_close({1, 64, 1});   // one tile of queries, one of keys
  expect_close({2, 128, 3});  // heads and sequences that must not be mixed up
  if (is_small_run()) return;
  expect_close({1, 320, 2});  // an odd number of tiles, and keys that outgrow the first maximum
  expect_close({1, 1024, 1});
}

TEST_P(EveryAttentionStep, IsCloseOnRaggedLengthsWhereItTakesThem) {
  if (!GetParam().accepts(1)) GTEST_SKIP() << "it takes whole tiles alone";
  for (const int seq : {1, 33, 130}) expect_close({2, seq, 2});
}

TEST_P(EveryAttentionStep, RefusesLengthsItDoesNotTake) {
  const int multiple = GetParam().multiple;
  for (const int seq : {0, multiple + 1}) {
    if (GetParam().accepts(seq)) continue;
    const ladder::attention::Problem problem{nullptr, nullptr, nullptr, nullptr, 1, seq, 1, false};
    EXPECT_THROW(ladder::attention::run(GetParam(), problem, Context{}), Error);
  }
}

std::string case_name(const ::testing::TestParamInfo<Step>& info) {
  return "Step" + std::string(info.param.name);
}

INSTANTIATE_TEST_SUITE_P(AttentionLadder, EveryAttentionStep,
                         ::testing::ValuesIn(ladder::attention::steps()), case_name);

TEST(AttentionLadderTest, FindsStepsByNameAndListsThemOtherwise) {
  EXPECT_EQ(ladder::attention::find_step("03_tiled").file, "03_tiled.cu");
  try {
    ladder::attention::find_step("07_magic");
    FAIL() << "an unknown step was found";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("01_three_pass, 02_online_softmax"),
              std::string::npos);
  }
}

// Scores in memory are the one thing a step needs beside its arguments.
TEST(AttentionLadderTest, OnlyTheFirstStepNeedsMemoryThatGrowsWithTheSquare) {
  const ladder::attention::Problem problem{nullptr, nullptr, nullptr, nullptr, 4, 4096, 16, false};
  for (const Step& step : ladder::attention::steps()) {
    EXPECT_EQ(step.scratch_bytes != nullptr, step.name == "01_three_pass") << step.name;
    if (step.scratch_bytes == nullptr) continue;
    EXPECT_EQ(step.scratch_bytes(problem), int64_t{4} << 30) << step.name;
    EXPECT_THROW(ladder::attention::run(step, problem, Context{}), Error) << step.name;
  }
}

}  // namespace
}  // namespace tessera::testing

namespace tessera::ladder::attention {
// For GoogleTest's messages.
void PrintTo(const Step& step, std::ostream* out) { *out << step.name; }
}  // namespace tessera::ladder::attention
