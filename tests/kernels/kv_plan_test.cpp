// A page's walk reaches every byte of it once and no other, in the widest units; and which rows of
// a KV cache may be moved in vectors.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/kv/params.h"

namespace tessera::kernels::kv {
namespace {

struct alignas(16) Block {
  char bytes[16];
};

class PageWalkOf : public ::testing::Test {
 protected:
  PageWalkOf() : memory_(1 << 14) {}
  char* memory() { return memory_[0].bytes; }

  TensorView view(DType dtype, std::initializer_list<int64_t> shape,
                  std::initializer_list<int64_t> strides = {}, int64_t offset = 0) {
    TensorView view = TensorView::contiguous(memory() + offset, dtype, shape);
    std::copy(strides.begin(), strides.end(), view.strides.begin());
    return view;
  }

  // The bytes of page 0, row by row, from the first of the memory.
  std::set<int64_t> bytes_of(const TensorView& pool) {
    std::set<int64_t> bytes;
    const int64_t last = pool.size(-1), row_bytes = storage_bytes(pool.dtype, last);
    for (int64_t row = 0; row < pool.num_elements() / pool.size(0) / last; ++row) {
      int64_t rest = row, offset = 0;
      for (int d = pool.rank - 2; d >= 1; --d) {
        offset += rest % pool.size(d) * pool.stride(d);
        rest /= pool.size(d);
      }
      const int64_t at =
          pool.as<char>() - memory() +
          (pool.dtype == DType::i4 ? offset / 2 : offset * storage_bytes(pool.dtype, 1));
      for (int64_t i = 0; i < row_bytes; ++i) bytes.insert(at + i);
    }
    return bytes;
  }

  // As the kernel walks it. Each byte may be met once.
  std::set<int64_t> walked_bytes(const PageWalk& walk) {
    std::set<int64_t> bytes;
    for (uint32_t unit = 0; unit < walk.num_units; ++unit) {
      const char* at = walk.data + walk.offset_of(unit) * walk.unit_bytes;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(at) % static_cast<uintptr_t>(walk.unit_bytes), 0u);
      for (int i = 0; i < walk.unit_bytes; ++i) {
        EXPECT_TRUE(bytes.insert(at + i - memory()).second) << "unit " << unit;
      }
    }
    EXPECT_EQ(walk.page_stride % walk.unit_bytes, 0);
    return bytes;
  }

  void expect_walk(const TensorView& pool, int unit_bytes, int rank) {
    const PageWalk walk = walk_page(pool);
    EXPECT_EQ(walked_bytes(walk), bytes_of(pool)) << to_string(pool);
    EXPECT_EQ(walk.unit_bytes, unit_bytes) << to_string(pool);
    EXPECT_EQ(walk.rank, rank) << to_string(pool);
  }

 private:
  std::vector<Block> memory_;
};

TEST_F(PageWalkOf, AWholePageIsOneRunWhicheverAxisComesFirst) {
  expect_walk(view(DType::bf16, {3, 16, 2, 64}), 16, 1);
  expect_walk(view(DType::bf16, {3, 2, 16, 64}).transposed(1, 2), 16, 1);
  expect_walk(view(DType::i4, {3, 16, 2, 32}), 16, 1);
  expect_walk(view(DType::f16, {3, 1, 2, 8, 2}), 16, 1);  // scales of columns
  expect_walk(view(DType::f16, {3, 16, 2, 1}), 16, 1);    // scales of rows
}

TEST_F(PageWalkOf, RowsApartAreRunsOfTheirOwn) {
  expect_walk(view(DType::i8, {3, 16, 2, 64}, {16 * 160, 160, 80, 1}), 16, 2);
  expect_walk(view(DType::i8, {3, 16, 2, 64}, {16 * 164, 164, 66, 1}), 2, 3);
  // A scale behind every row of codes.
  expect_walk(view(DType::f16, {3, 16, 2, 1}, {16 * 66, 66, 33, 1}, 64), 2, 1);
  // An odd row of i4 ends within a byte, and the next starts on one.
  for (const auto& [apart, unit_bytes, rank] : {std::tuple{8, 16, 1}, {10, 1, 2}}) {
    TensorView odd = view(DType::i4, {3, 4, 2, 8}, {8 * apart, 2 * apart, apart, 1});
    odd.shape[3] = 7;
    expect_walk(odd, unit_bytes, rank);
  }
}

TEST_F(PageWalkOf, AnOddAddressOrSizeTakesNarrowerUnits) {
  expect_walk(view(DType::u8, {3, 5, 1, 7}), 1, 1);
  expect_walk(view(DType::f32, {3, 5, 1, 7}), 4, 1);
  expect_walk(view(DType::u8, {3, 16, 2, 64}, {}, 4), 4, 1);
  expect_walk(view(DType::u8, {3, 1, 1, 1}), 1, 0);
  expect_walk(view(DType::bf16, {3, 4, 2, 8}, {-64, -16, 8, 1}, 1024), 16, 1);
}

TEST_F(PageWalkOf, PagesBeyondThirtyTwoBitsAreNotTaken) {
  const TensorView pages = view(DType::bf16, {3, 16, 2, 64});
  KvCopyPagesArgs copy{};
  copy.k_pages = copy.v_pages = pages;
  EXPECT_TRUE(has_countable_pages(copy));
  copy.k_pages = view(DType::u8, {2, int64_t{1} << 30, 1, 3}, {}, 1);
  EXPECT_FALSE(has_countable_pages(copy));
  KvAppendArgs append{};
  append.k_pages = pages;
  EXPECT_TRUE(has_countable_slots(append));
  append.k_pages.shape = {int64_t{1} << 30, 4, 1, 1};
  EXPECT_FALSE(has_countable_slots(append));
}

TEST(KvLanes, ARowHasAPowerOfTwoOfThemUpToAWarp) {
  const std::pair<int64_t, int> cases[] = {{1, 0},   {8, 0},   {9, 1},   {64, 3},
                                           {80, 4},  {96, 4},  {128, 4}, {136, 5},
                                           {256, 5}, {300, 5}, {4096, 5}};
  for (const auto& [head_dim, log_lanes] : cases) {
    EXPECT_EQ(count_log_lanes(head_dim), log_lanes) << head_dim;
  }
}

TEST(KvVectors, LieOnWholeAccesses) {
  const std::vector<Block> memory(1 << 10);
  auto* data = const_cast<char*>(memory[0].bytes);
  const auto view = [&](DType dtype, std::initializer_list<int64_t> shape, int64_t offset = 0) {
    return TensorView::contiguous(data + offset, dtype, shape);
  };
  EXPECT_TRUE(lies_on_vectors(view(DType::bf16, {2, 3, 8})));
  EXPECT_FALSE(lies_on_vectors(view(DType::bf16, {2, 3, 12})));
  EXPECT_FALSE(lies_on_vectors(view(DType::bf16, {2, 3, 8}, 8)));
  EXPECT_TRUE(lies_on_vectors(view(DType::i8, {2, 3, 8}, 8)));
  EXPECT_TRUE(lies_on_vectors(view(DType::i4, {2, 3, 8}, 4)));
  EXPECT_FALSE(lies_on_vectors(view(DType::i4, {2, 3, 8}, 2)));
  EXPECT_TRUE(lies_on_vectors(view(DType::f32, {2, 3, 8}, 16)));
  TensorView apart = view(DType::bf16, {2, 3, 8});
  apart.strides = {36, 12, 1};
  EXPECT_FALSE(lies_on_vectors(apart));
  apart.shape = {1, 1, 8};  // strides that are never taken do not count
  EXPECT_TRUE(lies_on_vectors(apart));
}

TEST(KvPoolOf, FindsScalesWhereTheFormatHasThem) {
  const TensorView pages = TensorView::contiguous(nullptr, DType::e4m3, {4, 32, 2, 8});
  const KvPool none = make_pool(pages, {});
  EXPECT_EQ(none.element(1, 2, 1), 512 + 32 + 8);
  EXPECT_EQ(none.scale_element(3, 5, 1), 0);
  const KvPool heads = make_pool(pages, TensorView::contiguous(nullptr, DType::f32, {2}));
  EXPECT_EQ(heads.scale_element(3, 5, 1), 1);
  const TensorView codes = TensorView::contiguous(nullptr, DType::i4, {4, 64, 2, 8});
  const KvPool rows = make_pool(codes, TensorView::contiguous(nullptr, DType::f16, {4, 64, 2, 2}));
  EXPECT_EQ(rows.scale_kind, KvScales::row);
  EXPECT_EQ(rows.scale_element(1, 5, 1), 256 + 20 + 2);
  const KvPool columns =
      make_pool(codes, TensorView::contiguous(nullptr, DType::f16, {4, 2, 2, 8, 2}));
  EXPECT_EQ(columns.scale_kind, KvScales::column);
  EXPECT_EQ(columns.scale_element(1, 1, 1), 64 + 32 + 16);
  EXPECT_TRUE(columns.has_column_vectors);
}

}  // namespace
}  // namespace tessera::kernels::kv
