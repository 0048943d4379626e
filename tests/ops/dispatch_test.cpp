// How a row is chosen, on tables made for the test; no kernel runs.
// SPDX-License-Identifier: MIT
#include "ops/dispatch.h"

#include <algorithm>

#include "kernels/elementwise/rows.h"
#include "ops/registry.h"
#include "tests/ops/refusal.h"

namespace tessera::testing {
namespace {

using namespace ops;

void launch_nothing(const CopyArgs&, const Context&) {}
bool is_square(const CopyArgs& args) { return args.x.size(0) == args.x.size(1); }

constexpr Row<CopyArgs> kSm90[] = {
    {"copy", Library::sm90, {DType::i32, DType::i32}, &launch_nothing, "square", &is_square},
    {"copy", Library::sm90, {DType::i32, DType::i32}, &launch_nothing, "split", nullptr, false},
};
constexpr Row<CopyArgs> kPortable[] = {
    {"copy", Library::portable, {DType::i32, DType::i32}, &launch_nothing, "32bit"},
    {"copy", Library::portable, {DType::f16, DType::f16}, &launch_nothing, "16bit"},
};

constexpr Row<CopyArgs> kVendor[] = {
    {"copy",
     Library::portable,
     {DType::f16, DType::f16},
     &launch_nothing,
     "vendor",
     nullptr,
     false},
};

class Dispatch : public ::testing::Test {
 protected:
  Op<CopyArgs> op{"copy", [](const CopyArgs&) {}, [](const CopyArgs&) {}, kSm90, kPortable};
  Target hopper{cuda_device(), 90}, ampere{cuda_device(), 80}, turing{cuda_device(), 75};
  Tensor square{DType::f32, {4, 4}}, oblong{DType::f32, {2, 4}}, bytes{DType::i8, {4, 4}};

  std::string found(const Tensor& x, const Target& target, const Context& ctx = {}) {
    const Row<CopyArgs>* row = find_row(op, {.x = x, .out = x}, target, ctx);
    return row == nullptr ? "none" : row->name();
  }
  ::testing::AssertionResult refuses(const Tensor& x, const Target& target, const Context& ctx,
                                     std::initializer_list<std::string_view> words) {
    return refused([&] { refuse(op, {.x = x, .out = x}, target, ctx); }, words);
  }
};

TEST_F(Dispatch, TheFirstRowThatTakesTheArgumentsWins) {
  EXPECT_EQ(found(square, hopper), "copy_sm90_square");
  EXPECT_EQ(found(oblong, hopper), "copy_sm90_split");
  EXPECT_EQ(found(square, ampere), "copy_32bit");
  EXPECT_EQ(found(square, turing), "none");
  EXPECT_EQ(found(bytes, hopper), "none");
}

TEST_F(Dispatch, TheVendorsRowsStandBetweenOurLibraries) {
  const Tensor halves(DType::f16, {4, 4});
  op.rows_vendor = kVendor;
  EXPECT_EQ(found(halves, hopper), "copy_vendor");
  EXPECT_EQ(found(square, hopper), "copy_sm90_square");
  EXPECT_EQ(found(halves, hopper, {.batch_invariant = true}), "copy_16bit");
  EXPECT_EQ(found(halves, hopper, {.row = "copy_16bit"}), "copy_16bit");
  EXPECT_EQ(found(halves, hopper, {.row = "copy_vendor"}), "copy_vendor");
  EXPECT_TRUE(refuses(bytes, hopper, {}, {"copy_vendor", "copy_16bit"}));
}

TEST_F(Dispatch, ARowYieldsToTheVendorsAndToNoOther) {
  constexpr Row<CopyArgs> kYielding[] = {
      {"copy",
       Library::sm90,
       {DType::f16, DType::f16},
       &launch_nothing,
       "yielding",
       nullptr,
       true,
       &is_square},
  };
  const Tensor square_halves(DType::f16, {4, 4});
  const Tensor oblong_halves(DType::f16, {2, 4});
  op.rows_sm90 = kYielding;
  EXPECT_EQ(found(square_halves, hopper), "copy_sm90_yielding");  // no vendor row to yield to
  op.rows_vendor = kVendor;
  EXPECT_EQ(found(square_halves, hopper), "copy_vendor");
  EXPECT_EQ(found(oblong_halves, hopper), "copy_sm90_yielding");
  EXPECT_EQ(found(square_halves, hopper, {.batch_invariant = true}), "copy_sm90_yielding");
  EXPECT_EQ(found(square_halves, hopper, {.row = "copy_sm90_yielding"}), "copy_sm90_yielding");
  op.rows = {};
  EXPECT_EQ(found(square_halves, hopper, {.batch_invariant = true}), "copy_sm90_yielding");
}

TEST_F(Dispatch, BatchInvarianceLeavesOutRowsThatLackIt) {
  EXPECT_EQ(found(oblong, hopper, {.batch_invariant = true}), "copy_32bit");
}

TEST_F(Dispatch, AForcedRowIsTheOnlyChoice) {
  EXPECT_EQ(found(square, hopper, {.row = "copy_32bit"}), "copy_32bit");
  EXPECT_EQ(found(oblong, hopper, {.row = "copy_sm90_square"}), "none");
  EXPECT_EQ(found(square, ampere, {.row = "copy_sm90_square"}), "none");
}

TEST_F(Dispatch, AForcedRowThatDoesNotFitIsRefusedWithTheReason) {
  EXPECT_TRUE(refuses(square, hopper, {.row = "copy_64bit"},
                      {"copy: there is no row 'copy_64bit'", "copy_sm90_square", "copy_16bit"}));
  EXPECT_TRUE(refuses(square, ampere, {.row = "copy_sm90_split"},
                      {"'copy_sm90_split' cannot run on cuda:0", "capability 90", "has 80"}));
  EXPECT_TRUE(refuses(square, hopper, {.row = "copy_16bit"},
                      {"'copy_16bit' is for f16", "the arguments are i32"}));
  EXPECT_TRUE(refuses(oblong, hopper, {.row = "copy_sm90_square"},
                      {"'copy_sm90_square'", "does not take these arguments"}));
  EXPECT_TRUE(refuses(square, hopper, {.row = "copy_sm90_split", .batch_invariant = true},
                      {"'copy_sm90_split'", "depends on the batch"}));
}

TEST_F(Dispatch, WithoutAFittingRowTheNearestAreListed) {
  EXPECT_TRUE(refuses(bytes, hopper, {},
                      {"copy: no row takes u8 on cuda:0", "capability 90", "copy_sm90_square"}));
  EXPECT_TRUE(refuses(square, turing, {},
                      {"copy: no row takes i32", "the nearest, copy_sm90_square", "has 75"}));
  op.rows = op.rows_sm90 = {};
  EXPECT_EQ(found(square, target_of(op, cuda_device(3))), "none");
  EXPECT_TRUE(refuses(square, target_of(op, cuda_device(3)), {},
                      {"on cuda:3", "no GPU kernels", "TESSERA_CUDA=ON"}));
}

TEST_F(Dispatch, ARowForcedOnTheCpuIsRefused) {
  const CopyArgs args{.x = square, .out = square};
  EXPECT_TRUE(refused([&] { run(op, args, cpu_device(), {.row = "copy_32bit"}); },
                      {"copy: row 'copy_32bit' is a GPU kernel", "on the cpu"}));
  EXPECT_FALSE(is_supported(op, args, cpu_device(), {.row = "copy_32bit"}));
  EXPECT_TRUE(is_supported(op, args, cpu_device(), {}));
}

TEST(DispatchLog, PrintsAChoiceOncePerOperationAndRow) {
  ::testing::internal::CaptureStderr();
  for (int call = 0; call < 3; ++call) {
    log_choice("copy", &kPortable[0], kPortable[0].name());
    log_choice("copy", nullptr, "cpu");
    log_choice("reduce", nullptr, "cpu");
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "tessera: copy runs copy_32bit\ntessera: copy runs cpu\ntessera: reduce runs cpu\n");
}

TEST(Registry, NamesAreUniqueAndTellTheOperation) {
  std::vector<std::string> names;
  for (const RowInfo& row : all_rows()) {
    EXPECT_TRUE(row.family == "elementwise" || row.family == "gemm" || row.family == "attention" ||
                row.family == "kv" || row.family == "sampling")
        << row.family;
    EXPECT_EQ(row.name.rfind(row.op, 0), 0u) << row.name;
    EXPECT_EQ(row.name.find("_sm90_") != std::string::npos, row.library == Library::sm90);
    names.push_back(row.name);
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

}  // namespace
}  // namespace tessera::testing
