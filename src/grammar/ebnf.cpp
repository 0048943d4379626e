// A parser of EBNF by recursive descent.
// SPDX-License-Identifier: MIT
#include "grammar/ebnf.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/text.h"
#include "core/utf8.h"
#include "tessera/core/error.h"

namespace tessera::grammar {
namespace {

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class EbnfParser {
 public:
  EbnfParser(Rules& rules, std::string_view text) : rules_(rules), text_(text) {}

  RuleId parse() {
    rules_.budget().check_source(text_);
    for (skip_blanks(); !is_at_end(); skip_blanks()) parse_rule();
    const auto root = numbers_.find("root");
    if (root == numbers_.end()) fail("grammar: has no rule 'root'; write root ::= ...");
    for (const auto& [name, rule] : numbers_) {
      if (rules_.body(rule) < 0) {
        fail(concat("grammar: rule ", in_quotes(name), " is used and not defined"));
      }
    }
    return root->second;
  }

 private:
  [[noreturn]] void refuse(std::string_view why) const {
    const auto line = 1 + std::ranges::count(text_.substr(0, at_), '\n');
    fail(concat("grammar: line ", line, ": ", why));
  }
  bool is_at_end() const { return at_ == text_.size(); }
  bool is_next(std::string_view part) const { return text_.substr(at_).starts_with(part); }
  bool take(std::string_view part) {
    if (!is_next(part)) return false;
    at_ += part.size();
    return true;
  }
  void skip_blanks() {
    while (!is_at_end()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string name() {
    const size_t first = at_;
    while (!is_at_end() && is_name_character(text_[at_])) ++at_;
    return std::string(text_.substr(first, at_ - first));
  }
  RuleId rule_named(const std::string& name) {
    const auto [place, is_new] = numbers_.try_emplace(name, -1);
    if (is_new) place->second = rules_.add_rule(name);
    return place->second;
  }
  // Whether a name at this place begins the next rule.
  bool begins_rule() {
    const size_t before = at_;
    name();
    skip_blanks();
    const bool is_rule = is_next("::=");
    at_ = before;
    return is_rule;
  }

  void parse_rule() {
    const std::string rule_name = name();
    if (rule_name.empty()) refuse(concat("expected a rule, found ", in_quotes(excerpt())));
    skip_blanks();
    if (!take("::=")) refuse(concat("expected ::= after ", in_quotes(rule_name)));
    const RuleId rule = rule_named(rule_name);
    if (rules_.body(rule) >= 0) refuse(concat("rule ", in_quotes(rule_name), " is defined twice"));
    rules_.define(rule, alternatives(0));
  }

  std::string_view excerpt() const { return text_.substr(at_, 16); }

  ExprId alternatives(int64_t depth) {
    rules_.budget().check_nesting(depth);
    std::vector<ExprId> parts;
    do {
      parts.push_back(sequence(depth));
    } while (take("|"));
    return rules_.any_of(std::move(parts));
  }

  ExprId sequence(int64_t depth) {
    std::vector<ExprId> parts;
    for (skip_blanks(); !is_at_end(); skip_blanks()) {
      if (is_next("|") || is_next(")")) break;
      if (is_name_character(text_[at_]) && begins_rule()) break;
      parts.push_back(repetition(depth));
    }
    return rules_.sequence(std::move(parts));
  }

  ExprId repetition(int64_t depth) {
    const ExprId part = atom(depth);
    if (take("*")) return rules_.repeat(part, 0, kNoEnd);
    if (take("+")) return rules_.repeat(part, 1, kNoEnd);
    if (take("?")) return rules_.optional(part);
    if (!take("{")) return part;
    const int64_t least = number();
    int64_t most = least;
    if (take(",")) most = is_next("}") ? kNoEnd : number();
    if (!take("}")) refuse("'}' expected in a repetition");
    if (most != kNoEnd && most < least) refuse(concat("a repetition from ", least, " to ", most));
    return rules_.repeat(part, least, most);
  }

  int64_t number() {
    const size_t first = at_;
    int64_t value = 0;
    while (!is_at_end() && text_[at_] >= '0' && text_[at_] <= '9') {
      value = value * 10 + (text_[at_++] - '0');
      rules_.budget().check_repetition(value, "a repetition");
    }
    if (at_ == first) refuse("a number expected in a repetition");
    return value;
  }

  ExprId atom(int64_t depth) {
    if (take("\"")) return literal();
    if (take("[")) return rules_.character(char_class());
    if (take("(")) {
      const ExprId inner = alternatives(depth + 1);
      if (!take(")")) refuse("'(' without ')'");
      return inner;
    }
    if (take(".")) return rules_.character(CodeSet::all());
    const std::string rule = name();
    if (rule.empty()) refuse(concat("not expected here: ", in_quotes(excerpt())));
    return rules_.call(rule_named(rule));
  }

  char32_t code() {
    if (is_at_end()) refuse("ends within a literal or class");
    const unicode::Character character = unicode::read_character(text_.substr(at_));
    if (!character.is_valid()) refuse("is not UTF-8");
    at_ += character.bytes;
    if (character.code == '\n') refuse("a literal or class has no end; write \\n for a newline");
    return character.code;
  }

  char32_t code_or_escape() {
    const char32_t first = code();
    if (first != '\\') return first;
    const char32_t escaped = code();
    switch (escaped) {
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case 'x': return hex(2);
      case 'u': return hex(4);
      case 'U': return hex(8);
      case '"':
      case '\\':
      case '[':
      case ']':
      case '^':
      case '-': return escaped;
      default: refuse("unknown escape; known: \\n \\r \\t \\\" \\\\ \\[ \\] \\^ \\- \\x \\u \\U");
    }
  }

  char32_t hex(int count) {
    uint64_t value = 0;
    for (int i = 0; i < count; ++i) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      const char32_t digit = code();
      const char32_t lower = digit >= 'A' && digit <= 'F' ? digit - 'A' + 'a' : digit;
      const size_t at = lower < 0x80 ? kDigits.find(static_cast<char>(lower)) : kDigits.npos;
      if (at == kDigits.npos) refuse(concat(count, " hexadecimal digits expected"));
      value = value * 16 + at;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) refuse("not a character");
    return static_cast<char32_t>(value);
  }

  ExprId literal() {
    std::vector<ExprId> parts;
    std::string plain;
    const auto end_plain = [&] {
      if (!plain.empty()) parts.push_back(rules_.text(std::exchange(plain, {})));
    };
    while (!take("\"")) {
      const char32_t next = code_or_escape();
      if (next < 0x80) {
        plain += static_cast<char>(next);
      } else {
        end_plain();
        parts.push_back(rules_.character({{next, next}}));
      }
    }
    end_plain();
    return rules_.sequence(std::move(parts));
  }

  CodeSet char_class() {
    const bool is_inverse = take("^");
    if (is_next("]")) refuse("an empty class");
    std::vector<CodeRange> ranges;
    while (!take("]")) {
      const char32_t first = code_or_escape();
      if (!is_next("-") || is_next("-]")) {
        ranges.push_back({first, first});
        continue;
      }
      take("-");
      const char32_t last = code_or_escape();
      if (last < first) refuse("a range that ends before it begins");
      ranges.push_back({first, last});
    }
    const CodeSet set(std::move(ranges));
    return is_inverse ? set.inverse() : set;
  }

  Rules& rules_;
  std::string_view text_;
  size_t at_ = 0;
  std::map<std::string, RuleId> numbers_;
};

}  // namespace

RuleId parse_ebnf(Rules& rules, std::string_view text) { return EbnfParser(rules, text).parse(); }

}  // namespace tessera::grammar
