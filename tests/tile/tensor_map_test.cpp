// Tensor maps that the copy engine could not take are refused, with the values, before it is asked.
// SPDX-License-Identifier: MIT
#include "tile/tensor_map.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace tessera::tile {
namespace {

alignas(16) char memory[32];

// A 4096x256 tensor of bf16 in boxes of 64x64: accepted as it stands.
TensorMapSpec good_spec() {
  return {.data = memory,
          .dtype = DType::bf16,
          .rank = 2,
          .dims = {256, 4096},
          .strides = {1, 256},
          .box = {64, 64},
          .swizzle = Swizzle::b128};
}

// The message with which the spec, so changed, is refused.
std::string refusal(const std::function<void(TensorMapSpec&)>& change) {
  TensorMapSpec spec = good_spec();
  change(spec);
  try {
    make_tensor_map(spec);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

void expect_refused(const std::function<void(TensorMapSpec&)>& change, const std::string& part) {
  const std::string message = refusal(change);
  EXPECT_NE(message.find("tensor map: " + part), std::string::npos) << message;
}

TEST(TensorMapTest, AGoodTensorPassesTheCheck) { EXPECT_NO_THROW(check_tensor_map(good_spec())); }

TEST(TensorMapTest, RankAndTypeAreChecked) {
  expect_refused([](auto& spec) { spec.rank = 0; }, "rank is 0; want 1 to 5");
  expect_refused([](auto& spec) { spec.rank = 6; }, "rank is 6; want 1 to 5");
  expect_refused([](auto& spec) { spec.dtype = DType::i4; },
                 "dtype is i4; describe the packed bytes as u8");
}

TEST(TensorMapTest, TheAddressIsChecked) {
  expect_refused([](auto& spec) { spec.data = nullptr; }, "data is null");
  expect_refused([](auto& spec) { spec.data = memory + 6; },
                 "data is 6 bytes past a multiple of 16; align it");
}

TEST(TensorMapTest, DimensionsAndStridesAreChecked) {
  expect_refused([](auto& spec) { spec.dims[1] = 0; }, "dims[1] is 0; want 1 to 2^32");
  expect_refused([](auto& spec) { spec.strides[0] = 2; },
                 "strides[0] is 2; want 1: make it contiguous");
  expect_refused([](auto& spec) { spec.strides[1] = 257; },
                 "strides[1] is 257 elements of bf16, 514 bytes; want a multiple of 16 bytes");
  expect_refused([](auto& spec) { spec.strides[1] = int64_t{1} << 39; },
                 "strides[1] is 549755813888 elements of bf16, 1099511627776 bytes");
  expect_refused([](auto& spec) { spec.strides[1] = -256; },
                 "strides[1] is -256 elements of bf16, -512 bytes");
}

TEST(TensorMapTest, TheBoxIsChecked) {
  expect_refused([](auto& spec) { spec.box[1] = 257; }, "box[1] is 257; want 1 to 256");
  expect_refused([](auto& spec) { spec.box[1] = 0; }, "box[1] is 0; want 1 to 256");
  expect_refused([](auto& spec) { spec.box[0] = 12; },
                 "box[0] is 12 elements of bf16, 24 bytes; want a multiple of 16 bytes");
  expect_refused([](auto& spec) { spec.box[0] = 128; },
                 "box[0] is 256 bytes; a swizzle of 128 bytes takes at most that: split the box");
  expect_refused([](auto& spec) { spec.swizzle = Swizzle::b32; },
                 "box[0] is 128 bytes; a swizzle of 32 bytes takes at most that");
  expect_refused(
      [](auto& spec) {
        spec.dtype = DType::f32;
        spec.swizzle = Swizzle::none;
        spec.box[0] = spec.box[1] = 256;
      },
      "the box takes 262144 bytes; a block has 232448 of shared memory");
}

TEST(TensorMapTest, TypesTravelAsTheCopyEngineKnowsThem) {
  EXPECT_EQ(tensor_map_type(DType::bf16), CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
  EXPECT_EQ(tensor_map_type(DType::e4m3), CU_TENSOR_MAP_DATA_TYPE_UINT8);
  EXPECT_EQ(tensor_map_type(DType::i8), CU_TENSOR_MAP_DATA_TYPE_UINT8);
  EXPECT_EQ(tensor_map_swizzle(Swizzle::b64), CU_TENSOR_MAP_SWIZZLE_64B);
}

}  // namespace
}  // namespace tessera::tile
