// What is not supported is refused with the line and the name.
// SPDX-License-Identifier: MIT
#include "tests/ops/refusal.h"

#include <gtest/gtest.h>

#include "tests/text/chat/rendering.h"

namespace tessera::testing {
namespace {

struct RefusedRow {
  const char* source;
  const char* message;
};

constexpr RefusedRow kUnknown[] = {
    {"a\n\n{{ 1|foo }}", "chat template, line 3: unknown filter 'foo'"},
    {"\n{{ 1 is foo }}", "chat template, line 2: unknown test 'foo'"},
    {"{{ foo() }}", "line 1: unknown function 'foo'"},
    {"{{ 'a'.foo() }}", "line 1: unknown method 'foo': a string has no attribute 'foo'"},
    {"{{ [1]|map('foo')|list }}", "unknown filter 'foo'"},
    {"{{ [1]|select('foo')|list }}", "unknown test 'foo'"},
    {"{% foo %}", "line 1: unknown tag 'foo'"},
    {"{{ foo.bar }}", "line 1: 'foo' is undefined"},
    {"{{ messages[0].foo.bar }}", "a dictionary has no attribute 'foo'"},
    {"{{ messages[9].role }}", "a list of 2 elements has no element 9"},
    {"{{ foo + 1 }}", "'foo' is undefined"},
    {"{{ 1|default(foo=2) }}", "'default' has no argument 'foo'"},
    {"{{ 'a'|replace('b') }}", "'replace' needs its argument 'new'"},
    {"{{ 'a'|trim('b', 'c') }}", "'trim' takes at most 1 arguments; got 2"},
    {"{{ 'a'|replace('a', 'b', old='c') }}", "'replace' got its argument 'old' twice"},
    {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "macro 'm' takes at most 1 arguments; got 2"},
    {"{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "macro 'm' does not take argument 'b' here"},
    {"{{ strftime_now('%q') }}", "'strftime_now' knows the fields"},
};

constexpr RefusedRow kForbidden[] = {
    {"{{ ''.__class__ }}", "attribute '__class__' is not allowed"},
    {"{{ ''['__class__'] }}", "attribute '__class__' is not allowed"},
    {"{{ messages.__class__.__mro__ }}", "attribute '__class__' is not allowed"},
    {"{{ [messages]|map(attribute='__init__')|list }}", "attribute '__init__' is not allowed"},
    {"{{ '{0.__class__}'.format('') }}", "attribute '__class__' is not allowed"},
    {"{{ '{0[__class__]}'.format('') }}", "attribute '__class__' is not allowed"},
    {"{{ m.__globals__ if m else range.__self__ }}", "attribute '__self__' is not allowed"},
    {"{{ messages.append(1) }}", "method 'append' is not allowed: it changes a list"},
    {"{{ messages[0].update({}) }}", "method 'update' is not allowed: it changes a dictionary"},
    {"{% set messages.x = 1 %}", "only fields of a namespace can be set; 'messages' is a list"},
    {"{% include 'x' %}", "tag 'include' is not supported in chat templates"},
    {"{% import 'x' as y %}", "tag 'import' is not supported in chat templates"},
    {"{% extends 'x' %}", "tag 'extends' is not supported in chat templates"},
    {"{% call m() %}{% endcall %}", "tag 'call' is not supported in chat templates"},
    {"{% for x in y recursive %}{% endfor %}", "recursive loops are not supported"},
    {"{{ f(*messages) }}", "unpacking of arguments with '*' is not supported"},
    {"{{ range }}", "a function has no printed form"},
    {"{{ messages|map('string') }}", "a generator has no printed form"},
};

constexpr RefusedRow kMistakes[] = {
    {"{{ 1 / 0 }}", "'/' by zero"},
    {"{{ 1 // 0 }}{{ 1 % 0 }}", "'//' by zero"},
    {"{{ 9223372036854775807 + 1 }}", "the result of '+' exceeds 64 bits"},
    {"{{ -9223372036854775807 - 2 }}", "the result of '-' exceeds 64 bits"},
    {"{{ 2 ** 63 }}", "the result of '**' exceeds 64 bits"},
    {"{{ 4611686018427387904 * 2 }}", "the result of '*' exceeds 64 bits"},
    {"{{ (-9223372036854775807 - 1) // -1 }}", "the result of '//' exceeds 64 bits"},
    {"{{ 9223372036854775808 }}", "exceeds 64 bits"},
    {"{{ 1 < 'a' }}", "'<' and '>' can not compare an integer with a string"},
    {"{{ 'a' + 1 }}", "'+' can not take a string and an integer"},
    {"{{ 'a' + none }}", "'+' can not take a string and none"},
    {"{{ -'a' }}", "'-' can not take a string"},
    {"{{ 1 in 2 }}", "'in' needs a container on its right; got an integer"},
    {"{{ 1 in 'a' }}", "'in' a string needs a string on its left; got an integer"},
    {"{{ {[]: 1} }}", "a list can not be a key"},
    {"{{ 1|length }}", "an integer has no length"},
    {"{% for x in 1 %}{% endfor %}", "an integer can not be looped over"},
    {"{% for a, b in [[1]] %}{% endfor %}", "can not unpack 1 values into 2 names"},
    {"{{ [1, 'a']|sort }}", "can not compare"},
    {"{{ none() }}", "none can not be called"},
    {"{{ foo|tojson }}", "'foo' is undefined"},
    {"{{ range|tojson }}", "tojson can not write a function"},
    {"{{ [1][::0] }}", "the step of a slice can not be zero"},
    {"{{ [1]['a':] }}", "a slice needs integers; got a string"},
    {"{{ range(1, 2, 0) }}", "the step of 'range' can not be zero"},
    {"{{ '{'.format(1) }}", "'format': a '{' is not closed"},
    {"{{ 'a}'.format(1) }}", "'format': a '}' has no '{' before it"},
    {"{{ '{}{}'.format(1) }}", "'format': field 1 has no argument; got 1"},
    {"{{ '{x}'.format(1) }}", "'format': there is no argument 'x'"},
    {"{{ '{}{0}'.format(1) }}", "'format': '{}' and '{0}' can not stand in one string"},
    {"{{ '{!a}'.format(1) }}", "'format': conversion '!a' is not supported; use !s or !r"},
    {"{{ '{:d}'.format('a') }}", "'format': a string can not be written with type 'd'"},
    {"{{ '{:.2}'.format(1) }}", "'format': an integer can not be written with a precision"},
    {"{{ '{:>5}'.format(none) }}", "'format': none takes no specification"},
    {"{{ '{:5.}'.format(1.5) }}", "'format': the specification '5.' needs digits after '.'"},
    {"{{ '{:5dx}'.format(1) }}", "'format': the specification '5dx' is not understood"},
    {"{{ raise_exception('no\nway') }}", "line 1: the template refuses: no\\nway"},
};

constexpr RefusedRow kSyntax[] = {
    {"a\n{{ 1 + }}", "line 2: an expression is expected; found '}}'"},
    {"{{ 1", "a tag is not closed"},
    {"{{ 'a }}", "a string is not closed"},
    {"{# a", "a comment is not closed"},
    {"{% raw %}a", "a raw block is not closed"},
    {"{% if 1 %}", "'{% endif %}' is missing; found the template's end"},
    {"{% for x in y %}{% endif %}", "unknown tag 'endif'"},
    {"{% endfor %}", "unknown tag 'endfor'"},
    {"{{ (1] }}", "unexpected ']'"},
    {"{{ 1 2 }}", "'}}' is expected; found a number"},
    {"{{ a ! b }}", "unexpected character '!'"},
    {"{% set 1 = 2 %}", "a name to assign to is expected; found a number"},
    {"{% set none = 2 %}", "'none' can not be assigned to"},
    {"{% break %}", "'break' and 'continue' stand within a loop only"},
    {"{% for x in y %}{% macro m() %}{% continue %}", "stand within a loop only"},
    {"{% macro m(a=1, b) %}{% endmacro %}", "a parameter without a default follows one"},
    {"{{ f(a=1, 2) }}", "an argument without a name follows one with a name"},
    {"{{ 1 is odd is even }}", "tests with 'is' can not be chained"},
    {"{{ 'a\\xZZ' }}", "needs 2 hexadecimal digits"},
    {"{{ '\\ud800' }}", "no Unicode character"},
    {"{{ '\\N{DASH}' }}", "\\N{...} in a string is not supported"},
    {"{{ x[] }}", "an index is expected"},
    {"{{ x[1:2:3:4] }}", "at most two ':'"},
    {"{% %}", "the name of a tag is expected"},
};

template <size_t kSize>
void expect_refused(const RefusedRow (&rows)[kSize]) {
  for (const RefusedRow& row : rows) {
    SCOPED_TRACE(row.source);
    EXPECT_TRUE(refused([&] { render(row.source); }, {"chat template, line ", row.message}));
  }
}

TEST(Refusal, NamesWhatIsUnknown) { expect_refused(kUnknown); }
TEST(Refusal, KeepsTheHostOutOfReach) { expect_refused(kForbidden); }
TEST(Refusal, SaysWhichOperandsDoNotFit) { expect_refused(kMistakes); }
TEST(Refusal, ShowsWhereTheSourceIsWrong) { expect_refused(kSyntax); }

TEST(Refusal, IsOneLineOfBoundedLength) {
  const std::string source = "{{ raise_exception('a\\nb\\r\\x00c' ~ 'x' * 100000) }}";
  try {
    render(source);
    FAIL() << "not refused";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find_first_of("\n\r"), std::string::npos);
    EXPECT_LT(message.size(), 600u);
  }
}

TEST(Refusal, OfVariablesNamesThem) {
  EXPECT_TRUE(refused([] { render("", "{"); }, {"variables_json is not JSON"}));
  EXPECT_TRUE(refused([] { render("", "[1]"); }, {"variables_json must be a JSON object"}));
  EXPECT_TRUE(refused([] { render("", "3"); }, {"variables_json must be a JSON object"}));
  EXPECT_TRUE(refused([] { render("", "{} x"); }, {"variables_json is not JSON"}));
  EXPECT_TRUE(refused([] { render("", R"({"a": 99999999999999999999})"); }, {"beyond 64 bits"}));
  EXPECT_TRUE(refused([] { render("", R"({"a": 9223372036854775808})"); }, {"beyond 64 bits"}));
  EXPECT_TRUE(refused([] { render("", R"({"messages": []})"); }, {"sets 'messages'"}));
  const std::vector<ChatMessage> messages = {{.role = "user", .content = "", .fields_json = "x"}};
  EXPECT_TRUE(
      refused([&] { ChatTemplate::parse("").render(messages); }, {"fields_json is not JSON"}));
}

}  // namespace
}  // namespace tessera::testing
