// Views, rows and tensors: what they describe, and what they refuse.
// SPDX-License-Identifier: MIT
#include "tessera/core/tensor.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/core/message_of.h"

namespace tessera {
namespace {

using testing::message_of;

TensorView strided(std::array<int64_t, kMaxRank> shape, std::array<int64_t, kMaxRank> strides,
                   int rank) {
  static float memory[1] = {};
  return {.data = memory,
          .dtype = DType::f32,
          .rank = rank,
          .shape = shape,
          .strides = strides,
          .device = {}};
}

std::vector<int64_t> strides_of(const TensorView& view) {
  return {view.strides.begin(), view.strides.begin() + view.rank};
}

TEST(TensorView, IsPlainData) { static_assert(std::is_trivially_copyable_v<TensorView>); }

TEST(TensorView, ContiguousStridesCountElementsRowMajor) {
  const auto view = TensorView::contiguous(nullptr, DType::bf16, {2, 3, 4});
  EXPECT_EQ(strides_of(view), (std::vector<int64_t>{12, 4, 1}));
  EXPECT_EQ(view.num_elements(), 24);
  EXPECT_EQ(view.size(-1), 4);
  EXPECT_EQ(view.size(0), 2);
  EXPECT_EQ(view.stride(-2), 4);
  EXPECT_TRUE(view.is_contiguous());
}

TEST(TensorView, AnEmptyViewIsContiguousAndHasNoElements) {
  const auto view = TensorView::contiguous(nullptr, DType::f32, {4, 0, 3});
  EXPECT_EQ(view.num_elements(), 0);
  EXPECT_TRUE(view.is_contiguous());
  EXPECT_TRUE(strided({0, 3}, {7, 5}, 2).is_contiguous());
  EXPECT_TRUE(strided({3, 0}, {7, 5}, 2).is_contiguous());
}

TEST(TensorView, ARankOfZeroIsOneElement) {
  const auto view = TensorView::contiguous(nullptr, DType::f32, std::span<const int64_t>{});
  EXPECT_EQ(view.num_elements(), 1);
  EXPECT_TRUE(view.is_contiguous());
  EXPECT_EQ(to_string(view), "f32[] on cpu");
}

TEST(TensorView, ContiguityIgnoresTheStridesOfAxesOfSizeOne) {
  EXPECT_TRUE(strided({1, 3}, {99, 1}, 2).is_contiguous());
  EXPECT_TRUE(strided({3, 1}, {1, 99}, 2).is_contiguous());
  EXPECT_FALSE(strided({2, 3}, {4, 1}, 2).is_contiguous());
  EXPECT_FALSE(strided({2, 3}, {3, 2}, 2).is_contiguous());
  EXPECT_FALSE(strided({2, 3}, {0, 1}, 2).is_contiguous());
  EXPECT_FALSE(strided({3}, {-1}, 1).is_contiguous());
}

TEST(TensorView, ComparesShapesByRankAndSizes) {
  const auto view = TensorView::contiguous(nullptr, DType::f32, {2, 3});
  EXPECT_TRUE(view.same_shape(TensorView::contiguous(nullptr, DType::i8, {2, 3})));
  EXPECT_FALSE(view.same_shape(TensorView::contiguous(nullptr, DType::f32, {3, 2})));
  EXPECT_FALSE(view.same_shape(TensorView::contiguous(nullptr, DType::f32, {2, 3, 1})));
  EXPECT_TRUE(view.has_shape(std::vector<int64_t>{2, 3}));
  EXPECT_FALSE(view.has_shape(std::vector<int64_t>{2}));
}

TEST(TensorView, RefusesShapesThatCannotBe) {
  const auto make = [](DType dtype, std::vector<int64_t> shape) {
    return message_of([&] { (void)TensorView::contiguous(nullptr, dtype, shape); });
  };
  EXPECT_TRUE(make(DType::f32, {1, 1, 1, 1, 1, 1}).empty());
  EXPECT_TRUE(make(DType::f32, {1, 1, 1, 1, 1, 1, 1})
                  .starts_with("tensor: shape [1, 1, 1, 1, 1, 1, 1] has rank 7; at most 6"));
  EXPECT_TRUE(make(DType::f32, {2, -3}).starts_with("tensor: shape [2, -3] has a negative size"));
  EXPECT_TRUE(
      make(DType::f32, {int64_t{1} << 32, int64_t{1} << 31})
          .starts_with("tensor: shape [4294967296, 2147483648] of f32 is beyond 2^63 bits"));
  EXPECT_TRUE(make(DType::i4, {2, 5})
                  .starts_with("tensor: i4[2, 5] has rows of an odd size, and a byte holds two i4; "
                               "pad the innermost axis to 6"));
  EXPECT_TRUE(make(DType::i4, {5}).empty());
}

TEST(TensorView, ASliceSharesTheMemory) {
  int32_t values[12] = {};
  const auto view = TensorView::contiguous(values, DType::i32, {3, 4});
  const TensorView part = view.slice(-1, 1, 3);
  EXPECT_EQ(part.data, values + 1);
  EXPECT_EQ(part.size(0), 3);
  EXPECT_EQ(part.size(1), 2);
  EXPECT_EQ(strides_of(part), (std::vector<int64_t>{4, 1}));
  EXPECT_EQ(view.slice(0, 2, 3).data, values + 8);
  EXPECT_EQ(view.slice(0, 0, 3).data, values);
}

TEST(TensorView, AnEmptySliceIsAllowedAnywhereInRange) {
  int32_t values[12] = {};
  const auto view = TensorView::contiguous(values, DType::i32, {3, 4});
  EXPECT_EQ(view.slice(0, 3, 3).num_elements(), 0);
  EXPECT_EQ(TensorView::contiguous(nullptr, DType::f32, {0, 4}).slice(1, 1, 2).num_elements(), 0);
}

TEST(TensorView, ASliceOutsideTheShapeIsRefused) {
  const auto view = TensorView::contiguous(nullptr, DType::i32, {3, 4});
  const auto slice = [&](int axis, int64_t begin, int64_t end) {
    return message_of([&] { (void)view.slice(axis, begin, end); });
  };
  EXPECT_TRUE(slice(1, 0, 5).starts_with("slice: [0, 5) of axis 1 of i32[3, 4] on cpu"));
  EXPECT_TRUE(slice(0, -1, 2).starts_with("slice: [-1, 2) of axis 0 of i32[3, 4] on cpu"));
  EXPECT_TRUE(slice(0, 2, 1).starts_with("slice: [2, 1) of axis 0 of i32[3, 4] on cpu"));
  EXPECT_TRUE(slice(2, 0, 1).starts_with("slice: axis 2 of i32[3, 4] on cpu; its rank is 2"));
  EXPECT_TRUE(slice(-3, 0, 1).starts_with("slice: axis -3 of i32[3, 4] on cpu; its rank is 2"));
}

TEST(TensorView, ASliceOfI4BeginsOnAByte) {
  uint8_t bytes[8] = {};
  const auto view = TensorView::contiguous(bytes, DType::i4, {2, 8});
  EXPECT_EQ(view.slice(1, 2, 5).data, bytes + 1);
  EXPECT_EQ(view.slice(0, 1, 2).data, bytes + 4);
  const std::string message = message_of([&] { (void)view.slice(1, 3, 5); });
  EXPECT_TRUE(
      message.starts_with("slice: [3, 5) of axis 1 of i4[2, 8] on cpu begins inside a "
                          "byte; begin at an even index"))
      << message;
}

TEST(TensorView, TransposingExchangesSizesAndStrides) {
  const auto view = TensorView::contiguous(nullptr, DType::f32, {2, 3, 4});
  const TensorView result = view.transposed(0, -1);
  EXPECT_TRUE(result.has_shape(std::vector<int64_t>{4, 3, 2}));
  EXPECT_EQ(strides_of(result), (std::vector<int64_t>{1, 4, 12}));
  EXPECT_TRUE(view.transposed(1, 1).is_contiguous());
  const std::string message = message_of([&] { (void)view.transposed(0, 3); });
  EXPECT_TRUE(message.starts_with("transposed: axis 3 of f32[2, 3, 4] on cpu; its rank is 3"))
      << message;
}

TEST(TensorView, I4KeepsItsInnermostAxis) {
  const auto view = TensorView::contiguous(nullptr, DType::i4, {2, 3, 4});
  EXPECT_TRUE(view.transposed(0, 1).has_shape(std::vector<int64_t>{3, 2, 4}));
  const std::string message = message_of([&] { (void)view.transposed(1, 2); });
  EXPECT_TRUE(
      message.starts_with("transposed: i4[2, 3, 4] on cpu packs two elements of its "
                          "innermost axis in a byte; convert it to i8 first"))
      << message;
}

TEST(TensorView, PrintsStridesOnlyWhereTheyAreNotTheObviousOnes) {
  const auto view = TensorView::contiguous(nullptr, DType::bf16, {16, 4096}, cuda_device(1));
  EXPECT_EQ(to_string(view), "bf16[16, 4096] on cuda:1");
  EXPECT_EQ(to_string(view.transposed(0, 1)), "bf16[4096, 16] strides [1, 4096] on cuda:1");
}

TEST(Rows, FoldTheLeadingAxes) {
  const Rows rows = as_rows(TensorView::contiguous(nullptr, DType::f32, {2, 3, 4}), "x");
  EXPECT_EQ(rows.num_rows, 6);
  EXPECT_EQ(rows.num_cols, 4);
  EXPECT_EQ(rows.row_stride, 4);
}

TEST(Rows, KeepTheStrideOfPaddedRows) {
  const Rows rows = as_rows(strided({2, 3, 4}, {30, 10, 1}, 3), "x");
  EXPECT_EQ(rows.num_rows, 6);
  EXPECT_EQ(rows.row_stride, 10);
}

TEST(Rows, AVectorIsOneRow) {
  const Rows rows = as_rows(TensorView::contiguous(nullptr, DType::f32, {5}), "x");
  EXPECT_EQ(rows.num_rows, 1);
  EXPECT_EQ(rows.num_cols, 5);
  EXPECT_EQ(rows.row_stride, 5);
}

TEST(Rows, IgnoreTheStridesOfAxesOfSizeOne) {
  const Rows rows = as_rows(strided({2, 1, 3, 1}, {30, 7, 10, 99}, 4), "x");
  EXPECT_EQ(rows.num_rows, 6);
  EXPECT_EQ(rows.num_cols, 1);
  EXPECT_EQ(rows.row_stride, 10);
  EXPECT_EQ(as_rows(strided({1, 4}, {99, 1}, 2), "x").row_stride, 4);
}

TEST(Rows, BroadcastAndReversedRowsFold) {
  EXPECT_EQ(as_rows(strided({2, 3, 4}, {0, 0, 1}, 3), "x").row_stride, 0);
  EXPECT_EQ(as_rows(strided({2, 3, 4}, {-12, -4, 1}, 3), "x").row_stride, -4);
}

TEST(Rows, AnEmptyViewFoldsWhateverItsStrides) {
  const Rows no_rows = as_rows(strided({0, 3, 4}, {5, 7, 2}, 3), "x");
  EXPECT_EQ(no_rows.num_rows, 0);
  EXPECT_EQ(no_rows.num_cols, 4);
  const Rows no_cols = as_rows(strided({2, 3, 0}, {5, 7, 2}, 3), "x");
  EXPECT_EQ(no_cols.num_rows, 6);
  EXPECT_EQ(no_cols.num_cols, 0);
}

TEST(Rows, RefuseWhatOneStrideCannotWalk) {
  const auto refusal = [](const TensorView& view) {
    return message_of([&] { (void)as_rows(view, "rms_norm: x"); });
  };
  EXPECT_TRUE(refusal(strided({}, {}, 0))
                  .starts_with("rms_norm: x is f32[] on cpu; at least one axis is needed"));
  EXPECT_TRUE(refusal(strided({2, 4}, {8, 2}, 2))
                  .starts_with("rms_norm: x is f32[2, 4] strides [8, 2] on cpu; its innermost axis "
                               "must be contiguous: copy it first"));
  EXPECT_TRUE(refusal(strided({2, 3, 4}, {20, 5, 1}, 3))
                  .starts_with("rms_norm: x is f32[2, 3, 4] strides [20, 5, 1] on cpu; stride 20 "
                               "of axis 0 must be 15 for the leading axes to fold into rows"));
  EXPECT_TRUE(refusal(strided({2, 3, 4}, {0, 4, 1}, 3)).starts_with("rms_norm: x is"));
}

TEST(Tensor, OwnsAlignedContiguousMemory) {
  const Tensor tensor(DType::bf16, {3, 5});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.view().data) % 64, 0u);
  EXPECT_TRUE(tensor.view().is_contiguous());
  EXPECT_EQ(tensor.size_bytes(), 30);
  EXPECT_EQ(Tensor(DType::i4, {5}).size_bytes(), 3);
}

TEST(Tensor, ADefaultOneHoldsNothing) {
  const Tensor tensor;
  EXPECT_EQ(tensor.view().data, nullptr);
  EXPECT_EQ(tensor.size_bytes(), 0);
}

TEST(Tensor, AnEmptyOneKeepsItsShape) {
  const Tensor tensor(DType::f32, {0, 7});
  EXPECT_EQ(tensor.size_bytes(), 0);
  EXPECT_EQ(tensor.view().size(1), 7);
  EXPECT_EQ(tensor.to(cpu_device()).view().size(1), 7);
}

TEST(Tensor, MovingHandsTheMemoryOver) {
  static_assert(!std::is_copy_constructible_v<Tensor> && !std::is_copy_assignable_v<Tensor>);
  static_assert(std::is_nothrow_move_constructible_v<Tensor>);
  Tensor first(DType::f32, {4});
  void* const data = first.view().data;
  Tensor second(std::move(first));
  EXPECT_EQ(second.view().data, data);
  EXPECT_EQ(first.view().data, nullptr);  // NOLINT: what a move leaves behind is under test
  EXPECT_EQ(first.size_bytes(), 0);
  Tensor third(DType::i8, {2});
  third = std::move(second);
  EXPECT_EQ(third.view().data, data);
  EXPECT_EQ(third.view().dtype, DType::f32);
  EXPECT_EQ(second.view().data, nullptr);
  Tensor& same = third;
  third = std::move(same);
  EXPECT_EQ(third.view().data, data);
}

TEST(Tensor, ACopyHasItsOwnMemory) {
  const Tensor tensor(DType::i32, {3});
  for (int i = 0; i < 3; ++i) tensor.view().as<int32_t>()[i] = i + 1;
  const Tensor copy = tensor.to(cpu_device());
  EXPECT_NE(copy.view().data, tensor.view().data);
  EXPECT_TRUE(copy.view().same_shape(tensor));
  EXPECT_EQ(copy.view().dtype, DType::i32);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(copy.view().as<int32_t>()[i], i + 1);
}

TEST(Tensor, CopyingOneThatWasMovedFromIsRefused) {
  EXPECT_TRUE(message_of([] {
                (void)Tensor().to(cpu_device());
              }).starts_with("Tensor::to: the tensor was never made or has been moved from"));
}

TEST(Elements, LoadAndStoreAsFloatInEveryDType) {
  for (const DType dtype : kAllDTypes) {
    SCOPED_TRACE(name(dtype));
    const Tensor tensor(dtype, {3, 4});
    fill_bytes(tensor.view().data, {}, 0, static_cast<size_t>(tensor.size_bytes()));
    for (int64_t i = 0; i < 12; ++i) {
      const int64_t index[] = {i / 4, i % 4};
      store_from_float(tensor, index, static_cast<float>(i % 7));
    }
    for (int64_t i = 0; i < 12; ++i) {
      const int64_t index[] = {i / 4, i % 4};
      EXPECT_EQ(load_as_float(tensor, index), static_cast<float>(i % 7)) << i;
    }
  }
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(Zeros, AreZerosAlsoWhereMemoryWasUsedBefore) {
  for (const int64_t count : {int64_t{0}, int64_t{100}, int64_t{3} << 20, int64_t{64} << 20}) {
    {
      const Tensor used(DType::u8, {count});
      if (count > 0) std::memset(used.view().data, 0xff, static_cast<size_t>(count));
    }
    const Tensor zeros = Tensor::zeros(DType::u8, {count});
    const auto* bytes = zeros.view().as<uint8_t>();
    EXPECT_TRUE(std::all_of(bytes, bytes + count, [](uint8_t byte) { return byte == 0; })) << count;
  }
}

TEST(Zeros, TakeNoMemoryUntilTheyAreWritten) {
  const int64_t before = resident_bytes();
  const Tensor zeros = Tensor::zeros(DType::u8, {int64_t{1} << 30});
  EXPECT_LT(resident_bytes() - before, int64_t{1} << 29);
  zeros.view().as<uint8_t>()[int64_t{1} << 29] = 1;
  EXPECT_LT(resident_bytes() - before, int64_t{1} << 29);
}

TEST(Elements, FollowStrides) {
  int32_t values[] = {0, 1, 2, 3, 4, 5};
  const TensorView view = TensorView::contiguous(values, DType::i32, {2, 3}).transposed(0, 1);
  const int64_t index[] = {2, 1};
  EXPECT_EQ(load_as_float(view, index), 5.0f);
  store_from_float(view, std::vector<int64_t>{1, 0}, 9.4f);
  EXPECT_EQ(values[1], 9);
}

TEST(Elements, AnIndexOutsideIsRefused) {
  const Tensor tensor(DType::f32, {2, 3});
  const auto refusal = [&](std::vector<int64_t> index) {
    return message_of([&] { (void)load_as_float(tensor, index); });
  };
  EXPECT_TRUE(
      refusal({0, 3}).starts_with("load_as_float: index [0, 3] is outside f32[2, 3] on cpu"));
  EXPECT_TRUE(refusal({-1, 0}).starts_with("load_as_float: index [-1, 0] is outside"));
  EXPECT_TRUE(refusal({0}).starts_with("load_as_float: index [0] is outside"));
  const std::string store = message_of([&] {
    store_from_float(tensor, std::vector<int64_t>{2, 0}, 1.0f);
  });
  EXPECT_TRUE(store.starts_with("store_from_float: index [2, 0] is outside")) << store;
  const auto gpu = TensorView::contiguous(nullptr, DType::f32, {1}, cuda_device());
  const std::string message =
      message_of([&] { (void)load_as_float(gpu, std::vector<int64_t>{0}); });
  EXPECT_TRUE(message.starts_with("load_as_float: f32[1] on cuda:0; copy it to the CPU first"))
      << message;
}

}  // namespace
}  // namespace tessera
