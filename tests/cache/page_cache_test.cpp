// The page cache, rule by rule: sharing, copy-on-write, reuse of prefixes, eviction.
// SPDX-License-Identifier: MIT
#include "cache/page_cache.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/core/message_of.h"

namespace tessera::cache {
namespace {

using tessera::testing::message_of;
using Tokens = std::vector<int32_t>;
using Pages = std::vector<PageId>;

constexpr int64_t kPageSize = 4;

PageCache make_cache(int64_t num_pages) {
  return PageCache({.num_pages = num_pages, .page_size = kPageSize, .hash_key = {7, 8}});
}

Tokens counting(int64_t count, int32_t first = 0) {
  Tokens tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// A sequence as the engine runs it: a cached prefix is reused, the rest computed and indexed.
PageList run(PageCache& cache, const Tokens& tokens, std::string_view salt = "") {
  PageList list;
  std::vector<PageCopy> copies;
  cache.take_prefix(tokens, salt, list);
  EXPECT_TRUE(cache.grow(list, static_cast<int64_t>(tokens.size()), copies));
  EXPECT_TRUE(copies.empty());
  cache.index_full_pages(list, tokens, salt);
  return list;
}

void check_all(const PageCache& cache, std::initializer_list<const PageList*> lists) {
  cache.check(std::vector<const PageList*>(lists));
}

TEST(PageCache, ShrinksToThePagesThatStillHoldTokens) {
  PageCache cache = make_cache(6);
  PageList list = run(cache, counting(9));  // two pages indexed
  std::vector<PageCopy> copies;
  ASSERT_TRUE(cache.grow(list, 18, copies));
  EXPECT_EQ(cache.num_available(), 1);
  cache.shrink(list, 13);
  EXPECT_EQ(list.pages.size(), 4u);
  cache.shrink(list, 12);
  EXPECT_EQ(list.pages.size(), 3u);
  EXPECT_EQ(cache.num_available(), 3);
  check_all(cache, {&list});
  EXPECT_EQ(message_of([&] { cache.shrink(list, 7); }),
            "PageCache: a list of 12 tokens, 2 pages of them indexed, cannot shrink to 7");
  ASSERT_TRUE(cache.grow(list, 20, copies));
  EXPECT_TRUE(copies.empty());
  cache.release(list);
  check_all(cache, {});
}

TEST(PageCache, GrowsByWholePages) {
  PageCache cache = make_cache(4);
  PageList list;
  std::vector<PageCopy> copies;
  EXPECT_EQ(cache.pages_to_grow(list, 1), 1);
  EXPECT_EQ(cache.pages_to_grow(list, 4), 1);
  EXPECT_EQ(cache.pages_to_grow(list, 5), 2);
  ASSERT_TRUE(cache.grow(list, 5, copies));
  EXPECT_EQ(list.pages.size(), 2u);
  EXPECT_EQ(cache.pages_to_grow(list, 8), 0);
  ASSERT_TRUE(cache.grow(list, 8, copies));
  EXPECT_EQ(list.pages.size(), 2u);
  EXPECT_EQ(list.num_tokens, 8);
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(cache.num_available(), 2);
  check_all(cache, {&list});
}

TEST(PageCache, GrowingToLessIsNothing) {
  PageCache cache = make_cache(4);
  PageList list = run(cache, counting(6));
  const Pages pages = list.pages;
  std::vector<PageCopy> copies;
  for (const int64_t num_tokens : {0, 3, 6}) {
    EXPECT_EQ(cache.pages_to_grow(list, num_tokens), 0);
    EXPECT_TRUE(cache.grow(list, num_tokens, copies));
  }
  EXPECT_EQ(list.pages, pages);
  EXPECT_EQ(list.num_tokens, 6);
}

TEST(PageCache, AGrowThatDoesNotFitChangesNothing) {
  PageCache cache = make_cache(3);
  PageList list = run(cache, counting(6));
  PageList other = cache.fork(list);
  const Pages pages = list.pages;
  std::vector<PageCopy> copies;
  // One page is left, but two are needed: a copy of the shared last page and a new one.
  EXPECT_EQ(cache.pages_to_grow(list, 9), 2);
  EXPECT_FALSE(cache.grow(list, 9, copies));
  EXPECT_EQ(list.pages, pages);
  EXPECT_EQ(list.num_tokens, 6);
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(cache.num_available(), 1);
  check_all(cache, {&list, &other});
}

TEST(PageCache, AForkCopiesThePartFilledPageWhenItIsWritten) {
  PageCache cache = make_cache(8);
  PageList list = run(cache, counting(6));
  PageList other = cache.fork(list);
  EXPECT_EQ(other.pages, list.pages);
  EXPECT_EQ(cache.stats().num_shared, 2);
  EXPECT_EQ(cache.stats().num_references, 4);
  std::vector<PageCopy> copies;
  EXPECT_EQ(cache.pages_to_grow(other, 7), 1);
  ASSERT_TRUE(cache.grow(other, 7, copies));
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].source, list.pages[1]);
  EXPECT_EQ(copies[0].target, other.pages[1]);
  EXPECT_NE(other.pages[1], list.pages[1]);
  EXPECT_EQ(other.pages[0], list.pages[0]);
  // The first list now holds its page alone and writes it in place.
  EXPECT_EQ(cache.pages_to_grow(list, 8), 0);
  ASSERT_TRUE(cache.grow(list, 8, copies));
  EXPECT_EQ(copies.size(), 1u);
  EXPECT_EQ(cache.stats().num_copies, 1);
  check_all(cache, {&list, &other});
}

TEST(PageCache, FullSharedPagesAreNotCopied) {
  PageCache cache = make_cache(8);
  PageList list = run(cache, counting(8));
  PageList other = cache.fork(list);
  std::vector<PageCopy> copies;
  ASSERT_TRUE(cache.grow(list, 9, copies));
  ASSERT_TRUE(cache.grow(other, 9, copies));
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(cache.stats().num_held, 4);
  check_all(cache, {&list, &other});
}

TEST(PageCache, AFullPageIsFoundWhileItsOwnerRuns) {
  PageCache cache = make_cache(8);
  const Tokens tokens = counting(11);
  PageList list = run(cache, tokens);
  PageList other;
  EXPECT_EQ(cache.find_prefix(tokens, "").num_tokens, 8);
  EXPECT_EQ(cache.find_prefix(tokens, "").num_idle_pages, 0);
  EXPECT_EQ(cache.take_prefix(tokens, "", other), 8);
  EXPECT_EQ(other.pages, Pages(list.pages.begin(), list.pages.begin() + 2));
  check_all(cache, {&list, &other});
}

TEST(PageCache, TheLastTokenIsAlwaysComputed) {
  PageCache cache = make_cache(8);
  PageList list = run(cache, counting(8));
  EXPECT_EQ(cache.find_prefix(counting(8), "").num_tokens, 4);
  EXPECT_EQ(cache.find_prefix(counting(9), "").num_tokens, 8);
  EXPECT_EQ(cache.find_prefix(counting(4), "").num_tokens, 0);
  EXPECT_EQ(cache.find_prefix({}, "").num_tokens, 0);
}

TEST(PageCache, IdlePagesAreHeldAgainByTheirPrefix) {
  PageCache cache = make_cache(4);
  PageList list = run(cache, counting(9));
  const Pages pages = list.pages;
  cache.release(list);
  EXPECT_TRUE(list.pages.empty());
  EXPECT_EQ(list.num_tokens, 0);
  EXPECT_EQ(cache.stats().num_idle, 2);
  EXPECT_EQ(cache.stats().num_free, 2) << "the part-filled page is of no use to anyone";
  EXPECT_EQ(cache.num_available(), 4);
  EXPECT_EQ(cache.find_prefix(counting(9), "").num_idle_pages, 2);
  PageList again;
  EXPECT_EQ(cache.take_prefix(counting(9), "", again), 8);
  EXPECT_EQ(again.pages, Pages(pages.begin(), pages.begin() + 2));
  EXPECT_EQ(cache.stats().num_idle, 0);
  EXPECT_EQ(cache.stats().num_held, 2);
  EXPECT_EQ(cache.num_available(), 2);
  check_all(cache, {&again});
}

TEST(PageCache, ATakenPrefixGoesOnInTheChain) {
  PageCache cache = make_cache(8);
  PageList list = run(cache, counting(9));
  cache.release(list);
  list = run(cache, counting(17));
  EXPECT_EQ(cache.find_prefix(counting(17), "").num_tokens, 16);
  EXPECT_EQ(cache.stats().num_lookup_tokens, 9 + 17);
  EXPECT_EQ(cache.stats().num_hit_tokens, 8);
}

TEST(PageCache, TheTailOfASequenceIsEvictedBeforeItsHead) {
  PageCache cache = make_cache(4);
  PageList list = run(cache, counting(13));  // three full pages
  cache.release(list);
  PageList other;
  std::vector<PageCopy> copies;
  ASSERT_TRUE(cache.grow(other, 8, copies));  // the free page, and the oldest idle one
  EXPECT_EQ(cache.stats().num_evictions, 1);
  EXPECT_EQ(cache.find_prefix(counting(13), "").num_tokens, 8);
  check_all(cache, {&other});
}

TEST(PageCache, TheSequenceReleasedLongestAgoIsEvictedFirst) {
  PageCache cache = make_cache(4);
  PageList old = run(cache, counting(8, 100));
  PageList young = run(cache, counting(8, 200));
  cache.release(old);
  cache.release(young);
  PageList touched;
  cache.take_prefix(counting(8, 100), "", touched);  // its first page
  cache.release(touched);
  PageList other;
  std::vector<PageCopy> copies;
  ASSERT_TRUE(cache.grow(other, 12, copies));
  EXPECT_EQ(cache.find_prefix(counting(5, 100), "").num_tokens, 4) << "used last";
  EXPECT_EQ(cache.find_prefix(counting(5, 200), "").num_tokens, 0);
}

TEST(PageCache, EqualContentsOfTwoSequencesAreIndexedOnce) {
  PageCache cache = make_cache(8);
  const Tokens tokens = counting(9);
  PageList one, two;
  std::vector<PageCopy> copies;
  cache.take_prefix(tokens, "", one);  // both start before either is computed
  cache.take_prefix(tokens, "", two);
  ASSERT_TRUE(cache.grow(one, 9, copies) && cache.grow(two, 9, copies));
  cache.index_full_pages(one, tokens, "");
  cache.index_full_pages(two, tokens, "");
  EXPECT_EQ(two.num_indexed, 2);
  EXPECT_NE(one.pages, two.pages);
  check_all(cache, {&one, &two});
  cache.release(two);
  EXPECT_EQ(cache.stats().num_idle, 0) << "its copies are nobody's prefix";
  cache.release(one);
  EXPECT_EQ(cache.stats().num_idle, 2);
}

TEST(PageCache, AnEvictedHeadLeavesItsTailToBeFoundAgain) {
  PageCache cache = make_cache(8);
  const Tokens tokens = counting(9);
  std::vector<PageCopy> copies;
  PageList first = run(cache, counting(5));  // indexes the first page
  PageList second;
  ASSERT_TRUE(cache.grow(second, 9, copies));  // computes both on its own
  cache.index_full_pages(second, tokens, "");  // and indexes the second page only
  cache.release(first);
  PageList hungry;
  ASSERT_TRUE(cache.grow(hungry, 4 * cache.num_available(), copies));  // evicts the head
  EXPECT_EQ(cache.find_prefix(tokens, "").num_tokens, 0);
  cache.release(hungry);
  first = run(cache, counting(5));
  EXPECT_EQ(cache.find_prefix(tokens, "").num_tokens, 8);
  check_all(cache, {&first, &second});
}

TEST(PageCache, SaltsShareNothing) {
  PageCache cache = make_cache(8);
  PageList list = run(cache, counting(9), "alice");
  EXPECT_EQ(cache.find_prefix(counting(9), "bob").num_tokens, 0);
  EXPECT_EQ(cache.find_prefix(counting(9), "alice").num_tokens, 8);
}

TEST(PageCache, PagesAreIndexedAsTheyFill) {
  PageCache cache = make_cache(8);
  PageList list;
  std::vector<PageCopy> copies;
  ASSERT_TRUE(cache.grow(list, 12, copies));
  cache.index_full_pages(list, counting(7), "");  // seven of twelve rows are written
  EXPECT_EQ(list.num_indexed, 1);
  cache.index_full_pages(list, counting(12), "");
  EXPECT_EQ(list.num_indexed, 3);
  EXPECT_EQ(cache.find_prefix(counting(13), "").num_tokens, 12);
}

TEST(PageCache, ForkedListsIndexTheirSharedPagesOnce) {
  PageCache cache = make_cache(8);
  PageList list;
  std::vector<PageCopy> copies;
  ASSERT_TRUE(cache.grow(list, 8, copies));
  PageList other = cache.fork(list);
  cache.index_full_pages(list, counting(8), "");
  cache.index_full_pages(other, counting(8), "");
  EXPECT_EQ(other.num_indexed, 2);
  check_all(cache, {&list, &other});
}

TEST(PageCache, ClearingForgetsEveryPrefixAndWhatRunningListsHold) {
  PageCache cache = make_cache(8);
  PageList running = run(cache, counting(9));
  PageList done = run(cache, counting(9, 50));
  cache.release(done);
  cache.clear_index();
  EXPECT_EQ(cache.stats().num_idle, 0);
  EXPECT_EQ(cache.find_prefix(counting(9), "").num_tokens, 0);
  std::vector<PageCopy> copies;
  ASSERT_TRUE(cache.grow(running, 13, copies));
  cache.index_full_pages(running, counting(13), "");
  PageList fresh = run(cache, counting(9));
  EXPECT_EQ(cache.find_prefix(counting(13), "").num_tokens, 8)
      << "the third page was computed from pages that were forgotten";
  cache.release(running);
  EXPECT_EQ(cache.stats().num_idle, 0);
  check_all(cache, {&fresh});
}

TEST(PageCache, WithoutAnIndexNothingIsKept) {
  PageCache cache({.num_pages = 4, .page_size = kPageSize, .use_prefix_index = false});
  PageList list = run(cache, counting(9));
  EXPECT_EQ(cache.find_prefix(counting(9), "").num_tokens, 0);
  cache.release(list);
  EXPECT_EQ(cache.stats().num_free, 4);
  check_all(cache, {});
}

TEST(PageCache, AListWhoseDigestCollidesIsNotIndexedFurther) {
  // All digests are equal, so only the first page is indexed.
  PageCache cache({.num_pages = 8, .page_size = kPageSize, .hash_key = {7, 8}, .digest_bits = 0});
  PageList one = run(cache, counting(9));
  PageList two = run(cache, counting(9, 50));
  EXPECT_EQ(one.num_indexed, 1);
  EXPECT_EQ(two.num_indexed, 0);
  EXPECT_EQ(cache.find_prefix(counting(9), "").num_tokens, 4);
  EXPECT_EQ(cache.find_prefix(counting(9, 50), "").num_tokens, 0);
  check_all(cache, {&one, &two});
}

TEST(PageCache, AListWithTokensHasATailOfItsOwn) {
  PageCache cache({.num_pages = 8, .page_size = kPageSize, .num_tails = 2});
  PageList one;
  EXPECT_EQ(one.tail, -1);
  std::vector<PageCopy> copies;
  ASSERT_TRUE(cache.grow(one, 3, copies));
  const int32_t first = one.tail;
  EXPECT_GE(first, 0);
  ASSERT_TRUE(cache.grow(one, 6, copies));
  EXPECT_EQ(one.tail, first);
  PageList two = cache.fork(one);
  EXPECT_NE(two.tail, first);
  check_all(cache, {&one, &two});
  PageList three;
  EXPECT_NE(message_of([&] { cache.grow(three, 1, copies); }).find("than there are tails, 2"),
            std::string::npos);
  cache.release(one);
  EXPECT_EQ(one.tail, -1);
  PageList four = cache.fork(two);
  EXPECT_EQ(four.tail, first);
  check_all(cache, {&two, &four});
}

TEST(PageCache, RefusesWhatWouldCorruptIt) {
  const auto with_page_size = [](int64_t page_size) {
    return message_of([&] { PageCache({.num_pages = 1, .page_size = page_size}); });
  };
  EXPECT_NE(with_page_size(0).find("page_size is 0; give 1 to 65536"), std::string::npos);
  EXPECT_NE(message_of([] { PageCache({.num_pages = -1}); }).find("num_pages is -1"),
            std::string::npos);
  PageCache cache = make_cache(4);
  PageList list = run(cache, counting(6));
  EXPECT_NE(message_of([&] { cache.take_prefix(counting(6), "", list); }).find("empty list"),
            std::string::npos);
  PageList forged = list;  // held twice, counted once
  EXPECT_NE(message_of([&] {
              check_all(cache, {&list, &forged});
            }).find("counts 1 references; 2 lists hold it"),
            std::string::npos);
  EXPECT_NE(message_of([&] { check_all(cache, {}); }), "");
  forged.num_tokens = 9;
  EXPECT_NE(message_of([&] { check_all(cache, {&forged}); }).find("pages of a list is 2"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::cache
