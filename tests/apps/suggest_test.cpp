// Tests of "did you mean".
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <vector>

#include "apps/options.h"

namespace tessera::apps {
namespace {

const std::vector<std::string> kFlags = {"--temperature", "--top-p", "--top-k", "--stop", "--seed"};

TEST(EditDistance, CountsInsertionsDeletionsReplacementsAndSwaps) {
  EXPECT_EQ(edit_distance("seed", "seed"), 0u);
  EXPECT_EQ(edit_distance("", "seed"), 4u);
  EXPECT_EQ(edit_distance("sed", "seed"), 1u);
  EXPECT_EQ(edit_distance("seeed", "seed"), 1u);
  EXPECT_EQ(edit_distance("seet", "seed"), 1u);
  EXPECT_EQ(edit_distance("sede", "seed"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(Nearest, FindsAMistypedFlag) {
  EXPECT_EQ(nearest("--temprature", kFlags), "--temperature");
  EXPECT_EQ(nearest("--sede", kFlags), "--seed");
  EXPECT_EQ(nearest("--top_p", kFlags), "--top-p");
}

TEST(Nearest, FindsAFlagByItsBeginning) { EXPECT_EQ(nearest("--temp", kFlags), "--temperature"); }

TEST(Nearest, SuggestsNothingForAnotherWord) {
  EXPECT_EQ(nearest("--quantum", kFlags), "");
  EXPECT_EQ(nearest("x", kFlags), "");
  EXPECT_EQ(did_you_mean("--quantum", kFlags), "");
}

TEST(DidYouMean, IsAClauseOfASentence) {
  EXPECT_EQ(did_you_mean("--sed", kFlags), "; did you mean --seed?");
}

}  // namespace
}  // namespace tessera::apps
