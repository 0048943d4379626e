// Tests of stop strings in text that arrives in pieces, and of streamed tokens.
// SPDX-License-Identifier: MIT
#include "text/text_stream.h"

#include <gtest/gtest.h>

#include <random>

namespace tessera::text {
namespace {

struct Result {
  std::string text;
  bool is_stopped = false;
  bool operator==(const Result&) const = default;
};

Result run(const std::vector<std::string>& pieces, const std::vector<std::string>& stops) {
  StopText text;
  Result result;
  for (const std::string& piece : pieces) {
    result.is_stopped = text.push(piece, stops, result.text);
    if (result.is_stopped) return result;
  }
  text.flush(result.text);
  return result;
}

// The definition, applied to the whole text: the stop string that ends first, the longest of
// equals.
Result reference(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop)) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

TEST(StopText, PassesEverythingWithoutStops) {
  EXPECT_EQ(run({"ab", "", "c"}, {}), (Result{"abc", false}));
}

TEST(StopText, FindsAStopSplitOverPieces) {
  EXPECT_EQ(run({"one E", "N", "D two"}, {"END"}), (Result{"one ", true}));
}

TEST(StopText, ReturnsWhatOnlyLookedLikeAStop) {
  EXPECT_EQ(run({"one E", "N", "Emy"}, {"END"}), (Result{"one ENEmy", false}));
  EXPECT_EQ(run({"one EN"}, {"END"}), (Result{"one EN", false}));
}

TEST(StopText, HoldsBackNoMoreThanItMust) {
  StopText text;
  std::string out;
  EXPECT_FALSE(text.push("abcEN", {"END"}, out));
  EXPECT_EQ(out, "abc");
  EXPECT_FALSE(text.push("EN", {"END"}, out));
  EXPECT_EQ(out, "abcEN");
}

TEST(StopText, FindsAStopThatOverlapsItself) {
  EXPECT_EQ(run({"a", "a", "a", "b"}, {"aab"}), (Result{"a", true}));
}

TEST(StopText, TakesTheStopThatIsCompleteFirst) {
  EXPECT_EQ(run({"xabcx"}, {"abcx", "b"}), (Result{"xa", true}));
  EXPECT_EQ(run({"xabcx"}, {"c", "abc"}), (Result{"x", true}));
}

TEST(StopText, DoesNotDependOnHowTheTextIsCut) {
  std::mt19937_64 random(5);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  int num_stopped = 0;
  for (int round = 0; round < 20000; ++round) {
    const auto random_text = [&](int length) {
      std::string text;
      for (int i = 0; i < length; ++i) text += static_cast<char>('a' + pick(0, 1));
      return text;
    };
    const std::string whole = random_text(pick(0, 12));
    std::vector<std::string> stops;
    for (int i = pick(1, 3); i > 0; --i) stops.push_back(random_text(pick(2, 6)));
    std::vector<std::string> pieces;
    for (size_t begin = 0; begin < whole.size();) {
      const auto length = static_cast<size_t>(pick(1, 4));
      pieces.push_back(whole.substr(begin, length));
      begin += length;
    }
    const Result want = reference(whole, stops);
    ASSERT_EQ(run(pieces, stops), want) << whole;
    num_stopped += want.is_stopped ? 1 : 0;
  }
  EXPECT_GT(num_stopped, 5000);
  EXPECT_LT(num_stopped, 18000);
}

// The whole path of generated tokens: ids to characters, cut before the stop string.
TEST(TextStream, EndsBeforeTheStopStringWhereverTokensAreCut) {
  const Tokenizer tokenizer =
      Tokenizer::load(TESSERA_SOURCE_DIR "/models/tessera-13m/tokenizer.json");
  const std::vector<int32_t> ids = tokenizer.encode("One two. Three four. Five");
  const std::vector<std::string> stops = {". Th", "four."};
  TextStream stream(tokenizer);
  std::string text;
  size_t num_pushed = 0;
  bool is_stopped = false;
  while (!is_stopped && num_pushed < ids.size()) {
    is_stopped = stream.push(ids[num_pushed++], stops, text);
  }
  EXPECT_TRUE(is_stopped);
  EXPECT_LT(num_pushed, ids.size());
  EXPECT_EQ(text, "One two");
}

TEST(TextStream, GivesAllTextThatWasHeldBackWhenItEnds) {
  const Tokenizer tokenizer =
      Tokenizer::load(TESSERA_SOURCE_DIR "/models/tessera-13m/tokenizer.json");
  TextStream stream(tokenizer);
  std::string text;
  for (const int32_t id : tokenizer.encode("One two.")) {
    EXPECT_FALSE(stream.push(id, {". Three"}, text));
  }
  EXPECT_EQ(text, "One two");
  EXPECT_FALSE(stream.finish({". Three"}, text));
  EXPECT_EQ(text, "One two.");
}

}  // namespace
}  // namespace tessera::text
