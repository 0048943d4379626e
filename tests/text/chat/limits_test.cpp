// Templates that need too much are refused, quickly and with little memory.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>

#include "tests/ops/refusal.h"
#include "tests/text/chat/rendering.h"

namespace tessera::testing {
namespace {

constexpr TemplateLimits kSmall{.steps = 20'000, .output_bytes = 64 << 10, .depth = 32};

std::string repeated(std::string_view text, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

struct LimitRow {
  const char* source;
  const char* word;  // in the message
};

constexpr const char* kSteps = "steps";
constexpr const char* kBytes = "bytes";
constexpr const char* kDepth = "deeper";

constexpr LimitRow kLimits[] = {
    {"{% for i in range(1000000000) %}{% endfor %}", kSteps},
    {"{{ range(10 ** 15)|list|length }}", kSteps},
    {"{% for i in range(900) %}{% for j in range(900) %}{% endfor %}{% endfor %}", kSteps},
    {"{{ 'x' * 10 ** 9 }}", kBytes},
    {"{{ ('x' * 60000) * 60000 }}", kBytes},
    {"{{ '{:1000000000}'.format('x') }}", kBytes},
    {"{{ '{:01000000000,}'.format(1) }}", kBytes},
    {"{{ ('{0}' * 9999).format('x' * 9999) }}", kBytes},
    {"{{ [1] * 10 ** 12 }}", kSteps},
    {"{{ '' * 10 ** 18 }}{{ 'x' * 10 ** 18 }}", kBytes},
    {"{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
     "{% endfor %}",
     kBytes},
    {"{% set ns = namespace(s='x') %}{% for i in range(99) %}"
     "{% set ns.s = ns.s.replace('x', 'xx') %}{% endfor %}",
     kSteps},
    {"{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
     "{% endfor %}",
     kSteps},
    {"{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}"
     "{% endfor %}{{ ns.s }}",
     kDepth},
    {"{% set ns = namespace(s=[1]) %}{% for i in range(25) %}{% set ns.s = [ns.s, ns.s] %}"
     "{% endfor %}{{ ns.s|tojson }}",
     kSteps},
    {"{% set ns = namespace(s=[1]) %}{% for i in range(25) %}{% set ns.s = [ns.s, ns.s] %}"
     "{% endfor %}{{ ns.s == ns.s }}",
     kSteps},
    {"{% set ns = namespace(s={}) %}{% for i in range(99) %}{% set ns.s = {'a': ns.s} %}"
     "{% endfor %}{{ ns.s|tojson(indent=4) }}",
     kDepth},
    {"{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", kDepth},
    {"{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns.a }}", kDepth},
    {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", kDepth},
    {"{% macro f(x) %}{{ f(x ~ x) }}{% endmacro %}{{ f('ab') }}", kBytes},
    {"{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(20) }}",
     kSteps},
    {"{{ ['x' * 60000, 'y' * 60000]|join }}", kBytes},
    {"{{ range(9000)|join('xxxxxxxxxxxxxxxx') }}", kSteps},
    {"{% for i in range(3) %}{{ 'x' * 30000 }}{% endfor %}", kBytes},
    {"{{ ('x' * 60000)|replace('', 'y') }}", kSteps},
    {"{{ ('x' * 60000)|list|length }}", kSteps},
    {"{{ ('x ' * 30000).split()|length }}", kSteps},
    {"{{ ('x' * 60000)[::2] }}", kSteps},
    {"{{ ('x' * 6000)|indent(70000, true) }}", kBytes},
    {"{{ ('\\n' * 60000)|indent(60, true, true) }}", kBytes},
    {"{{ range(9000)|sort|sort|sort }}", kSteps},
    {"{% for i in range(9000) %}{% macro m() %}{% endmacro %}{% set x = [1, 2, 3] %}{% endfor %}",
     kSteps},
};

TEST(Limits, RefuseWhatGrowsWithoutEnd) {
  for (const LimitRow& row : kLimits) {
    SCOPED_TRACE(row.source);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(
        refused([&] { render(row.source, {}, kSmall); }, {"chat template, line 1", row.word}));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    // Takes milliseconds; the bound allows for sanitizers and a busy machine.
    EXPECT_LT(took.count(), 0.5);
  }
}

TEST(Limits, RefuseTheSameUnderTheDefaultsWithinSomeMemory) {
  for (const LimitRow& row : kLimits) {
    SCOPED_TRACE(row.source);
    try {
      render(row.source);  // a few of them are small enough for the defaults
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("chat template, line 1"), std::string::npos);
    }
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss, 1 << 20) << "kilobytes";
}

TEST(Limits, RefuseDeepNestingInTheSource) {
  const size_t kMany = 20'000;
  const std::string sources[] = {
      "{{ " + repeated("(", kMany) + "1" + repeated(")", kMany) + " }}",
      "{{ " + repeated("[", kMany) + repeated("]", kMany) + " }}",
      "{{ " + repeated("{1:", kMany) + "1" + repeated("}", kMany) + " }}",
      "{{ " + repeated("not ", kMany) + "1 }}",
      "{{ " + repeated("-", kMany) + "1 }}",
      "{{ " + repeated("-+", kMany) + "1 }}",
      "{{ x" + repeated(".a", kMany) + " }}",
      "{{ x" + repeated("[0]", kMany) + " }}",
      "{{ x" + repeated("()", kMany) + " }}",
      "{{ x" + repeated("|upper", kMany) + " }}",
      "{{ x" + repeated("[x", kMany) + repeated("]", kMany) + " }}",
      "{{ f(" + repeated("f(", kMany) + repeated(")", kMany) + ") }}",
      "{{ 1" + repeated(" if 1 else 1", kMany) + " }}",
      "{{ 1" + repeated(" if 1", kMany) + " }}",
      "{{ 1 is " + repeated("eq [1 is ", kMany) + "odd" + repeated("]", kMany) + " }}",
      repeated("{% if 1 %}", kMany) + repeated("{% endif %}", kMany),
      repeated("{% for x in y %}", kMany) + repeated("{% endfor %}", kMany),
      repeated("{% set x %}", kMany),
      repeated("{% macro m() %}", kMany),
      "{% for " + repeated("(", kMany) + "x" + repeated(")", kMany) + " in y %}",
      "{% set x" + repeated("|upper(x", kMany) + repeated(")", kMany) + " %}",
  };
  for (const std::string& source : sources) {
    SCOPED_TRACE(source.substr(0, 40));
    EXPECT_TRUE(refused([&] { ChatTemplate::parse(source, {.source_bytes = 1 << 20}); },
                        {"chat template, line 1: nesting deeper than 64 levels"}));
  }
}

TEST(Limits, AllowLongChainsThatAreNotDeep) {
  EXPECT_EQ(render("{{ 1" + repeated(" + 1", 999) + " }}"), "1000");
  EXPECT_EQ(render("{{ 'a'" + repeated(" ~ 'a'", 999) + " }}").size(), 1000u);
  EXPECT_EQ(render("{{ false" + repeated(" or false", 999) + " }}"), "False");
  EXPECT_EQ(render("{{ 1" + repeated(" and 1", 999) + " }}"), "1");
  EXPECT_EQ(render("{% if 0 %}" + repeated("{% elif 0 %}", 999) + "{% else %}e{% endif %}"), "e");
  EXPECT_EQ(render("{{ [" + repeated("1,", 999) + "]|length }}"), "999");
}

TEST(Limits, AreThoseGiven) {
  EXPECT_EQ(render("{{ 'x' * 100 }}", {}, {.output_bytes = 100}).size(), 100u);
  EXPECT_TRUE(refused([] { render("{{ 'x' * 101 }}", {}, {.output_bytes = 100}); },
                      {"text of more than 100 bytes"}));
  EXPECT_TRUE(refused([] { render("{% for i in range(99) %}{% endfor %}", {}, {.steps = 100}); },
                      {"more than 100 steps"}));
  EXPECT_TRUE(refused([] { ChatTemplate::parse("12345", {.source_bytes = 4}); },
                      {"the source has 5 bytes; at most 4"}));
  EXPECT_TRUE(refused([] { ChatTemplate::parse("{{ ((1)) }}", {.depth = 3}); },
                      {"nesting deeper than 3 levels"}));
  EXPECT_TRUE(refused([] { ChatTemplate::parse("", {.depth = 100'000}); }, {"depth 100000"}));
  EXPECT_TRUE(refused([] { ChatTemplate::parse("", {.steps = 0}); }, {"steps 0"}));
}

TEST(Limits, CountTheInputToo) {
  const std::vector<ChatMessage> messages = {
      {.role = "user", .content = std::string(9 << 20, 'x')}};
  EXPECT_TRUE(refused([&] { ChatTemplate::parse("{{ messages[0].content }}").render(messages); },
                      {"text of more than 4194304 bytes"}));
  const std::string deep = "{\"x\": " + repeated("[", 5000) + repeated("]", 5000) + "}";
  EXPECT_TRUE(refused([&] { render("", deep); }, {"variables_json", "deeper than 64 levels"}));
}

TEST(Limits, LeaveRoomForALongConversation) {
  // A thousand turns of 2 KB under the largest of the templates.
  const ChatTemplate made = ChatTemplate::parse(read_file("templates/llama31.jinja"));
  std::vector<ChatMessage> messages;
  for (int i = 0; i < 1000; ++i) {
    messages.push_back({.role = i % 2 ? "assistant" : "user", .content = std::string(2000, 'x')});
  }
  EXPECT_GT(joined(made.render(messages)).size(), 2'000'000u);
}

TEST(Limits, ALongTextIsSearchedInLinearTime) {
  const std::string text(60'000, 'a');
  const std::string needle = std::string(30'000, 'a') + "b";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(render("{{ n in x }}{{ x.split(n)|length }}{{ x.find(n) }}",
                   Json{{"x", text}, {"n", needle}}.dump()),
            "False1-1");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 0.5);
}

TEST(Limits, ANamespaceThatHoldsItselfIsNoLeak) {
  // This can fail only under the leak checker of the sanitizer builds.
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(render("{% set ns = namespace() %}{% set ns.a = {'b': [ns]} %}"
                     "{% macro m() %}{{ m is callable }}{% endmacro %}{% set ns.m = m %}"
                     "{{ ns.a.b[0].a.b|length }}{{ ns.m() }}"),
              "1True");
  }
}

}  // namespace
}  // namespace tessera::testing
