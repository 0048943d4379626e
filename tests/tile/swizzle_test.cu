// The swizzles as functions: a permutation of each repeat, its own inverse, and the documented xor.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <set>

#include "tile/descriptor.cuh"
#include "tile/swizzle.cuh"

namespace tessera::tile {
namespace {

constexpr Swizzle kSwizzles[] = {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128};

static_assert(span_bytes(Swizzle::b128) == 128 && repeat_bytes(Swizzle::b128) == 1024);
static_assert(swizzle_of_span(128) == Swizzle::b128 && swizzle_of_span(64) == Swizzle::b64);
static_assert(swizzle_of_span(32) == Swizzle::b32 && swizzle_of_span(16) == Swizzle::none);
static_assert(span_bytes(Swizzle::b32) == 32 && repeat_bytes(Swizzle::b32) == 256);

TEST(SwizzleTest, EachRepeatIsPermutedWithinItself) {
  for (const Swizzle swizzle : kSwizzles) {
    const auto size = static_cast<uint32_t>(repeat_bytes(swizzle));
    for (const uint32_t first : {0u, 7 * size}) {
      std::set<uint32_t> places;
      for (uint32_t i = 0; i < size; ++i) places.insert(swizzled(swizzle, first + i));
      EXPECT_EQ(places.size(), size);
      EXPECT_EQ(*places.begin(), first);
      EXPECT_EQ(*places.rbegin(), first + size - 1);
    }
  }
}

TEST(SwizzleTest, TwiceGivesTheOffsetBack) {
  for (const Swizzle swizzle : kSwizzles) {
    for (uint32_t i = 0; i < 4096; ++i) EXPECT_EQ(swizzled(swizzle, swizzled(swizzle, i)), i);
  }
}

// The 128-byte pattern as the figure in the PTX manual gives it: chunk c of row r is at c ^ r.
TEST(SwizzleTest, ChunksOfARowAreXoredWithItsNumber) {
  for (uint32_t row = 0; row < 16; ++row) {
    for (uint32_t chunk = 0; chunk < 8; ++chunk) {
      EXPECT_EQ(swizzled(Swizzle::b128, row * 128 + chunk * 16 + 5),
                row * 128 + (chunk ^ (row % 8)) * 16 + 5);
    }
  }
  // Narrower rows: two of 64 bytes, four of 32 bytes share a line of 128, and one xor.
  for (uint32_t row = 0; row < 16; ++row) {
    for (uint32_t chunk = 0; chunk < 4; ++chunk) {
      EXPECT_EQ(swizzled(Swizzle::b64, row * 64 + chunk * 16),
                row * 64 + (chunk ^ (row / 2 % 4)) * 16);
    }
    for (uint32_t chunk = 0; chunk < 2; ++chunk) {
      EXPECT_EQ(swizzled(Swizzle::b32, row * 32 + chunk * 16),
                row * 32 + (chunk ^ (row / 4 % 2)) * 16);
    }
  }
}

// Eight rows read at one column: the reason for the swizzle is that they hit eight bank groups.
TEST(SwizzleTest, AColumnOfEightRowsMissesNoBankGroup) {
  for (const Swizzle swizzle : {Swizzle::b32, Swizzle::b64, Swizzle::b128}) {
    const auto span = static_cast<uint32_t>(span_bytes(swizzle));
    for (uint32_t chunk = 0; chunk < span / 16; ++chunk) {
      std::set<uint32_t> groups;
      for (uint32_t row = 0; row < 8; ++row) {
        groups.insert(swizzled(swizzle, row * span + chunk * 16) % 128 / 16);
      }
      EXPECT_EQ(groups.size(), 8u) << span << " bytes, chunk " << chunk;
    }
  }
}

TEST(DescriptorTest, SlabsHoldEachByteOfTheTileOnce) {
  constexpr int kRows = 24;
  constexpr int kInner = 256;
  for (const Swizzle swizzle : kSwizzles) {
    std::set<uint32_t> places;
    for (int row = 0; row < kRows; ++row) {
      for (int inner = 0; inner < kInner; ++inner) {
        places.insert(slab_offset(swizzle, kRows, row, inner));
      }
    }
    EXPECT_EQ(places.size(), static_cast<size_t>(kRows * kInner));
    EXPECT_EQ(*places.rbegin(), static_cast<uint32_t>(kRows * kInner - 1));
  }
}

TEST(DescriptorTest, FieldsLieWhereTheManualPutsThem) {
  const uint64_t descriptor = make_descriptor(0x12340, 0x2000, 0x400, Swizzle::b128);
  EXPECT_EQ(descriptor & 0x3fff, 0x1234u);
  EXPECT_EQ(descriptor >> 16 & 0x3fff, 0x200u);
  EXPECT_EQ(descriptor >> 32 & 0x3fff, 0x40u);
  EXPECT_EQ(descriptor >> 49 & 7, 0u);  // base offset: tiles are aligned
  EXPECT_EQ(descriptor >> 62, 1u);
  EXPECT_EQ(make_descriptor(0, 0, 0, Swizzle::b64) >> 62, 2u);
  EXPECT_EQ(make_descriptor(0, 0, 0, Swizzle::b32) >> 62, 3u);
  EXPECT_EQ(make_descriptor(0, 0, 0, Swizzle::none) >> 62, 0u);
  EXPECT_EQ(advance(descriptor, 32) - descriptor, 2u);
}

}  // namespace
}  // namespace tessera::tile
