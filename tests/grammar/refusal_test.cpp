// Every refusal of a constraint names what is wrong, and comes within the limits.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "tessera/core/error.h"
#include "tessera/grammar/constraint.h"

namespace tessera {
namespace {

std::string why(const ConstraintSpec& spec, const ConstraintLimits& limits = {}) {
  try {
    Constraint::compile(spec, limits);
  } catch (const Error& error) {
    return error.what();
  }
  return "not refused";
}
ConstraintSpec schema(std::string text) { return {.text = std::move(text)}; }
ConstraintSpec regex(std::string text) {
  return {.kind = ConstraintKind::regex, .text = std::move(text)};
}
ConstraintSpec grammar_of(std::string text) {
  return {.kind = ConstraintKind::grammar, .text = std::move(text)};
}

struct RefusedCase {
  ConstraintSpec spec;
  std::string part;  // of the message
};

TEST(Refusal, NamesTheMistake) {
  const RefusedCase cases[] = {
      {schema("{"), "is not JSON"},
      {schema("3"), "a schema is an object"},
      {schema(R"({"not":{}})"), "keyword 'not' is not supported"},
      {schema(R"({"properties":{"a":{"uniqueItems":true}}})"), "#/properties/a"},
      {schema(R"({"patternProperties":{}})"), "'patternProperties'"},
      {schema(R"({"if":{}})"), "'if'"},
      {schema(R"({"type":"number","multipleOf":2})"), "'multipleOf'"},
      {schema(R"({"type":"text"})"), "type is \"text\""},
      {schema(R"({"$ref":"http://x/y"})"), "'http://x/y' is not supported"},
      {schema(R"({"$ref":"#/$defs/a"})"), "is not in the schema"},
      {schema(R"({"$ref":"#"})"), "refer to themselves"},
      {schema(R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},
                  "$ref":"#/$defs/a"})"),
       "refer to themselves"},
      {schema(R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})"),
       "can never end"},
      {schema(R"({"allOf":[{"type":"string"},{"type":"null"}]})"), "no type in common"},
      {schema(R"({"allOf":[{"pattern":"a"},{"pattern":"b"}]})"), "'pattern'"},
      {schema(R"({"allOf":[{"properties":{"a":{}},"additionalProperties":false},
                           {"properties":{"b":{}}}]})"),
       "additionalProperties"},
      {schema(R"({"type":"string","format":"uri"})"), "format \"uri\" is not supported"},
      {schema(R"({"type":"string","format":"date","maxLength":3})"), "only one"},
      {schema(R"({"type":"string","minLength":4,"maxLength":3})"), "minLength is 4, maxLength 3"},
      {schema(R"({"type":"string","maxLength":100000})"), "maxLength is 100000; the limit is"},
      {schema(R"({"type":"string","maxLength":-1})"), "maxLength is -1"},
      {schema(R"x({"type":"string","pattern":"(?=a)"})x"), "(?:"},
      {schema(R"({"type":"integer","minimum":5,"maximum":3})"), "no integer"},
      {schema(R"({"type":"number","minimum":5,"maximum":3})"), "above maximum"},
      {schema(R"({"type":"number","minimum":0.1234567890123456})"), "at most 15 digits"},
      {schema(R"({"type":"number","exclusiveMinimum":true})"), "give a number"},
      {schema(R"({"enum":[]})"), "enum is not a list of values"},
      {schema(R"({"type":"array","items":[{}]})"), "prefixItems"},
      {schema(R"({"required":["a"],"additionalProperties":false})"), "required and not allowed"},
      {schema(R"({"a":1,"a":2})"), "appears twice"},
      {{.text = "{}", .max_whitespace = -1}, "max_whitespace is -1"},
      {regex("a("), "'(' without ')'"},
      {regex("a)"), "')' without '('"},
      {regex("*a"), "a quantifier without anything"},
      {regex("a**"), "two quantifiers"},
      {regex("a*+"), "possessive"},
      {regex("a{3,2}"), "from 3 to 2"},
      {regex("a{1,1000000000}"), "the limit is 10000"},
      {regex("a{x"), "\\{"},
      {regex("(a)\\1"), "\\1 is not supported"},
      {regex("\\bword"), "\\b is not supported"},
      {regex("(?<=a)b"), "(?:"},
      {regex("a^b"), "anchor"},
      {regex("[z-a]"), "ends before it begins"},
      {regex("[[:alpha:]]"), "[:alpha:]"},
      {regex("[]a]"), "empty class"},
      {regex("\\"), "ends with"},
      {regex("\xff"), "is not UTF-8"},
      {grammar_of(""), "no rule 'root'"},
      {grammar_of("root ::= other"), "'other' is used and not defined"},
      {grammar_of("root ::= \"a\nb\""), "line 2"},
      {grammar_of("root ::= root \"a\" | \"b\""), "refers to itself before"},
      {grammar_of("root ::= e root \"a\" | \"b\"\ne ::= \"\""), "refers to itself before"},
      {grammar_of("root ::= \"a\" root"), "can never end"},
      {grammar_of("root ::= \"a\"\nroot ::= \"b\""), "defined twice"},
      {grammar_of("root ::= [a"), "ends within"},
      {grammar_of("root ::= \"\\q\""), "unknown escape"},
      {{.kind = ConstraintKind::choice}, "no choices"},
      {{.kind = ConstraintKind::choice, .choices = {""}}, "a choice is empty"},
  };
  for (const RefusedCase& one : cases) {
    const std::string message = why(one.spec);
    EXPECT_NE(message.find(one.part), std::string::npos)
        << one.spec.text << "\n  says: " << message << "\n  want: " << one.part;
  }
}

// Inputs that have brought other compilers down: refused, quickly.
TEST(Refusal, HostileInputsAreBounded) {
  const auto times = [](int count, std::string_view text) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
  };
  const RefusedCase cases[] = {
      {regex(times(60'000, "(")), "nests deeper"},
      {regex(times(300'000, "a")), "300000 bytes"},
      {regex("(a|b)*a(a|b){20}"), "states"},
      {regex("((a{100}){100}){100}"), "bytes to compile"},
      {regex("(.{0,9000}){0,9000}"), "bytes to compile"},
      {schema(times(60'000, "[")), "nests deeper"},
      {schema(times(200, R"({"items":)") + "{}" + times(200, "}")), "nests deeper"},
      {grammar_of("root ::= " + times(10'000, "(") + "\"a\"" + times(10'000, ")")), "nests deeper"},
      {schema(R"({"type":"array","maxItems":10000,"minItems":9000,
                  "items":{"type":"string","pattern":"^(a|b)*a(a|b){30}$"}})"),
       "states"},
  };
  for (const RefusedCase& one : cases) {
    const auto start = std::chrono::steady_clock::now();
    const std::string message = why(one.spec);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_NE(message.find(one.part), std::string::npos)
        << one.spec.text.substr(0, 60) << "\n  says: " << message << "\n  want: " << one.part;
    EXPECT_LT(took.count(), 10.0) << one.spec.text.substr(0, 60);
  }
}

TEST(Refusal, LimitsAreTheCallers) {
  EXPECT_NE(why(regex("a{1000}"), {.states = 100}).find("more than 100 states"), std::string::npos);
  EXPECT_NE(why(regex("(a|b)*a(a|b){15}"), {.states = 1 << 20, .milliseconds = 1}).find("1 ms"),
            std::string::npos);
  EXPECT_NE(why(regex("(((a)))"), {.nesting = 2}).find("deeper than 2"), std::string::npos);
}

}  // namespace
}  // namespace tessera
