// Tensor copies of 2 to 5 dimensions: zeros outside the tensor, stores clipped, additions exact.
// SPDX-License-Identifier: MIT
#include <cstring>

#include "tessera/core/convert.h"
#include "tests/tile/tensor_copy.cuh"

namespace tessera::testing {
namespace {

class TmaRankTest : public HopperTest {};

template <class T>
T element_at(const std::vector<uint8_t>& bytes, size_t idx) {
  T value;
  std::memcpy(&value, bytes.data() + idx * sizeof(T), sizeof(T));
  return value;
}

// Copies or adds the box at `at`. The source counts 1, 2, ..., 100, 1, ...; the destination
// holds 3.
template <class T, BoxOut kOut, bool kHinted, int kRank>
void expect_box(const int (&dims)[kRank], const int (&box)[kRank], Coord<kRank> at) {
  SCOPED_TRACE(::testing::Message() << "rank " << kRank << " of " << name(dtype_of<T>)
                                    << ", box from " << at.at[0] << " in dimension 0");
  TensorMapSpec from = dense_spec<kRank>(dtype_of<T>, dims, box);
  TensorMapSpec to = from;
  const auto size = static_cast<size_t>(num_elements(from));
  std::vector<T> values(size);
  for (size_t i = 0; i < size; ++i) values[i] = from_float<T>(static_cast<float>(i % 100 + 1));
  DeviceArray<T> from_device(values);
  DeviceArray<T> to_device(std::vector<T>(size, from_float<T>(3)));
  from.data = from_device.data();
  to.data = to_device.data();
  const std::vector<uint8_t> raw = copy_box<kRank, kOut, kHinted>(from, to, at);
  const std::vector<T> got = to_device.read();
  std::vector<float> want(size, 3);
  for_each_in_box(from, at, [&](size_t idx, int64_t offset) {
    const auto place = static_cast<size_t>(offset);
    const float value = offset < 0 ? 0 : to_float(values[place]);
    EXPECT_EQ(to_float(element_at<T>(raw, idx)), value) << "element " << idx << " of the box";
    if (offset < 0 || kOut == BoxOut::nothing || !stores_from(at)) return;
    want[place] = kOut == BoxOut::reduce_add ? want[place] + value : value;
  });
  for (size_t i = 0; i < size; ++i) {
    ASSERT_EQ(to_float(got[i]), want[i]) << "element " << i << " of the destination";
  }
}

// Boxes inside, across the far edges and across the near edges. Innermost starts are multiples of
// 16 bytes in every type.
template <class T, BoxOut kOut, bool kHinted>
void expect_every_rank() {
  const int dims2[] = {40, 9}, box2[] = {16, 4};
  expect_box<T, kOut, kHinted>(dims2, box2, Coord{16, 3});
  expect_box<T, kOut, kHinted>(dims2, box2, Coord{32, 7});
  const int dims3[] = {24, 5, 7}, box3[] = {16, 3, 2};
  expect_box<T, kOut, kHinted>(dims3, box3, Coord{0, 1, 4});
  expect_box<T, kOut, kHinted>(dims3, box3, Coord{16, 3, -1});
  const int dims4[] = {24, 5, 4, 3}, box4[] = {16, 3, 2, 2};
  expect_box<T, kOut, kHinted>(dims4, box4, Coord{0, 2, 1, 1});
  expect_box<T, kOut, kHinted>(dims4, box4, Coord{16, 3, 3, 2});
  const int dims5[] = {24, 5, 4, 3, 3}, box5[] = {16, 3, 2, 2, 2};
  expect_box<T, kOut, kHinted>(dims5, box5, Coord{0, 1, 2, 0, 1});
  expect_box<T, kOut, kHinted>(dims5, box5, Coord{16, 3, 3, 2, -1});
}

TEST_F(TmaRankTest, BoxesLoadAndStoreWithZerosOutside) {
  expect_every_rank<float, BoxOut::store, false>();
  expect_every_rank<F16, BoxOut::store, false>();
  expect_every_rank<int8_t, BoxOut::nothing, false>();  // rows of 24 bytes cannot be clipped
}

TEST_F(TmaRankTest, BoxesLoadAndStoreUnderACachePolicy) {
  expect_every_rank<float, BoxOut::store, true>();
}

TEST_F(TmaRankTest, ReducingStoresAddExactlyInTheTypeOfTheMap) {
  expect_every_rank<float, BoxOut::reduce_add, false>();
  expect_every_rank<F16, BoxOut::reduce_add, false>();
  expect_every_rank<Bf16, BoxOut::reduce_add, false>();
  expect_every_rank<int32_t, BoxOut::reduce_add, false>();
}

}  // namespace
}  // namespace tessera::testing
