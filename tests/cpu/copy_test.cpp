// Strided copies and embedding lookup on the CPU: bit for bit.
// SPDX-License-Identifier: MIT
#include <cmath>
#include <numeric>

#include "cpu/elementwise.h"
#include "tessera/core/convert.h"
#include "tests/cpu/tensors.h"

namespace tessera::testing {
namespace {

// The bytes of a view's elements in row-major order: what a copy must preserve.
std::string bytes_of(const TensorView& view) {
  std::string bytes;
  const int64_t width = bit_width(view.dtype) / 8;
  for_each_index(view, [&](const Index& at) {
    int64_t offset = 0;
    for (size_t d = 0; d < at.size(); ++d) offset += at[d] * view.strides[d];
    bytes.append(view.as<char>() + offset * width, static_cast<size_t>(width));
  });
  return bytes;
}

// Every byte different from its neighbours, NaN patterns included.
void fill_bits(const Tensor& tensor) {
  for (int64_t i = 0; i < tensor.size_bytes(); ++i) {
    tensor.view().as<uint8_t>()[i] = static_cast<uint8_t>(i * 131 + i / 251);
  }
}

// Axis d of the result is axis order[d] of the view.
TensorView permuted(const TensorView& view, const std::vector<size_t>& order) {
  TensorView result = view;
  for (size_t d = 0; d < order.size(); ++d) {
    result.shape[d] = view.shape[order[d]];
    result.strides[d] = view.strides[order[d]];
  }
  return result;
}

TensorView reversed(TensorView view, int axis) {
  const int64_t stride = view.stride(axis);
  view.data = view.as<char>() + (view.size(axis) - 1) * stride * (bit_width(view.dtype) / 8);
  view.strides[static_cast<size_t>(axis)] = -stride;
  return view;
}

Index shape_of(const TensorView& view) {
  return Index(view.shape.begin(), view.shape.begin() + view.rank);
}

void expect_copied(const TensorView& x, const TensorView& out) {
  cpu::copy({.x = x, .out = out});
  EXPECT_EQ(bytes_of(out), bytes_of(x)) << to_string(x) << " to " << to_string(out);
}

TEST(CpuCopy, MovesTheBitsOfEveryTypeBothWays) {
  for (DType dtype : kAllDTypes) {
    if (dtype == DType::i4) continue;
    Tensor x(dtype, {70, 45}), straight(dtype, {45, 70}), back(dtype, {70, 45});
    fill_bits(x);
    expect_copied(x.view().transposed(0, 1), straight);
    expect_copied(x, straight.view().transposed(0, 1));
    expect_copied(straight.view().transposed(0, 1), back);
    EXPECT_TRUE(same_bytes(x, back)) << name(dtype);
  }
}

TEST(CpuCopy, TakesEveryOrderOfFourAxesOnEitherSide) {
  Tensor x(DType::bf16, {3, 5, 34, 7});
  fill_bits(x);
  std::vector<size_t> order = {0, 1, 2, 3};
  do {
    const TensorView from = permuted(x, order);
    Tensor out(DType::bf16, shape_of(from));
    expect_copied(from, out);
    Tensor scattered(DType::bf16, {3, 5, 34, 7});
    expect_copied(out, permuted(scattered, order));
    EXPECT_TRUE(same_bytes(scattered, x));
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(CpuCopy, TakesSlicesReversalsAndBroadcasts) {
  Tensor x(DType::f32, {9, 40, 11}), out(DType::f32, {4, 33, 5});
  fill_bits(x);
  expect_copied(x.view().slice(0, 2, 6).slice(1, 7, 40).slice(2, 3, 8), out);
  Tensor whole(DType::f32, {9, 40, 11});
  for (int axis = 0; axis < 3; ++axis) {
    expect_copied(reversed(x, axis), whole);
    expect_copied(x, reversed(whole, axis));
  }
  TensorView row = x.view().slice(0, 0, 1);
  row.shape[0] = 9;
  row.strides[0] = 0;
  expect_copied(row, whole);
  Tensor wide(DType::f32, {4, 50, 6});
  fill_bits(wide);
  const std::string before = bytes_of(wide.view().slice(1, 33, 50));
  expect_copied(out, wide.view().slice(1, 0, 33).slice(2, 0, 5));
  EXPECT_EQ(bytes_of(wide.view().slice(1, 33, 50)), before) << "beside the slice";
}

TEST(CpuCopy, ConvertsRowsWhereverTheyLie) {
  for (const DType in : {DType::f32, DType::f16, DType::bf16}) {
    for (const DType out : {DType::f32, DType::f16, DType::bf16}) {
      Tensor x(in, {3, 20000}), apart(out, {6, 20000}), want(out, {3, 20000});
      for_each_index(x, [&](const Index& at) {
        store_from_float(x, at, std::ldexp(static_cast<float>(at[1] * 7 + at[0]), -24));
      });
      convert(x, want);
      fill_bits(apart);
      TensorView every_other = apart.view().slice(0, 0, 3);
      every_other.strides[0] = 2 * 20000;
      cpu::copy({.x = x, .out = every_other});
      EXPECT_EQ(bytes_of(every_other), bytes_of(want)) << name(in) << " to " << name(out);
    }
  }
}

TEST(CpuCopy, TakesEveryRankAndNothing) {
  Index shape;
  for (int rank = 0; rank <= kMaxRank; ++rank) {
    Tensor x(DType::i64, shape), out(DType::i64, shape);
    fill_bits(x);
    expect_copied(x, out);
    shape.push_back(rank % 2 == 0 ? 3 : 2);
  }
  Tensor none(DType::i8, {4, 0, 3}), nothing(DType::i8, {4, 0, 3});
  cpu::copy({.x = none, .out = nothing});
}

TEST(CpuCopy, SharesALongRunBetweenThreads) {
  Tensor x(DType::u8, {300001}), out(DType::u8, {300001});
  fill_bits(x);
  expect_copied(x, out);
  Tensor pairs(DType::u8, {300001, 2});
  expect_copied(x, [&] {
    TensorView every_other = pairs.view().slice(1, 1, 2);
    every_other.rank = 1;
    return every_other;
  }());
}

class CpuEmbedding : public ::testing::TestWithParam<DType> {};

TEST_P(CpuEmbedding, CopiesRowsByIdBitForBit) {
  for (DType index : {DType::i32, DType::i64}) {
    for (int64_t hidden : {1, 5, 64, 1000}) {
      GappedRows table(GetParam(), 20, hidden, 3), out(GetParam(), 6, hidden, 2);
      fill_normal(table.view(), 1);
      const Values ids = {19, 0, 7, 7, 1, 0};
      const Tensor id_tensor = tensor_of(index, {6}, ids);
      cpu::embedding({.table = table.view(), .ids = id_tensor, .out = out.view()});
      for (size_t i = 0; i < ids.size(); ++i) {
        const int64_t row = static_cast<int64_t>(i), id = static_cast<int64_t>(ids[i]);
        EXPECT_EQ(bytes_of(out.view().slice(0, row, row + 1)),
                  bytes_of(table.view().slice(0, id, id + 1)));
      }
      EXPECT_TRUE(out.gaps_untouched());
    }
  }
}

TEST_P(CpuEmbedding, NoIdsGiveNoRows) {
  Tensor table(GetParam(), {3, 4}), ids(DType::i32, {0}), out(GetParam(), {0, 4});
  fill_normal(table, 1);
  cpu::embedding({.table = table, .ids = ids, .out = out});
}

INSTANTIATE_TEST_SUITE_P(EveryFloatType, CpuEmbedding, ::testing::ValuesIn(kFloatTypes),
                         dtype_name);

}  // namespace
}  // namespace tessera::testing
