// Which views share memory: columns of one matrix do not, a shifted view does.
// SPDX-License-Identifier: MIT
#include "ops/check.h"

#include <gtest/gtest.h>

#include <set>

namespace tessera::ops {
namespace {

// By listing every byte of both.
bool share_a_byte(const TensorView& a, const TensorView& b) {
  const auto bytes = [](const TensorView& view) {
    std::set<const char*> all;
    const int64_t width = bit_width(view.dtype) / 8;
    for (int64_t i = 0; i < view.size(0); ++i) {
      for (int64_t j = 0; j < view.size(1); ++j) {
        const char* at = view.as<char>() + (i * view.stride(0) + j * view.stride(1)) * width;
        for (int64_t byte = 0; byte < width; ++byte) all.insert(at + byte);
      }
    }
    return all;
  };
  const std::set<const char*> of_a = bytes(a);
  for (const char* byte : bytes(b)) {
    if (of_a.contains(byte)) return true;
  }
  return false;
}

// Windows of one matrix, against a list of their bytes.
TEST(Overlap, IsExactForRowsOfOneStride) {
  const Tensor matrix(DType::f16, {6, 7});
  std::vector<TensorView> windows;
  for (int64_t top = 0; top < 6; ++top) {
    for (int64_t bottom = top + 1; bottom <= 6; ++bottom) {
      for (int64_t left = 0; left < 7; left += 2) {
        for (int64_t right = left + 1; right <= 7; ++right) {
          windows.push_back(matrix.view().slice(0, top, bottom).slice(1, left, right));
        }
      }
    }
  }
  int num_shared = 0;
  for (const TensorView& a : windows) {
    for (const TensorView& b : windows) {
      const bool is_shared = share_a_byte(a, b);
      num_shared += is_shared;
      ASSERT_EQ(overlap(a, b), is_shared)
          << to_string(a) << " at " << a.data << ", " << to_string(b) << " at " << b.data;
    }
  }
  EXPECT_GT(num_shared, 0);
}

TEST(Overlap, SeesHeadsOfAFusedProjectionAsApart) {
  const Tensor qkv(DType::bf16, {5, 8, 16});
  const TensorView q = qkv.view().slice(1, 0, 4), k = qkv.view().slice(1, 4, 6);
  EXPECT_FALSE(overlap(q, k));
  EXPECT_FALSE(overlap(k, q));
  EXPECT_TRUE(overlap(qkv.view().slice(1, 0, 5), k));
  EXPECT_TRUE(overlap(qkv, k));
}

TEST(Overlap, ComparesBytesOfDifferentTypes) {
  const Tensor memory(DType::f32, {16});
  const TensorView low = TensorView::contiguous(memory.view().data, DType::i8, {32});
  const TensorView high = TensorView::contiguous(low.as<char>() + 32, DType::f16, {16});
  EXPECT_FALSE(overlap(low, high));
  EXPECT_TRUE(overlap(memory, high));
  EXPECT_FALSE(overlap(memory.view().slice(0, 3, 3), memory)) << "empty views share nothing";
}

}  // namespace
}  // namespace tessera::ops
