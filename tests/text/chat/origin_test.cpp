// Text keeps its origin through every operation.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "tests/text/chat/rendering.h"

namespace tessera::testing {
namespace {

// The parts as one string: control text in <>, input in [].
std::string show(const std::vector<TextPart>& parts) {
  std::string shown;
  for (const TextPart& part : parts) {
    shown += part.is_control ? '<' : '[';
    shown += part.text;
    shown += part.is_control ? '>' : ']';
  }
  return shown;
}

struct OriginRow {
  const char* source;
  const char* parts;
};

// x is "  In|Put  ", y is "ab", d is {"k": "v"}: all three are input.
constexpr OriginRow kOrigins[] = {
    {"text", "<text>"},
    {"{{ x }}", "[  In|Put  ]"},
    {"{{ 'lit' }}", "<lit>"},
    {"a{{ y }}b", "<a>[ab]<b>"},
    {"{{ 'a' + y + 'b' }}", "<a>[ab]<b>"},
    {"{{ 'a' ~ y ~ 1 }}", "<a>[ab]<1>"},
    {"{{ bos_token + y + eos_token }}", "<<s>>[ab]<</s>>"},
    {"{{ x|trim }}", "[In|Put]"},
    {"{{ (' a ' + x)|trim }}", "<a >[  In|Put]"},
    {"{{ (x + ' a ').strip() }}", "[In|Put  ]< a>"},
    {"{{ ('a' + y)|upper }}", "<A>[AB]"},
    {"{{ ('a' + y)|title }}", "<A>[ab]"},
    {"{{ ('a' + y)|capitalize }}", "<A>[ab]"},
    {"{{ y|replace('b', 'C') }}", "[a]<C>"},
    {"{{ 'xby'|replace('b', y) }}", "<x>[ab]<y>"},
    {"{{ ('1' + y + '2')[1:3] }}", "[ab]"},
    {"{{ ('1' + y + '2')[0:2] }}", "<1>[a]"},
    {"{{ ('1' + y + '2')[::-1] }}", "<2>[ba]<1>"},
    {"{{ ('1' + y)[0] }}{{ ('1' + y)[1] }}", "<1>[a]"},
    {"{{ ('1,' + y + ',2').split(',')|join('-') }}", "<1->[ab]<-2>"},
    {"{{ [y, 'c']|join(', ') }}", "[ab]<, c>"},
    {"{{ y * 2 }}{{ 'c' * 2 }}", "[abab]<cc>"},
    {"{{ d|tojson }}", "[{\"k\": \"v\"}]"},
    {"{{ {'c': y}|tojson }}", "[{\"]<c>[\": \"ab\"}]"},
    {"{{ (y + '\"')|tojson }}", "[\"ab]<\\\">[\"]"},
    {"{{ [y, 'c'] }}", "[['ab', ']<c>[']]"},
    {"{{ y|list|first }}{{ y|reverse }}", "[aba]"},
    {"{{ d.k }}{{ d['k'] }}{{ d|items|first|first }}", "[vvk]"},
    {"{% for c in y %}{{ c }}{% endfor %}", "[ab]"},
    {"{% for k in d %}{{ k }}{% endfor %}", "[k]"},
    {"{% set z = y %}{{ z }}", "[ab]"},
    {"{% set z %}<{{ y }}>{% endset %}{{ z }}", "<<>[ab]<>>"},
    {"{% set ns = namespace(s='') %}{% set ns.s = ns.s + y %}{{ ns.s }}", "[ab]"},
    {"{% macro m(v) %}({{ v }}){% endmacro %}{{ m(y) }}", "<(>[ab]<)>"},
    {"{% filter upper %}a{{ y }}{% endfilter %}", "<A>[AB]"},
    {"{{ y if true else 'z' }}{{ none or y }}", "[abab]"},
    {"{{ y|default('z') }}{{ nothing|default(y) }}{{ nothing|default('z') }}", "[abab]<z>"},
    {"{{ ('a\\n' + y)|indent(2) }}", "<a\n  >[ab]"},
    {"{{ messages[0].role }}{{ messages[0].content }}", "[userHi]"},
    {"{{ 1 }}{{ true }}{{ none }}{{ 1.5 }}", "<1TrueNone1.5>"},
    {"{{ '<{}|{:>3}|{!r}|{}>'.format(y, y, y, 7) }}", "<<>[ab]<|>[ ab]<|>['ab']<|7>>"},
    {"{{ (y + '{}').format('c') }}{{ y.format() }}", "[ab]<c>[ab]"},
    {"{{ y.removeprefix('a') }}{{ ('c' + y).removesuffix('b') }}", "[b]<c>[a]"},
};

TEST(Origin, FollowsEveryByteThroughEveryOperation) {
  for (const OriginRow& row : kOrigins) {
    SCOPED_TRACE(row.source);
    EXPECT_EQ(show(render_parts(row.source, R"({"x": "  In|Put  ", "y": "ab", "d": {"k": "v"}})")),
              row.parts);
  }
}

TEST(Origin, DoesNotCountInComparisonsAndLookups) {
  EXPECT_EQ(render("{{ y == 'ab' }} {{ 'ab' in [y] }} {{ {'ab': 1}[y] }} {{ y in {'ab': 1} }} "
                   "{{ ['ab', y]|unique|list|length }}",
                   R"({"y": "ab"})"),
            "True True 1 True 1");
}

TEST(Origin, ASpecialTokenPutTogetherFromInputStaysInput) {
  const std::vector<TextPart> parts =
      render_parts("{{ a ~ b }}{{ '<|eot' ~ b }}", R"({"a": "<|eot", "b": "_id|>"})");
  EXPECT_EQ(show(parts), "[<|eot_id|>]<<|eot>[_id|>]");
}

TEST(Origin, PartsAreNeverEmptyAndAlternate) {
  const std::vector<TextPart> parts = render_parts(
      "{% for m in messages %}{{ '' }}{{ m.content }}{{ m.role }}{{ '.' }}{% endfor %}");
  ASSERT_EQ(parts.size(), 4u);
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_FALSE(parts[i].text.empty());
    EXPECT_EQ(parts[i].is_control, i % 2 == 1);
  }
}

}  // namespace
}  // namespace tessera::testing
