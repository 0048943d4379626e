// What paging wastes and saves: unused rows of held pages, and prompts that are stored once.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "cache/page_cache.h"

namespace tessera::cache {
namespace {

constexpr int64_t kWastePageSize = 16;
constexpr double kMostWaste = 0.04;

PageCache make_large_cache(int64_t num_pages) {
  return PageCache({.num_pages = num_pages, .page_size = kWastePageSize, .hash_key = {5, 6}});
}

// The share of rows in held pages that hold no token, if no page is shared.
double waste_of(const PageCache& cache, const std::vector<PageList>& lists) {
  int64_t num_tokens = 0;
  for (const PageList& list : lists) num_tokens += list.num_tokens;
  const auto num_rows = static_cast<double>(cache.stats().num_held * kWastePageSize);
  return 1.0 - static_cast<double>(num_tokens) / num_rows;
}

std::vector<int32_t> random_tokens(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(random() % 32000));
  return tokens;
}

// Batch 16, prompts of 512 tokens, 512 generated: at every step, not on average.
TEST(PageCacheWaste, IsUnderFourPercentAtEveryStepOfTheBatchWorkload) {
  PageCache cache = make_large_cache(16 * 64);
  std::vector<PageList> lists(16);
  std::vector<PageCopy> copies;
  double most = 0.0, sum = 0.0;
  for (int64_t seq_len = 512; seq_len <= 1024; ++seq_len) {
    for (PageList& list : lists) ASSERT_TRUE(cache.grow(list, seq_len, copies));
    most = std::max(most, waste_of(cache, lists));
    sum += waste_of(cache, lists);
  }
  EXPECT_LT(most, kMostWaste);
  RecordProperty("most_waste", std::to_string(most));
  RecordProperty("mean_waste", std::to_string(sum / 513));
  EXPECT_EQ(cache.num_available(), 0) << "1,024 tokens fill 64 pages a sequence";
}

TEST(PageCacheWaste, IsUnderFourPercentForRandomLengths) {
  std::mt19937 random(3);
  for (const int batch : {16, 64, 256}) {
    PageCache cache = make_large_cache(batch * 128);
    std::vector<PageList> lists(static_cast<size_t>(batch));
    std::vector<PageCopy> copies;
    for (PageList& list : lists) {
      ASSERT_TRUE(cache.grow(list, 1 + static_cast<int64_t>(random() % 2048), copies));
    }
    EXPECT_LT(waste_of(cache, lists), kMostWaste) << batch << " sequences";
    RecordProperty("waste_of_" + std::to_string(batch), std::to_string(waste_of(cache, lists)));
  }
}

// 64 sequences with one prompt of 512 tokens: 32 pages for all, not for each.
TEST(PageCacheWaste, ASharedPromptIsStoredOnce) {
  constexpr int64_t kSequences = 64, kPrompt = 512, kOwn = 100;
  PageCache cache = make_large_cache(1024);
  const std::vector<int32_t> prompt = random_tokens(kPrompt, 1);
  std::vector<PageList> lists(kSequences);
  std::vector<PageCopy> copies;
  for (uint32_t i = 0; i < kSequences; ++i) {
    std::vector<int32_t> tokens = prompt;
    const std::vector<int32_t> own = random_tokens(kOwn, 100 + i);
    tokens.insert(tokens.end(), own.begin(), own.end());
    EXPECT_EQ(cache.take_prefix(tokens, "", lists[i]), i == 0 ? 0 : kPrompt);
    ASSERT_TRUE(cache.grow(lists[i], kPrompt + kOwn, copies));
    cache.index_full_pages(lists[i], tokens, "");
  }
  const int64_t own_pages = (kOwn + kWastePageSize - 1) / kWastePageSize;
  const CacheStats stats = cache.stats();
  EXPECT_EQ(stats.num_held, 32 + kSequences * own_pages);
  EXPECT_EQ(stats.num_shared, 32);
  EXPECT_EQ(stats.num_references, kSequences * (32 + own_pages));
  // 480 pages in place of 2,496: 81 % of the memory is saved.
  EXPECT_DOUBLE_EQ(static_cast<double>(stats.num_held) / static_cast<double>(stats.num_references),
                   480.0 / 2496);
  EXPECT_TRUE(copies.empty());
}

// Eight outputs of one prompt that ends within a page: the full pages are shared by all, and each
// but the last to write gets a copy of the part-filled one.
TEST(PageCacheWaste, ForkedOutputsShareThePromptAndCopyOnePageEach) {
  PageCache cache = make_large_cache(256);
  std::vector<PageCopy> copies;
  std::vector<PageList> lists(1);
  ASSERT_TRUE(cache.grow(lists[0], 520, copies));
  for (int i = 1; i < 8; ++i) lists.push_back(cache.fork(lists[0]));
  for (PageList& list : lists) ASSERT_TRUE(cache.grow(list, 521, copies));
  EXPECT_EQ(copies.size(), 7u);
  EXPECT_EQ(cache.stats().num_held, 32 + 8);
}

}  // namespace
}  // namespace tessera::cache
