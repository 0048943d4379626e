// Appending to and copying pages of a KV cache on the CPU: bits moved, and nothing else touched.
// SPDX-License-Identifier: MIT
#include "cpu/kv_cache.h"

#include "tests/cpu/tensors.h"

namespace tessera::testing {
namespace {

constexpr double kMark = 7.0;

class CpuKvAppend : public ::testing::TestWithParam<DType> {};

TEST_P(CpuKvAppend, WritesEachTokenToItsSlotAndNothingElse) {
  constexpr int64_t kPages = 9, kPageSize = 8, kHeads = 2, kDim = 24;
  for (DType index : {DType::i32, DType::i64}) {
    for (int64_t tokens : {0, 1, 5, 60}) {
      Tensor k_pages(GetParam(), {kPages, kPageSize, kHeads, kDim});
      Tensor v_pages(GetParam(), {kPages, kPageSize, kHeads, kDim});
      for (const Tensor* pages : {&k_pages, &v_pages}) fill(*pages, [] { return kMark; });
      // k and v as they lie in a fused projection of four query heads.
      Tensor fused(GetParam(), {tokens, 4 + 2 * kHeads, kDim});
      fill_normal(fused, 1);
      const TensorView k = fused.view().slice(1, 4, 4 + kHeads);
      const TensorView v = fused.view().slice(1, 4 + kHeads, 4 + 2 * kHeads);
      Values slots(kPages * kPageSize);
      for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<double>(i);
      std::shuffle(slots.begin(), slots.end(), std::mt19937_64(3));
      slots.resize(static_cast<size_t>(tokens));
      if (tokens > 2) slots[2] = -1.0;
      Values want_k(static_cast<size_t>(k_pages.view().num_elements()), kMark), want_v = want_k;
      const Values from_k = values_of(k), from_v = values_of(v);
      constexpr size_t kRow = kHeads * kDim;
      for (size_t i = 0; i < slots.size(); ++i) {
        if (slots[i] < 0.0) continue;
        const size_t to = static_cast<size_t>(slots[i]) * kRow;
        std::copy_n(from_k.begin() + static_cast<ptrdiff_t>(i * kRow), kRow,
                    want_k.begin() + static_cast<ptrdiff_t>(to));
        std::copy_n(from_v.begin() + static_cast<ptrdiff_t>(i * kRow), kRow,
                    want_v.begin() + static_cast<ptrdiff_t>(to));
      }
      if (slots.empty()) slots.push_back(0.0);  // tensor_of repeats values, so needs one
      const Tensor at = tensor_of(index, {tokens}, slots);
      cpu::kv_append({.k = k, .v = v, .slots = at, .k_pages = k_pages, .v_pages = v_pages});
      EXPECT_TRUE(all_equal(values_of(k_pages), want_k)) << tokens;
      EXPECT_TRUE(all_equal(values_of(v_pages), want_v)) << tokens;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryFloatType, CpuKvAppend, ::testing::ValuesIn(kFloatTypes), dtype_name);

TEST(CpuKvCopyPages, CopiesWholePagesOfEveryType) {
  for (DType dtype : kAllDTypes) {
    const Index shape = {12, 3, 2, 10};
    Tensor k_pages(dtype, shape), v_pages(dtype, shape);
    fill_integers(k_pages, 1, 0, 5);
    fill_integers(v_pages, 2, 0, 5);
    const Tensor k_before = k_pages.to(cpu_device()), v_before = v_pages.to(cpu_device());
    const Values from = {3, 3, 0, 11}, to = {5, 1, 10, 2};
    cpu::kv_copy_pages({.k_pages = k_pages,
                        .v_pages = v_pages,
                        .sources = tensor_of(DType::i32, {4}, from),
                        .targets = tensor_of(DType::i32, {4}, to)});
    for (int64_t page = 0; page < 12; ++page) {
      const auto found = std::find(to.begin(), to.end(), static_cast<double>(page));
      const int64_t source =
          found == to.end() ? page
                            : static_cast<int64_t>(from[static_cast<size_t>(found - to.begin())]);
      const auto page_of = [](const Tensor& pages, int64_t i) {
        return values_of(pages.view().slice(0, i, i + 1));
      };
      EXPECT_TRUE(all_equal(page_of(k_pages, page), page_of(k_before, source))) << name(dtype);
      EXPECT_TRUE(all_equal(page_of(v_pages, page), page_of(v_before, source))) << name(dtype);
    }
  }
}

TEST(CpuKvCopyPages, ManyPagesByManyThreadsAndNoneAtAll) {
  const Index shape = {200, 16, 2, 64};
  Tensor k_pages(DType::bf16, shape), v_pages(DType::bf16, shape);
  fill_normal(k_pages, 1);
  fill_normal(v_pages, 2);
  Values from(100), to(100);
  for (size_t i = 0; i < 100; ++i) from[i] = static_cast<double>(2 * i), to[i] = from[i] + 1.0;
  const Tensor none(DType::i32, {0});
  cpu::kv_copy_pages({.k_pages = k_pages, .v_pages = v_pages, .sources = none, .targets = none});
  const Tensor sources = tensor_of(DType::i32, {100}, from);
  const Tensor targets = tensor_of(DType::i32, {100}, to);
  cpu::kv_copy_pages(
      {.k_pages = k_pages, .v_pages = v_pages, .sources = sources, .targets = targets});
  for (int64_t page = 0; page < 200; page += 2) {
    for (const Tensor* pages : {&k_pages, &v_pages}) {
      EXPECT_TRUE(all_equal(values_of(pages->view().slice(0, page, page + 1)),
                            values_of(pages->view().slice(0, page + 1, page + 2))));
    }
  }
}

}  // namespace
}  // namespace tessera::testing
