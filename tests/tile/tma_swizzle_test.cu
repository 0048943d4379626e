// Swizzled tensor copies: shared memory holds each element where swizzle.cuh says, and gives it
// back.
// SPDX-License-Identifier: MIT
#include "tests/tile/tensor_copy.cuh"

namespace tessera::testing {
namespace {

class TmaSwizzleTest : public HopperTest {};

// A box as wide as the swizzle's row (128 bytes without one) and 64 rows high, inside and over the
// edges of a 200x100 tensor of 16-bit elements.
template <bool kHinted>
void expect_swizzled(Swizzle swizzle) {
  const int width = swizzle == Swizzle::none ? 64 : tile::span_bytes(swizzle) / 2;
  TensorMapSpec from = dense_spec<2>(DType::bf16, {200, 100}, {width, 64});
  from.swizzle = swizzle;
  const auto size = static_cast<size_t>(num_elements(from));
  std::vector<uint16_t> values(size);
  std::iota(values.begin(), values.end(), uint16_t{1});
  DeviceArray<uint16_t> from_device(values);
  from.data = from_device.data();
  for (const Coord<2> at : {Coord{0, 0}, Coord{64, 32}, Coord{192, 80}, Coord{-8, -4}}) {
    SCOPED_TRACE(::testing::Message() << "swizzle of " << tile::span_bytes(swizzle)
                                      << " bytes, box at " << at.at[0] << ", " << at.at[1]);
    DeviceArray<uint16_t> to_device(size);  // 0xffff everywhere
    TensorMapSpec to = from;
    to.data = to_device.data();
    const std::vector<uint8_t> raw = copy_box<2, BoxOut::store, kHinted>(from, to, at);
    const std::vector<uint16_t> back = to_device.read();
    std::vector<uint16_t> want_back(size, 0xffff);
    int num_wrong = 0;
    for_each_in_box(from, at, [&](size_t idx, int64_t offset) {
      const uint32_t place = tile::swizzled(swizzle, static_cast<uint32_t>(2 * idx));
      const int got = raw[place] | raw[place + 1] << 8;
      const int want = offset < 0 ? 0 : values[static_cast<size_t>(offset)];
      if (got != want && num_wrong++ == 0) {
        ADD_FAILURE() << "element " << idx << " of the box, at byte " << place << ", is " << got
                      << ", want " << want;
      }
      if (offset < 0 || !stores_from(at)) return;
      want_back[static_cast<size_t>(offset)] = static_cast<uint16_t>(want);
    });
    EXPECT_EQ(num_wrong, 0);
    EXPECT_TRUE(back == want_back) << "the stored box differs";
  }
}

TEST_F(TmaSwizzleTest, WithoutASwizzleRowsFollowEachOther) {
  expect_swizzled<false>(Swizzle::none);
}
TEST_F(TmaSwizzleTest, The32ByteSwizzleIsPredicted) { expect_swizzled<false>(Swizzle::b32); }
TEST_F(TmaSwizzleTest, The64ByteSwizzleIsPredicted) { expect_swizzled<false>(Swizzle::b64); }
TEST_F(TmaSwizzleTest, The128ByteSwizzleIsPredicted) { expect_swizzled<false>(Swizzle::b128); }
TEST_F(TmaSwizzleTest, CachePoliciesDoNotChangeTheData) { expect_swizzled<true>(Swizzle::b128); }

}  // namespace
}  // namespace tessera::testing
