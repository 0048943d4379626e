// The page pool: free, held and idle pages, and the order in which they are given out.
// SPDX-License-Identifier: MIT
#include "cache/page_pool.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "tests/core/message_of.h"

namespace tessera::cache {
namespace {

using tessera::testing::message_of;

TEST(PagePool, GivesEveryPageOnceAndThenNone) {
  PagePool pool(5);
  std::set<PageId> pages;
  while (const std::optional<PageId> page = pool.take_free()) pages.insert(*page);
  EXPECT_EQ(pages, (std::set<PageId>{0, 1, 2, 3, 4}));
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_EQ(pool.total_references(), 5);
  pool.check();
}

TEST(PagePool, AFreedPageIsReused) {
  PagePool pool(2);
  const PageId page = pool.take_free().value();
  pool.take_free();
  pool.release(page, IfUnheld::free);
  EXPECT_EQ(pool.take_free(), page);
}

TEST(PagePool, AKeptPageIsIdleUntilHeldOrFreed) {
  PagePool pool(2);
  const PageId page = pool.take_free().value();
  pool.release(page, IfUnheld::keep_idle);
  EXPECT_TRUE(pool.is_idle(page));
  EXPECT_EQ(pool.num_idle(), 1);
  pool.hold(page);
  EXPECT_FALSE(pool.is_idle(page));
  EXPECT_EQ(pool.num_references(page), 1);
  EXPECT_EQ(pool.num_idle(), 0);
  pool.release(page, IfUnheld::keep_idle);
  pool.free_idle(page);
  EXPECT_EQ(pool.num_free(), 2);
  pool.check();
}

TEST(PagePool, AHeldPageStaysHeldUntilTheLastRelease) {
  PagePool pool(1);
  const PageId page = pool.take_free().value();
  pool.hold(page);
  EXPECT_EQ(pool.num_shared(), 1);
  pool.hold(page);
  EXPECT_EQ(pool.num_shared(), 1);
  pool.release(page, IfUnheld::free);
  pool.release(page, IfUnheld::free);
  EXPECT_EQ(pool.num_shared(), 0);
  EXPECT_EQ(pool.num_references(page), 1);
  EXPECT_EQ(pool.num_free(), 0);
  pool.release(page, IfUnheld::free);
  EXPECT_EQ(pool.num_free(), 1);
  pool.check();
}

TEST(PagePool, IdlePagesAreKeptInOrderOfRelease) {
  PagePool pool(4);
  for (int i = 0; i < 4; ++i) pool.take_free();
  for (const PageId page : {2, 0, 3, 1}) pool.release(page, IfUnheld::keep_idle);
  pool.hold(0);  // from the middle
  pool.release(0, IfUnheld::keep_idle);
  pool.check();
  std::vector<PageId> order;
  while (const std::optional<PageId> page = pool.oldest_idle()) {
    order.push_back(*page);
    pool.free_idle(*page);
  }
  EXPECT_EQ(order, (std::vector<PageId>{2, 3, 1, 0}));
}

TEST(PagePool, RefusesWhatWouldCorruptIt) {
  EXPECT_NE(message_of([] { PagePool(0); }).find("num_pages is 0; give 1 to"), std::string::npos);
  EXPECT_NE(message_of([] { PagePool(int64_t{1} << 40); }), "");
  PagePool pool(2);
  EXPECT_NE(message_of([&] { pool.hold(0); }).find("free page"), std::string::npos);
  EXPECT_NE(message_of([&] { pool.release(0, IfUnheld::free); }).find("nobody holds"),
            std::string::npos);
  EXPECT_NE(message_of([&] { pool.free_idle(0); }).find("idle page"), std::string::npos);
  EXPECT_NE(message_of([&] { pool.hold(2); }).find("page 2 is not one of its 2"),
            std::string::npos);
  EXPECT_NE(message_of([&] { pool.hold(-1); }), "");
  pool.check();
}

}  // namespace
}  // namespace tessera::cache
