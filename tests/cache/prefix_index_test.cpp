// The prefix index: what is found, and that equal digests alone never make a hit.
// SPDX-License-Identifier: MIT
#include "cache/prefix_index.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <tuple>

#include "tests/core/message_of.h"

namespace tessera::cache {
namespace {

using tessera::testing::message_of;
using Tokens = std::vector<int32_t>;

constexpr std::array<uint64_t, 2> kKey = {1, 2};

TEST(PrefixIndex, FindsAPageByParentAndTokens) {
  PrefixIndex index(4, 3, kKey);
  const Tokens first = {5, 6, 7}, second = {8, 9, 10};
  const PageKey head = index.key(index.root(""), first);
  const PageKey tail = index.key(head.digest, second);
  EXPECT_EQ(index.insert(2, head), InsertResult::inserted);
  EXPECT_EQ(index.insert(0, tail), InsertResult::inserted);
  EXPECT_EQ(index.find(head), 2);
  EXPECT_EQ(index.find(tail), 0);
  EXPECT_EQ(index.find(index.key(index.root(""), second)), std::nullopt);
  EXPECT_EQ(index.find(index.key(tail.digest, second)), std::nullopt);
  EXPECT_EQ(index.size(), 2);
  index.check();
}

TEST(PrefixIndex, KeepsSaltsApart) {
  PrefixIndex index(4, 2, kKey);
  const Tokens tokens = {1, 2};
  index.insert(0, index.key(index.root("alice"), tokens));
  EXPECT_EQ(index.find(index.key(index.root("bob"), tokens)), std::nullopt);
  EXPECT_EQ(index.find(index.key(index.root(""), tokens)), std::nullopt);
  EXPECT_EQ(index.find(index.key(index.root("alice"), tokens)), 0);
}

TEST(PrefixIndex, ASaltCannotPassForAPage) {
  const PrefixIndex index(1, 2, kKey);
  const Tokens tokens = {3, 4};
  const Digest parent = index.root("x");
  // A salt made of the very bytes that a page is hashed from, with and without the leading word
  // that separates pages from salts.
  std::string forged(8 + 16 + 8, '\0');
  forged[0] = 1;
  std::memcpy(forged.data() + 8, &parent, 16);
  std::memcpy(forged.data() + 24, tokens.data(), 8);
  EXPECT_NE(index.root(forged), index.key(parent, tokens).digest);
  EXPECT_NE(index.root(forged.substr(8)), index.key(parent, tokens).digest);
}

TEST(PrefixIndex, DigestsDependOnEveryBitOfTheParent) {
  const PrefixIndex index(1, 1, kKey);
  const Tokens tokens = {3};
  const Digest digest = index.key({1, 2}, tokens).digest;
  EXPECT_NE(digest, index.key({uint64_t{1} << 63 | 1, 2}, tokens).digest);
  EXPECT_NE(digest, index.key({1, uint64_t{1} << 63 | 2}, tokens).digest);
}

TEST(PrefixIndex, DigestsDependOnTheKey) {
  const PrefixIndex one(1, 1, {1, 2}), other(1, 1, {1, 3});
  EXPECT_NE(one.root("salt"), other.root("salt"));
}

TEST(PrefixIndex, TheSameContentsAreIndexedOnce) {
  PrefixIndex index(2, 2, kKey);
  const Tokens tokens = {1, 2};
  const PageKey key = index.key(index.root(""), tokens);
  EXPECT_EQ(index.insert(0, key), InsertResult::inserted);
  EXPECT_EQ(index.insert(0, key), InsertResult::present);
  EXPECT_EQ(index.insert(1, key), InsertResult::present);
  EXPECT_FALSE(index.has(1));
  EXPECT_EQ(index.find(key), 0);
}

TEST(PrefixIndex, ARemovedPageIsNotFoundAndCanBeInsertedAnew) {
  PrefixIndex index(2, 2, kKey);
  const Tokens tokens = {1, 2}, next = {3, 4};
  const PageKey head = index.key(index.root(""), tokens);
  const PageKey tail = index.key(head.digest, next);
  index.insert(0, head);
  index.insert(1, tail);
  index.remove(0);
  EXPECT_FALSE(index.has(0));
  EXPECT_EQ(index.find(head), std::nullopt);
  EXPECT_EQ(index.find(tail), 1) << "the page after it keeps its name";
  EXPECT_EQ(index.insert(0, head), InsertResult::inserted);
  EXPECT_EQ(index.find(head), 0);
  index.clear();
  EXPECT_EQ(index.size(), 0);
  EXPECT_EQ(index.find(head), std::nullopt);
  EXPECT_FALSE(index.has(1));
  index.check();
}

TEST(PrefixIndex, RefusesWhatWouldCorruptIt) {
  PrefixIndex index(1, 2, kKey);
  const Tokens tokens = {1, 2}, other = {1, 3}, too_short = {1};
  index.insert(0, index.key(index.root(""), tokens));
  EXPECT_NE(message_of([&] { index.key({}, too_short); }).find("is 1; expected 2"),
            std::string::npos);
  const auto insert_other = [&] { index.insert(0, index.key(index.root(""), other)); };
  EXPECT_NE(message_of(insert_other).find("page 0 is indexed with other tokens"),
            std::string::npos);
  index.remove(0);
  EXPECT_NE(message_of([&] { index.remove(0); }).find("page 0 is not indexed"), std::string::npos);
}

// With digests of three bits nearly every insertion collides. The model maps exact keys to pages
// and allows one page a digest, as the index does.
TEST(PrefixIndex, ACollisionIsNeverAHit) {
  PrefixIndex index(64, 2, kKey, /*digest_bits=*/3);
  std::mt19937 random(1);
  std::map<uint64_t, std::tuple<uint64_t, Tokens, PageId>> model;  // digest: parent, tokens, page
  std::vector<Digest> parents = {index.root("a"), index.root("b")};
  int64_t num_collisions = 0;
  for (int step = 0; step < 20000; ++step) {
    const Digest parent = parents[random() % parents.size()];
    const Tokens tokens = {static_cast<int32_t>(random() % 4), static_cast<int32_t>(random() % 4)};
    const PageKey key = index.key(parent, tokens);
    ASSERT_LT(key.digest.low, 8u);
    const auto it = model.find(key.digest.low);
    const bool is_same = it != model.end() && std::get<0>(it->second) == parent.low &&
                         std::get<1>(it->second) == tokens;
    ASSERT_EQ(index.find(key), is_same ? std::optional(std::get<2>(it->second)) : std::nullopt);
    const PageId page = static_cast<PageId>(random() % 64);
    if (random() % 4 == 0 && index.has(page)) {
      index.remove(page);
      std::erase_if(model, [&](const auto& item) { return std::get<2>(item.second) == page; });
    } else if (!index.has(page)) {
      const InsertResult result = index.insert(page, key);
      if (it == model.end()) {
        ASSERT_EQ(result, InsertResult::inserted);
        model[key.digest.low] = {parent.low, tokens, page};
      } else {
        ASSERT_EQ(result, is_same ? InsertResult::present : InsertResult::collides);
        num_collisions += is_same ? 0 : 1;
      }
    }
    if (parents.size() < 10) parents.push_back(key.digest);
  }
  EXPECT_GT(num_collisions, 1000);
  index.check();
}

}  // namespace
}  // namespace tessera::cache
