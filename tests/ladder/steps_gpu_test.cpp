// Every step of the GEMM ladder, held to the CPU on the GPU. TESSERA_SMALL=1 keeps to small sizes.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "ladder/gemm/check.h"
#include "ladder/gemm/steps.h"
#include "tessera/core/error.h"
#include "tests/gpu.h"

namespace tessera::testing {
namespace {

using ladder::Step;

struct Mnk {
  int m;
  int n;
  int k;
};

bool is_small_run() {
  const char* value = std::getenv("TESSERA_SMALL");
  return value != nullptr && std::string_view(value) == "1";
}

class EveryStep : public GpuTest, public ::testing::WithParamInterface<Step> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const std::string why = ladder::missing(GetParam());
    if (!why.empty()) GTEST_SKIP() << GetParam().name << ": " << why;
  }

  static void expect_exact(const Mnk& size) {
    SCOPED_TRACE(::testing::Message() << "m=" << size.m << " n=" << size.n << " k=" << size.k);
    EXPECT_EQ(ladder::check_exact(GetParam(), size.m, size.n, size.k), "");
  }
};

// The output starts as NaN between guards, so an element that no thread writes is seen as well.
TEST_P(EveryStep, IsExactOnSmallIntegers) {
  expect_exact({256, 256, 256});
  if (is_small_run()) return;
  expect_exact({512, 256, 64});    // one step of a wide pipeline's k
  expect_exact({256, 768, 1088});  // more stages than any ring, and not a multiple of them
}

// More tiles than SMs, and bands of tile rows that do not come out even: what a persistent walk can
// get wrong.
TEST_P(EveryStep, IsExactWhereTilesOutnumberTheMultiprocessors) {
  if (is_small_run()) GTEST_SKIP() << "a large problem";
  expect_exact({4608, 2304, 64});
}

TEST_P(EveryStep, IsExactOnRaggedSizesWhereItTakesThem) {
  if (!GetParam().accepts(1, 1, 1)) GTEST_SKIP() << "it takes whole tiles alone";
  for (const Mnk& size : {Mnk{1, 1, 1}, Mnk{33, 65, 31}, Mnk{130, 127, 9}, Mnk{129, 257, 100}}) {
    expect_exact(size);
  }
}

TEST_P(EveryStep, RefusesSizesItDoesNotTake) {
  const ladder::Multiples& of = GetParam().multiples;
  if (of.k == 1) GTEST_SKIP() << "it takes any size";
  const ladder::Problem problem{nullptr, nullptr, nullptr, of.m, of.n, of.k + 1};
  EXPECT_THROW(ladder::run(GetParam(), problem, Context{}), Error);
}

std::string case_name(const ::testing::TestParamInfo<Step>& info) {
  return "Step" + std::string(info.param.name);
}

INSTANTIATE_TEST_SUITE_P(Ladder, EveryStep, ::testing::ValuesIn(ladder::steps()), case_name);

TEST(LadderTest, FindsStepsByNameAndListsThemOtherwise) {
  EXPECT_EQ(ladder::find_step("07_wmma").file, "07_wmma.cu");
  try {
    ladder::find_step("15_magic");
    FAIL() << "an unknown step was found";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("01_naive, 02_coalesced"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::testing

namespace tessera::ladder {
// For GoogleTest's messages.
void PrintTo(const Step& step, std::ostream* out) { *out << step.name; }
}  // namespace tessera::ladder
