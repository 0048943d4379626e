// A copy's plan moves every byte to its place, in the widest units, whatever the layout.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/copy_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

namespace tessera::kernels {
namespace {

constexpr int64_t kNoLimit = int64_t{1} << 40;

// Runs a plan on the CPU, a unit at a time, as the gather kernel does.
void run(const CopyPlan& plan) {
  for (int64_t unit = 0; unit < plan.num_units(); ++unit) {
    int64_t index = unit;
    int64_t from = 0;
    int64_t to = 0;
    for (int d = 0; d < plan.rank; ++d) {
      from += index % plan.axis(d).size * plan.axis(d).x_stride;
      to += index % plan.axis(d).size * plan.axis(d).out_stride;
      index /= plan.axis(d).size;
    }
    const auto address = [&](uintptr_t base, int64_t units) {
      return reinterpret_cast<char*>(base + static_cast<uintptr_t>(units * plan.unit_bytes));
    };
    ASSERT_EQ(reinterpret_cast<uintptr_t>(address(plan.x, from)) %
                  static_cast<uintptr_t>(plan.unit_bytes),
              0u);
    std::memcpy(address(plan.out, to), address(plan.x, from), static_cast<size_t>(plan.unit_bytes));
  }
}

int64_t offset_of(const TensorView& view, int64_t element) {
  int64_t offset = 0;
  for (int d = view.rank - 1; d >= 0; --d) {
    offset += element % view.size(d) * view.stride(d);
    element /= view.size(d);
  }
  return offset;
}

struct Buffers {
  explicit Buffers(size_t num_bytes) : x(num_bytes / 16 + 1), out(num_bytes / 16 + 1) {
    std::mt19937 random(3);
    for (Block& block : x) {
      for (uint32_t& word : block.words) word = static_cast<uint32_t>(random());
    }
  }
  struct alignas(16) Block {
    uint32_t words[4];
  };
  std::vector<Block> x;
  std::vector<Block> out;
};

// Copies by the plan and looks at every element, and at the bytes that belong to none.
void expect_copies(const TensorView& x, const TensorView& out, const Buffers& buffers,
                   int64_t max_units = kNoLimit) {
  const size_t bytes = static_cast<size_t>(bit_width(x.dtype) / 8);
  std::vector<Buffers::Block> expected = buffers.out;
  const auto* out_start = reinterpret_cast<const char*>(buffers.out.data());
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    const char* from = x.as<char>() + offset_of(x, i) * static_cast<int64_t>(bytes);
    const char* to = out.as<char>() + offset_of(out, i) * static_cast<int64_t>(bytes);
    std::memcpy(reinterpret_cast<char*>(expected.data()) + (to - out_start), from, bytes);
  }
  for_each_piece(plan_copy(x, out), max_units, [&](const CopyPlan& piece) {
    EXPECT_LE(piece.num_units(), max_units);
    run(piece);
  });
  EXPECT_EQ(
      std::memcmp(expected.data(), buffers.out.data(), expected.size() * sizeof(Buffers::Block)), 0)
      << to_string(x) << " to " << to_string(out);
}

std::vector<CopyPlan> pieces_of(const TensorView& x, const TensorView& out) {
  std::vector<CopyPlan> pieces;
  for_each_piece(plan_copy(x, out), kNoLimit,
                 [&](const CopyPlan& piece) { pieces.push_back(piece); });
  return pieces;
}

TEST(CopyPlan, AContiguousCopyIsOneRunOfSixteenByteUnits) {
  Buffers buffers(4 * 6 * 8 * 2);
  const auto x = TensorView::contiguous(buffers.x.data(), DType::bf16, {4, 6, 8});
  const auto out = TensorView::contiguous(buffers.out.data(), DType::bf16, {4, 6, 8});
  const std::vector<CopyPlan> pieces = pieces_of(x, out);
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].unit_bytes, 16);
  EXPECT_EQ(pieces[0].rank, 1);
  EXPECT_EQ(pieces[0].axis(0), (CopyAxis{24, 1, 1}));
  expect_copies(x, out, buffers);
}

TEST(CopyPlan, SwappedHeadsAndTokensMoveWholeHeads) {
  Buffers buffers(3 * 5 * 64 * 2);
  const auto x = TensorView::contiguous(buffers.x.data(), DType::f16, {3, 5, 64}).transposed(0, 1);
  const auto out = TensorView::contiguous(buffers.out.data(), DType::f16, {5, 3, 64});
  const std::vector<CopyPlan> pieces = pieces_of(x, out);
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].unit_bytes, 16);
  EXPECT_EQ(pieces[0].rank, 3);
  EXPECT_FALSE(find_transposed_axis(pieces[0]));
  expect_copies(x, out, buffers);
}

TEST(CopyPlan, AMatrixTransposeIsFoundUnderABatchAxis) {
  Buffers buffers(2 * 24 * 40 * 2);
  const auto x =
      TensorView::contiguous(buffers.x.data(), DType::bf16, {2, 24, 40}).transposed(1, 2);
  const auto out = TensorView::contiguous(buffers.out.data(), DType::bf16, {2, 40, 24});
  const std::vector<CopyPlan> pieces = pieces_of(x, out);
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].unit_bytes, 2);
  EXPECT_EQ(pieces[0].axis(0), (CopyAxis{24, 40, 1}));
  const std::optional<int> row_axis = find_transposed_axis(pieces[0]);
  ASSERT_TRUE(row_axis);
  EXPECT_EQ(pieces[0].axis(*row_axis), (CopyAxis{40, 1, 24}));
  expect_copies(x, out, buffers);
}

TEST(CopyPlan, PairsOfElementsAreTransposedAsOneUnit) {
  Buffers buffers(16 * 32 * 2 * 2);
  const auto x =
      TensorView::contiguous(buffers.x.data(), DType::bf16, {16, 32, 2}).transposed(0, 1);
  const auto out = TensorView::contiguous(buffers.out.data(), DType::bf16, {32, 16, 2});
  const std::vector<CopyPlan> pieces = pieces_of(x, out);
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].unit_bytes, 4);
  EXPECT_EQ(find_transposed_axis(pieces[0]), 1);
  expect_copies(x, out, buffers);
}

TEST(CopyPlan, ABroadcastIsNoTranspose) {
  Buffers buffers(16 * 32 * 4);
  auto x = TensorView::contiguous(buffers.x.data(), DType::f32, {16, 32});
  x.strides = {1, 0};  // one column, repeated
  const auto out = TensorView::contiguous(buffers.out.data(), DType::f32, {16, 32});
  EXPECT_FALSE(find_transposed_axis(pieces_of(x, out)[0]));
  expect_copies(x, out, buffers);
}

TEST(CopyPlan, AnOddSliceOfRowsKeepsNarrowUnits) {
  Buffers buffers(10 * 32);
  const auto x = TensorView::contiguous(buffers.x.data(), DType::u8, {10, 32}).slice(1, 3, 24);
  const auto out = TensorView::contiguous(buffers.out.data(), DType::u8, {10, 21});
  EXPECT_EQ(pieces_of(x, out)[0].unit_bytes, 1);
  expect_copies(x, out, buffers);
}

TEST(CopyPlan, ALargeOddCopyIsABodyOfWideUnitsAndAnEnd) {
  const int64_t size = 200'003;
  Buffers buffers(size * 2);
  const auto x = TensorView::contiguous(buffers.x.data(), DType::f16, {size});
  const auto out = TensorView::contiguous(buffers.out.data(), DType::f16, {size});
  const std::vector<CopyPlan> pieces = pieces_of(x, out);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].unit_bytes, 16);
  EXPECT_EQ(pieces[0].num_units(), 25'000);
  EXPECT_EQ(pieces[1].num_units() * pieces[1].unit_bytes, 3 * 2);
  expect_copies(x, out, buffers);
}

TEST(CopyPlan, ReversedAxesAreWalkedFromTheOtherEnd) {
  Buffers buffers(6 * 16 * 4);
  auto x = TensorView::contiguous(buffers.x.data(), DType::i32, {6, 16});
  auto out = TensorView::contiguous(buffers.out.data(), DType::i32, {6, 16});
  out.data = out.as<int32_t>() + 5 * 16 + 15;
  out.strides = {-16, -1};
  expect_copies(x, out, buffers);
  x.data = x.as<int32_t>() + 15;
  x.strides = {16, -1};
  expect_copies(x, out, buffers);
  EXPECT_EQ(pieces_of(x, out)[0].unit_bytes, 16);  // both reversed: the inner axis runs forward
}

TEST(CopyPlan, OneElementHasNoAxis) {
  Buffers buffers(16);
  const auto x = TensorView::contiguous(buffers.x.data(), DType::i64, {1, 1});
  const auto out = TensorView::contiguous(buffers.out.data(), DType::i64, {1, 1});
  EXPECT_EQ(pieces_of(x, out)[0].rank, 0);
  expect_copies(x, out, buffers);
}

TEST(CopyPlan, PiecesUnderALimitCoverTheWhole) {
  Buffers buffers(7 * 11 * 13 * 4);
  const auto x = TensorView::contiguous(buffers.x.data(), DType::f32, {7, 11, 13}).transposed(0, 2);
  const auto out = TensorView::contiguous(buffers.out.data(), DType::f32, {13, 11, 7});
  for (const int64_t max_units : {1, 3, 50, 1000}) expect_copies(x, out, buffers, max_units);
}

TEST(CopyPlan, EveryLayoutOfRandomSlicesAndPermutationsIsCopied) {
  std::mt19937 random(11);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int trial = 0; trial < 200; ++trial) {
    const DType dtype =
        std::array{DType::u8, DType::f16, DType::f32, DType::i64}[static_cast<size_t>(trial % 4)];
    const int rank = static_cast<int>(draw(1, kMaxRank));
    // Both sides: a larger tensor, sliced, its axes in an order of its own.
    std::vector<int64_t> shape;
    for (int d = 0; d < rank; ++d) shape.push_back(draw(1, rank > 4 ? 4 : 9));
    Buffers buffers(size_t{1} << 20);
    const auto view = [&](void* data) {
      std::vector<int> order(static_cast<size_t>(rank));
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      TensorView result = TensorView::contiguous(data, dtype, shape);
      int64_t stride = draw(1, 2);
      for (const int d : order) {
        result.strides[static_cast<size_t>(d)] = stride;
        stride *= shape[static_cast<size_t>(d)] + draw(0, 2);
      }
      return result;
    };
    const TensorView x = view(buffers.x.data());
    const TensorView out = view(buffers.out.data());
    expect_copies(x, out, buffers);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace tessera::kernels
