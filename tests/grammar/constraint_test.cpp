// What each kind of constraint matches.
// SPDX-License-Identifier: MIT
#include "tessera/grammar/constraint.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera {
namespace {

bool matches(const ConstraintSpec& spec, std::string_view text) {
  return Constraint::compile(spec)->matches(text);
}
ConstraintSpec ebnf(std::string text) {
  return {.kind = ConstraintKind::grammar, .text = std::move(text)};
}

TEST(Choice, TakesEachAndNothingElse) {
  const ConstraintSpec spec{.kind = ConstraintKind::choice, .choices = {"yes", "yes please", "né"}};
  for (const std::string& choice : spec.choices) EXPECT_TRUE(matches(spec, choice));
  for (const char* other : {"", "y", "yes ", "no", "n"}) EXPECT_FALSE(matches(spec, other));
}

TEST(JsonObject, TakesObjectsOnly) {
  const ConstraintSpec spec{.kind = ConstraintKind::json_object};
  EXPECT_TRUE(matches(spec, R"({})"));
  EXPECT_TRUE(matches(spec, R"({"a":[1,2.5e3,-0],"b":{"c":null},"d":"\u00e9\n é"})"));
  EXPECT_FALSE(matches(spec, R"([1])"));
  EXPECT_FALSE(matches(spec, R"({"a":01})"));
  EXPECT_FALSE(matches(spec, R"({"a":"\ud800"})"));
  EXPECT_FALSE(matches(spec, "{\"a\":\"\n\"}"));
  EXPECT_FALSE(matches(spec, R"({ "a":1})"));
}

TEST(JsonObject, WhitespaceIsBounded) {
  const ConstraintSpec spec{.kind = ConstraintKind::json_object, .max_whitespace = 2};
  EXPECT_TRUE(matches(spec, "{ \"a\" : [ 1 ,\n\t2 ] , \"b\" : {}  }"));
  EXPECT_FALSE(matches(spec, "{   \"a\":1}"));
}

TEST(JsonObject, DepthIsBounded) {
  const auto nested = [](int depth) {
    return "{\"a\":" + std::string(static_cast<size_t>(depth), '[') +
           std::string(static_cast<size_t>(depth), ']') + "}";
  };
  const ConstraintSpec spec{.kind = ConstraintKind::json_object};
  EXPECT_TRUE(matches(spec, nested(20)));
  EXPECT_FALSE(matches(spec, nested(70)));
}

TEST(Ebnf, RecursionNestsToAnyDepthAllowed) {
  const ConstraintSpec spec = ebnf("root ::= \"(\" root? \")\" # pairs\n");
  EXPECT_TRUE(matches(spec, "()"));
  EXPECT_TRUE(matches(spec, "(((())))"));
  EXPECT_FALSE(matches(spec, "(()"));
  EXPECT_FALSE(matches(spec, "()()"));
}

TEST(Ebnf, RecursionAtTheEndIsALoop) {
  const ConstraintSpec spec = ebnf("root ::= item | item \",\" root\nitem ::= [a-c]{2}");
  std::string text = "ab";
  for (int i = 0; i < 500; ++i) text += ",bc";
  EXPECT_TRUE(matches(spec, text));
  EXPECT_FALSE(matches(spec, text + ","));
}

TEST(Ebnf, LiteralsClassesAndRepetitions) {
  const ConstraintSpec spec = ebnf(R"(
root ::= greeting " " name
  ("!" | "?"){1,3}
greeting ::= "h\u00e9llo" | "\x48i"
name ::= [A-Z] [^0-9\]]* .
)");
  EXPECT_TRUE(matches(spec, "héllo Bob!"));
  EXPECT_TRUE(matches(spec, "Hi Zoé???"));
  EXPECT_FALSE(matches(spec, "Hi Bob"));
  EXPECT_FALSE(matches(spec, "Hi B0b!"));
  EXPECT_FALSE(matches(spec, "hi Bob!"));
}

// Empty rules and ambiguity: the same text can be read in many ways.
TEST(Ebnf, EmptyRulesAndAmbiguity) {
  const ConstraintSpec spec = ebnf("root ::= opt opt a* \"x\"\nopt ::= a?\na ::= \"a\" | \"aa\"");
  EXPECT_TRUE(matches(spec, "x"));
  EXPECT_TRUE(matches(spec, "aaaaaaaaaaaaaaaaaaaax"));
  EXPECT_FALSE(matches(spec, "aab"));
}

}  // namespace
}  // namespace tessera
