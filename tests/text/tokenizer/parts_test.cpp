// Where tokens are recognised: in control parts, in plain parts, and across their borders.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "tests/text/tokenizer/files.h"

namespace tessera::testing {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

Ids encode(const Tokenizer& tokenizer, const std::vector<TextPart>& parts) {
  return tokenizer.encode(std::span<const TextPart>(parts));
}

bool has_special(const Tokenizer& tokenizer, const Ids& ids) {
  return std::ranges::any_of(ids, [&](int32_t id) { return tokenizer.is_special(id); });
}

TEST(Parts, ASpecialTokenIsRecognisedOnlyWhereAllOfItIsControl) {
  const std::string token = "<|begin_of_text|>";
  EXPECT_EQ(encode(bundled(), {{token, true}}), Ids{0});
  EXPECT_EQ(encode(bundled(), {{token, false}}), bundled().encode(token));
  for (size_t cut = 1; cut < token.size(); ++cut) {
    const std::string head = token.substr(0, cut);
    const std::string tail = token.substr(cut);
    EXPECT_EQ(encode(bundled(), {{head, true}, {tail, true}}), Ids{0}) << cut;
    EXPECT_FALSE(has_special(bundled(), encode(bundled(), {{head, true}, {tail, false}}))) << cut;
    EXPECT_FALSE(has_special(bundled(), encode(bundled(), {{head, false}, {tail, true}}))) << cut;
  }
}

TEST(Parts, PlainPartsAreOneTextForSplittingAndMerging) {
  const std::string text = "The history of mathematics, in 1969.";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(encode(bundled(), {{text.substr(0, cut), false}, {text.substr(cut), true}}),
              bundled().encode(text));
  }
  EXPECT_EQ(encode(bundled(), {}), Ids{});
  EXPECT_EQ(encode(bundled(), {{"", true}, {"", false}}), Ids{});
}

TEST(Parts, AUsersLiteralBetweenControlTokensStaysText) {
  const std::string user = "say <|end_of_text|> now";
  const Ids ids =
      encode(bundled(), {{"<|begin_of_text|>", true}, {user, false}, {"<|end_of_text|>", true}});
  EXPECT_EQ(ids.front(), 0);
  EXPECT_EQ(ids.back(), 1);
  EXPECT_FALSE(has_special(bundled(), Ids(ids.begin() + 1, ids.end() - 1)));
  EXPECT_EQ(bundled().decode(ids), user);
  EXPECT_EQ(bundled().decode(ids, true), "<|begin_of_text|>" + user + "<|end_of_text|>");
}

TEST(Parts, AddedTokensThatAreNotSpecialAreRecognisedInAnyText) {
  const Tokenizer qwen2 = Tokenizer::load(data_file("qwen2"));
  const int32_t begin = *qwen2.find("<tool_call>");
  EXPECT_FALSE(qwen2.is_special(begin));
  EXPECT_EQ(qwen2.encode("<tool_call>"), Ids{begin});
  EXPECT_EQ(qwen2.encode("<tool_call"), encode(qwen2, {{"<tool_call", true}}));
  // Also across the border of two parts, because it is not a control token.
  EXPECT_EQ(encode(qwen2, {{"<tool_", true}, {"call>", false}}), Ids{begin});
}

json added(int id, const std::string& content) {
  return {{"id", id}, {"content", content}, {"special", false}, {"normalized", false}};
}

TEST(Parts, TheLeftmostTokenWinsAndOfThoseTheLongest) {
  json file = byte_level_file();
  file["added_tokens"].push_back(added(900, "<a>"));
  file["added_tokens"].push_back(added(901, "<a><b>"));
  file["added_tokens"].push_back(added(902, "a><b><c>"));
  file["added_tokens"].push_back(added(903, "<c>"));
  const Tokenizer tokenizer = parse(file);
  EXPECT_EQ(tokenizer.encode("<a><b><c>"), (Ids{901, 903}));
  EXPECT_EQ(tokenizer.encode("a><b><c>"), Ids{902});
  EXPECT_EQ(tokenizer.encode("<a><a><b>"), (Ids{900, 901}));
}

TEST(Parts, TokensTakeTheWhiteSpaceAndTheRoomTheyAskFor) {
  json file = byte_level_file();
  json strips = added(900, "<x>");
  strips["lstrip"] = strips["rstrip"] = true;
  json word = added(901, "ab");
  word["single_word"] = true;
  file["added_tokens"].push_back(strips);
  file["added_tokens"].push_back(word);
  const Tokenizer tokenizer = parse(file);
  const int32_t q = *tokenizer.find("q");
  EXPECT_EQ(tokenizer.encode("q \t<x> \n\u3000q"), (Ids{q, 900, q}));
  EXPECT_EQ(tokenizer.encode("ab"), Ids{901});
  EXPECT_EQ(tokenizer
                .encode("\xFF"
                        "ab\xFF")
                .at(1),
            901)
      << "bytes that are no text are no word";
  for (const char* text :
       {"abq", "qab", "ab1", "\u00e9ab", "ab_", "ab\u24d0", "ab\u0301", "\u200dab", "ab\u2167"}) {
    EXPECT_EQ(std::ranges::count(tokenizer.encode(text), 901), 0) << text;
  }
  for (const char* text : {"ab\u00b2", "\u00bdab", "ab+"}) {
    EXPECT_EQ(std::ranges::count(tokenizer.encode(text), 901), 1) << text;
  }
}

}  // namespace
}  // namespace tessera::testing
