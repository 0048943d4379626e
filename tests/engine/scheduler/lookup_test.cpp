// What prompt lookup proposes, and how long its drafts are.
// SPDX-License-Identifier: MIT
#include "engine/lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>

#include "engine/drafter.h"

namespace tessera::engine {
namespace {

using Tokens = std::vector<int32_t>;

Tokens proposal(const Tokens& tokens, int64_t most) {
  PromptLookup lookup;
  lookup.follow(tokens);
  Tokens draft;
  lookup.propose(most, draft);
  return draft;
}

TEST(PromptLookup, HasNothingToGoByInATextWithoutRepetition) {
  EXPECT_EQ(proposal({}, 4), Tokens{});
  EXPECT_EQ(proposal({1}, 4), Tokens{});
  EXPECT_EQ(proposal({1, 2, 3, 4, 5, 6}, 4), Tokens{});
  EXPECT_EQ(proposal({1, 2, 3, 1}, 4), Tokens{}) << "one token is no match";
}

TEST(PromptLookup, ProposesWhatFollowedTheLastTokens) {
  EXPECT_EQ(proposal({1, 2, 3, 4, 5, 9, 1, 2}, 2), (Tokens{3, 4}));
}

TEST(PromptLookup, TakesTheMostRecentPlace) {
  EXPECT_EQ(proposal({1, 2, 3, 7, 1, 2, 4, 8, 1, 2}, 1), Tokens{4});
}

TEST(PromptLookup, PrefersALongerMatchToARecentOne) {
  EXPECT_EQ(proposal({5, 6, 1, 2, 3, 9, 8, 1, 2, 4, 5, 6, 1, 2}, 1), Tokens{3});
}

TEST(PromptLookup, GoesOnWithItsOwnBeginningInAShortCycle) {
  EXPECT_EQ(proposal({9, 1, 2, 3, 1, 2, 3}, 7), (Tokens{1, 2, 3, 1, 2, 3, 1}));
  EXPECT_EQ(proposal({4, 4, 4}, 5), (Tokens{4, 4, 4, 4, 4}));
}

TEST(PromptLookup, CountsTheTokensItForesaw) {
  PromptLookup lookup;
  Tokens tokens = {1, 2, 3, 4};
  EXPECT_EQ(lookup.follow(tokens), 0);
  tokens.insert(tokens.end(), {1, 2, 3, 4, 9});
  EXPECT_EQ(lookup.follow(tokens), 2) << "3 and 4; not 9";
  EXPECT_EQ(lookup.follow(tokens), 0) << "nothing new";
}

// Token by token or at once, small or grown: the table is the same. The reference walks the text.
TEST(PromptLookup, FindsWhatASearchOfTheTextFinds) {
  std::mt19937 random(5);
  PromptLookup lookup;
  Tokens tokens;
  int64_t num_found = 0;
  for (int i = 0; i < 3000; ++i) {
    tokens.push_back(static_cast<int32_t>(random() % 40));
    lookup.follow(tokens);
    Tokens want;
    for (int64_t count = 4; count >= 2 && want.empty(); --count) {
      for (int64_t end = std::ssize(tokens) - 1; end >= count && want.empty(); --end) {
        if (std::equal(tokens.end() - count, tokens.end(), tokens.begin() + end - count)) {
          want.push_back(tokens[static_cast<size_t>(end)]);
        }
      }
    }
    Tokens got;
    lookup.propose(1, got);
    num_found += got == want ? 1 : 0;
    ASSERT_TRUE(got.empty() || !want.empty());
  }
  EXPECT_GT(num_found, 3000 * 3 / 4) << "some entries are overwritten, most are not";
}

class DrafterOf15 : public ::testing::Test {
 protected:
  // One step: the length of its draft. If guesses are right, all new tokens were foreseen.
  int64_t step() {
    const int64_t num_new = num_tokens_ - std::exchange(num_followed_, num_tokens_);
    const int64_t num_drafted = drafter_.next_length(num_tokens_, is_right_ ? num_new : 0, 100);
    const int64_t num_accepted = is_right_ ? num_drafted : 0;
    if (num_drafted > 0) drafter_.learn(num_drafted, num_accepted);
    num_tokens_ += num_accepted + 1;
    return num_drafted;
  }

  bool is_right_ = true;
  int64_t num_tokens_ = 0, num_followed_ = 0;
  Drafter drafter_{/*max_draft=*/15, /*rows_per_hit=*/1, /*num_prompt=*/0};
};

TEST_F(DrafterOf15, DoublesTheLengthOfDraftsThatAreAccepted) {
  EXPECT_EQ(step(), 2);
  EXPECT_EQ(step(), 4);
  EXPECT_EQ(step(), 8);
  EXPECT_EQ(step(), 15);
  EXPECT_EQ(step(), 15);
}

TEST_F(DrafterOf15, WastesFewRowsWhereNothingIsAccepted) {
  is_right_ = false;
  int64_t num_wasted = 0;
  for (int i = 0; i < 6400; ++i) num_wasted += step();
  EXPECT_GT(num_wasted, 50) << "it tries again from time to time";
  EXPECT_LE(num_wasted, 4 + 6400 / 64);
}

TEST_F(DrafterOf15, NoticesAtNoCostThatGuessesHaveBecomeRight) {
  is_right_ = false;
  for (int i = 0; i < 1000; ++i) step();
  is_right_ = true;
  int64_t num_steps = 0;
  while (step() < 15) ASSERT_LT(++num_steps, 12);
}

TEST_F(DrafterOf15, ShortensDraftsAfterARejection) {
  for (int i = 0; i < 5; ++i) step();
  is_right_ = false;
  EXPECT_EQ(step(), 15);
  EXPECT_LE(step(), 1);
}

}  // namespace
}  // namespace tessera::engine
