// What JSON schemas allow and what they do not.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tessera/grammar/constraint.h"
#include "tests/grammar/walk.h"

namespace tessera {
namespace {

struct SchemaCase {
  const char* schema;
  std::vector<const char*> allowed;
  std::vector<const char*> refused;
};

TEST(Schema, AllowsAndRefuses) {
  const SchemaCase cases[] = {
      {R"({"type":["string","null"]})", {"\"\"", "null", R"("a\"b")"}, {"1", "\"", "nul"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"boolean"}},
           "required":["a"]})",
       {R"({"a":1})", R"({"a":-20,"b":true})"},
       {R"({})", R"({"b":true})", R"({"b":true,"a":1})", R"({"a":1,"c":2})", R"({"a":1,})"}},
      {R"({"type":"object","properties":{"ab":{"type":"integer"}},
           "additionalProperties":{"type":"null"}})",
       {R"({})", R"({"ab":1})", R"({"a":null})", R"({"abc":null,"b":null})",
        R"({"ab":1,"x":null})"},
       {R"({"ab":null})", R"({"x":null,"ab":null})", R"({"\u0061b":null})"}},
      {R"({"type":"object","required":["z"]})", {R"({"z":[1]})", R"({"z":1,"y":2})"}, {"{}"}},
      {R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
       {"[1]", "[1,2,3]"},
       {"[]", "[1,2,3,4]", "[1,]", "[\"a\"]"}},
      {R"({"prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"null"},
           "maxItems":4})",
       {"[]", "[1]", "[1,\"a\"]", "[1,\"a\",null]", "[1,\"a\",null,null]"},
       {"[\"a\"]", "[1,\"a\",2]", "[1,\"a\",null,null,null]"}},
      {R"({"prefixItems":[{"type":"integer"}],"minItems":1})", {"[3]"}, {"[]", "[1,2]"}},
      {R"({"enum":["a",1,null,{"b":[2]}]})",
       {"\"a\"", "1", "null", R"({"b":[2]})"},
       {"\"b\"", "2"}},
      {R"({"const":"né"})", {"\"né\""}, {"\"ne\""}},
      {R"({"anyOf":[{"type":"integer","minimum":5},{"type":"string","maxLength":2}]})",
       {"5", "77", "\"ab\"", R"("\u00e9\n")", R"("\ud83d\ude00")"},
       {"4", "\"abc\"", "null"}},
      {R"({"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},
           "anyOf":[{"required":["a"]},{"required":["b"]}]})",
       {R"({"a":"x"})", R"({"b":"x"})", R"({"a":"","b":""})"},
       {"{}"}},
      {R"({"allOf":[{"properties":{"a":{"type":"integer","minimum":3}},"required":["a"]},
                    {"properties":{"a":{"maximum":5},"b":{"type":"null"}},"required":["b"]}],
           "type":"object"})",
       {R"({"a":3,"b":null})", R"({"a":5,"b":null})"},
       {R"({"a":2,"b":null})", R"({"a":6,"b":null})", R"({"a":3})"}},
      {R"({"$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},
           "next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"]}},
           "$ref":"#/$defs/node"})",
       {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
       {R"({"v":1})", R"({"v":1,"next":{"v":2}})"}},
      {R"({"type":"integer","minimum":-12,"exclusiveMaximum":105})",
       {"-12", "-1", "0", "9", "99", "104"},
       {"-13", "105", "-0", "007", "1.0", "200"}},
      {R"({"type":"integer","minimum":1.5,"maximum":3.5})", {"2", "3"}, {"1", "4"}},
      {R"({"type":"number","minimum":-1.25,"maximum":2.5})",
       {"-1.25", "-1.2", "-0.5", "0", "0.001", "2.5", "2.50", "2.499", "-1"},
       {"-1.26", "-1.251", "2.51", "3", "-2", "2.5000001", "1e0"}},
      {R"({"type":"number","exclusiveMinimum":0,"maximum":10})",
       {"0.1", "0.000001", "10", "10.0", "9.99"},
       {"0", "0.0", "-1", "10.1", "11"}},
      {R"({"type":"number","minimum":99.5})", {"99.5", "100", "1000.25"}, {"99.4", "99", "-100"}},
      {R"({"type":"string","pattern":"^[A-Z]{2}\\d+$"})", {"\"AB1\""}, {"\"AB\"", "\"xAB1\""}},
      {R"({"type":"string","pattern":"b|^c"})", {"\"abc\"", "\"c\"", "\"b\""}, {"\"ac\"", "\"\""}},
      {R"({"type":"string","pattern":"^[\"\\n\\\\]$"})",
       {R"("\"")", R"("\n")", R"("\\")"},
       {"\"n\""}},
      {R"({"type":"string","format":"date"})",
       {"\"2024-02-28\""},
       {"\"2024-13-01\"", "\"2024-02-30\""}},
      {R"({"type":"string","format":"date-time"})",
       {"\"2024-01-31T23:59:59.5Z\""},
       {"\"2024-01-31\""}},
      {R"({"type":"string","format":"uuid"})",
       {"\"01234567-89ab-cdef-0123-456789abcdef\""},
       {"\"0\""}},
      {R"({"type":"string","format":"email"})", {"\"a.b@c-d.org\""}, {"\".a@b.c\"", "\"a@b\""}},
      {"true", {"1", "{}", "[[]]", "\"x\""}, {"", "tru"}},
      {R"({"title":"t","description":"d","type":"null","$comment":"c"})", {"null"}, {"1"}},
  };
  for (const SchemaCase& one : cases) {
    const auto constraint = Constraint::compile({.text = one.schema});
    for (const char* text : one.allowed) {
      EXPECT_TRUE(constraint->matches(text)) << one.schema << "\n  should allow " << text;
    }
    for (const char* text : one.refused) {
      EXPECT_FALSE(constraint->matches(text)) << one.schema << "\n  should refuse " << text;
    }
  }
}

// Bounds of integers, exactly: every number near them.
TEST(Schema, IntegerBoundsAreExact) {
  std::mt19937 random(3);
  for (int i = 0; i < 100; ++i) {
    const auto draw = [&] {
      const int digits = static_cast<int>(random() % 5);
      int64_t most = 1;
      for (int d = 0; d < digits; ++d) most *= 10;
      return static_cast<int64_t>(random() % static_cast<uint64_t>(2 * most + 1)) - most;
    };
    int64_t low = draw(), high = draw();
    if (low > high) std::swap(low, high);
    const auto constraint =
        Constraint::compile({.text = "{\"type\":\"integer\",\"minimum\":" + std::to_string(low) +
                                     ",\"maximum\":" + std::to_string(high) + "}"});
    for (int64_t n = -12'000; n <= 12'000; n += n > low - 30 && n < high + 30 ? 1 : 7) {
      ASSERT_EQ(constraint->matches(std::to_string(n)), n >= low && n <= high)
          << n << " in " << low << " to " << high;
    }
  }
}

// Texts of decimals against bounds, compared as numbers.
TEST(Schema, NumberBoundsAreExact) {
  std::mt19937 random(5);
  const auto draw = [&](int most_digits) {
    std::string text = random() % 2 == 0 ? "-" : "";
    text += std::to_string(random() % (random() % 2 == 0 ? 3u : 120u));
    const auto digits = random() % static_cast<uint32_t>(most_digits + 1);
    if (digits > 0) text += ".";
    for (uint32_t i = 0; i < digits; ++i) text += static_cast<char>('0' + random() % 10);
    return text;
  };
  const auto value = [](const std::string& text) { return std::strtod(text.c_str(), nullptr); };
  for (int i = 0; i < 200; ++i) {
    std::string low = draw(2), high = draw(2);
    if (value(low) > value(high)) std::swap(low, high);
    const bool excludes = random() % 2 == 0;
    if (excludes && value(low) == value(high)) continue;
    const auto constraint = Constraint::compile(
        {.text = std::string("{\"type\":\"number\",\"") +
                 (excludes ? "exclusiveMinimum" : "minimum") + "\":" + low + ",\"" +
                 (excludes ? "exclusiveMaximum" : "maximum") + "\":" + high + "}"});
    for (int j = 0; j < 300; ++j) {
      std::string text = draw(4);
      if (value(text) == 0 && text[0] == '-') continue;  // -0 is not generated
      const bool is_inside = excludes ? value(text) > value(low) && value(text) < value(high)
                                      : value(text) >= value(low) && value(text) <= value(high);
      ASSERT_EQ(constraint->matches(text), is_inside)
          << text << " in " << low << " to " << high << (excludes ? " (excluded)" : "");
    }
  }
}

// Random walks end in JSON, whatever the schema's shape.
TEST(Schema, WalksEndInJson) {
  using namespace grammar;
  std::mt19937 random(11);
  for (const char* schema :
       {R"({"type":"object"})", R"({"type":"array","items":{"type":"string","maxLength":5}})",
        R"({"type":"object","properties":{"a":{"type":"number"},"b":{"enum":["x","y"]}},
            "required":["b"]})",
        "true"}) {
    for (const int32_t whitespace : {0, 2}) {
      TokenMasks masks(Constraint::compile({.text = schema, .max_whitespace = whitespace}),
                       grammar::testing::bundled_tries());
      int num_complete = 0;
      for (int i = 0; i < 20; ++i) {
        const grammar::testing::Walk walk = grammar::testing::random_walk(masks, random);
        if (!walk.is_complete) continue;
        ++num_complete;
        EXPECT_TRUE(nlohmann::json::accept(walk.text)) << walk.text;
        EXPECT_TRUE(masks.constraint().matches(walk.text)) << walk.text;
      }
      EXPECT_GT(num_complete, 10) << schema;
    }
  }
}

}  // namespace
}  // namespace tessera
