// Bodies and fields: what is read, and how what is wrong is named.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "server/json_fields.h"

namespace tessera::server {
namespace {

// The error that `act` throws.
template <class Act>
ApiError error_of(Act&& act) {
  try {
    act();
  } catch (const ApiError& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was refused";
  return {0, "nothing"};
}

TEST(Body, IsAnObjectOrRefused) {
  EXPECT_EQ(parse_body(R"({"a": 1, "a": 2})")["a"], 2);
  for (const char* text : {"", "{", "[]", "null", "{\"a\":\"\xff\"}", "{\"a\":\"\\ud800\"}",
                           "{\"a\":1e999}", "{\"a\":NaN}", "{}x"}) {
    EXPECT_EQ(error_of([&] { parse_body(text); }).status(), 400) << text;
  }
}

TEST(Body, IsNotFollowedBelowItsDepth) {
  const auto nested = [](int depth) {
    return "{\"a\":" + std::string(static_cast<size_t>(depth), '[') +
           std::string(static_cast<size_t>(depth), ']') + "}";
  };
  EXPECT_NO_THROW(parse_body(nested(kMaxBodyDepth - 1)));
  EXPECT_EQ(error_of([&] { parse_body(nested(kMaxBodyDepth)); }).status(), 400);
  EXPECT_EQ(error_of([&] { parse_body(std::string(1 << 20, '[')); }).status(), 400);
}

TEST(FieldsOfABody, HaveTypes) {
  const Json body = parse_body(R"({"t": 0.5, "n": 7, "s": "x", "b": true, "z": null,
                                   "l": ["a", "b"], "big": 18446744073709551615})");
  Fields fields(body);
  EXPECT_EQ(fields.number("t", 1), 0.5);
  EXPECT_EQ(fields.integer("n", 1), 7);
  EXPECT_EQ(fields.integer("z", 1), 1);
  EXPECT_EQ(fields.integer("big", 1), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(fields.text("s"), "x");
  EXPECT_TRUE(fields.flag("b", false));
  EXPECT_EQ(fields.texts("s"), std::vector<std::string>{"x"});
  EXPECT_EQ(fields.texts("l").size(), 2u);
  EXPECT_TRUE(fields.unread().empty());

  EXPECT_EQ(error_of([&] { fields.integer("t"); }).param(), "t");
  EXPECT_EQ(error_of([&] { fields.number("s"); }).param(), "s");
  EXPECT_EQ(error_of([&] { fields.flag("n", true); }).param(), "n");
  EXPECT_EQ(error_of([&] { fields.text("n"); }).param(), "n");
  EXPECT_STREQ(error_of([&] { fields.number("s"); }).what(), "s is \"x\"; give a number");
}

TEST(FieldsOfABody, KnowWhatNobodyRead) {
  const Json body = parse_body(R"({"a": 1, "b": 2, "c\n": 3})");
  Fields fields(body);
  fields.find("a");
  EXPECT_EQ(fields.unread(), (std::vector<std::string>{"b", "c\\n"}));
}

TEST(TokenIds, AreRefusedByTheirPlace) {
  const auto ids = [](const char* text) { return read_token_ids("prompt", Json::parse(text), 10); };
  EXPECT_EQ(ids("[0, 9]"), (std::vector<int32_t>{0, 9}));
  for (const char* text : {"[0, -1]", "[0, 10]", "[0, 1.5]", "[0, \"1\"]",
                           "[0, 9223372036854775808]", "[0, null]", "[0, [1]]", "[0, true]"}) {
    EXPECT_EQ(error_of([&] { ids(text); }).param(), "prompt[1]") << text;
  }
}

}  // namespace
}  // namespace tessera::server
