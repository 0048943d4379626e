// A parser of regular expressions by recursive descent.
// SPDX-License-Identifier: MIT
#include "grammar/regex.h"

#include <tuple>
#include <utility>
#include <vector>

#include "core/text.h"
#include "core/utf8.h"
#include "tessera/core/error.h"

namespace tessera::grammar {
namespace {

const CodeSet kDigit{{'0', '9'}};
const CodeSet kWord{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CodeSet kSpace{{'\t', '\r'}, {' ', ' '}};
const CodeSet kAscii{{0, 0x7F}};
const CodeSet kLineEnds{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class RegexParser {
 public:
  RegexParser(Rules& rules, std::string_view pattern, RegexUse use)
      : rules_(rules), pattern_(pattern), is_json_(use == RegexUse::json_string) {}

  ExprId parse() {
    rules_.budget().check_source(pattern_);
    const ExprId result = alternatives(0);
    if (!is_at_end()) refuse("')' without '('");
    return result;
  }

 private:
  [[noreturn]] void refuse(std::string_view why) const {
    fail(concat("regex: ", why, " at byte ", at_, " of ", in_quotes(pattern_)));
  }
  bool is_at_end() const { return at_ == pattern_.size(); }
  bool is_next(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!is_next(text)) return false;
    at_ += text.size();
    return true;
  }
  char32_t take_code() {
    if (is_at_end()) refuse("ends too early");
    const unicode::Character character = unicode::read_character(pattern_.substr(at_));
    if (!character.is_valid()) refuse("is not UTF-8");
    at_ += character.bytes;
    return character.code;
  }

  ExprId character(const CodeSet& set) {
    return is_json_ ? json_character(rules_, set) : rules_.character(set);
  }

  // `a|b|c`. Anchors are known at the ends of the outermost alternatives only.
  ExprId alternatives(int64_t depth) {
    rules_.budget().check_nesting(depth);
    std::vector<ExprId> parts;
    do {
      parts.push_back(alternative(depth));
    } while (take("|"));
    return rules_.any_of(std::move(parts));
  }

  ExprId alternative(int64_t depth) {
    const bool is_outermost = depth == 0;
    std::vector<ExprId> parts;
    const bool is_anchored = is_outermost && take("^");
    if (is_json_ && is_outermost && !is_anchored) parts.push_back(anything());
    bool has_end = false;
    while (!is_at_end() && !is_next("|") && !is_next(")")) {
      if (is_outermost && take("$")) {
        has_end = true;
        if (!is_at_end() && !is_next("|")) refuse("'$' before the end of an alternative");
        break;
      }
      parts.push_back(repetition(depth));
    }
    if (is_json_ && is_outermost && !has_end) parts.push_back(anything());
    return rules_.sequence(std::move(parts));
  }

  ExprId anything() { return rules_.repeat(character(CodeSet::all()), 0, kNoEnd); }

  ExprId repetition(int64_t depth) {
    const ExprId part = atom(depth);
    int64_t least = 0, most = kNoEnd;
    if (take("*")) {
    } else if (take("+")) {
      least = 1;
    } else if (take("?")) {
      most = 1;
    } else if (take("{")) {
      std::tie(least, most) = bounds();
    } else {
      return part;
    }
    if (is_next("+")) refuse("possessive quantifiers are not supported:");
    take("?");  // lazy: the same texts match
    if (is_next("*") || is_next("+") || is_next("?") || is_next("{")) {
      refuse("two quantifiers in a row");
    }
    return rules_.repeat(part, least, most);
  }

  int64_t number() {
    const size_t first = at_;
    int64_t value = 0;
    while (!is_at_end() && pattern_[at_] >= '0' && pattern_[at_] <= '9') {
      value = value * 10 + (pattern_[at_++] - '0');
      rules_.budget().check_repetition(value, "a repetition");
    }
    if (at_ == first) refuse("'{' is a repetition such as {2,5}; write \\{ for the character:");
    return value;
  }

  std::pair<int64_t, int64_t> bounds() {
    const int64_t least = number();
    if (take("}")) return {least, least};
    if (!take(",")) refuse("',' or '}' expected in a repetition");
    if (take("}")) return {least, kNoEnd};
    const int64_t most = number();
    if (!take("}")) refuse("'}' expected in a repetition");
    if (most < least) refuse(concat("a repetition from ", least, " to ", most));
    return {least, most};
  }

  ExprId atom(int64_t depth) {
    if (take("(")) return group(depth);
    if (take("[")) return character(char_class());
    if (take(".")) {
      return character(is_json_ ? kLineEnds.inverse() : CodeSet{{'\n', '\n'}}.inverse());
    }
    if (take("\\")) {
      const Escape escape = read_escape();
      return character(escape.set);
    }
    if (is_next("^") || is_next("$")) {
      refuse("an anchor within a pattern or group is not supported:");
    }
    if (is_next("*") || is_next("+") || is_next("?") || is_next("{")) {
      refuse("a quantifier without anything to repeat");
    }
    const char32_t code = take_code();
    return character({{code, code}});
  }

  ExprId group(int64_t depth) {
    if (take("?")) {
      if (!take(":")) refuse("of the groups that begin with (? only (?: is supported:");
    } else if (is_next("*")) {
      refuse("verbs are not supported:");
    }
    const ExprId inner = alternatives(depth + 1);
    if (!take(")")) refuse("'(' without ')'");
    return inner;
  }

  struct Escape {
    CodeSet set;
    bool is_one = false;  // one character, which may begin or end a range
    bool is_shorthand = false;
  };

  static Escape one(char32_t code) { return {.set = {{code, code}}, .is_one = true}; }
  Escape shorthand(const CodeSet& set, bool is_inverse) const {
    if (!is_inverse) return {.set = set, .is_shorthand = true};
    return {.set = is_json_ ? kAscii.without(set) : set.inverse(), .is_shorthand = true};
  }

  char32_t hex(int least, int most) {
    char32_t value = 0;
    int count = 0;
    for (; count < most && !is_at_end(); ++count, ++at_) {
      const char c = pattern_[at_];
      if (c >= '0' && c <= '9') {
        value = value * 16 + static_cast<char32_t>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        value = value * 16 + static_cast<char32_t>(c - 'a' + 10);
      } else if (c >= 'A' && c <= 'F') {
        value = value * 16 + static_cast<char32_t>(c - 'A' + 10);
      } else {
        break;
      }
    }
    if (count < least) refuse("too few hexadecimal digits");
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) refuse("not a character:");
    return value;
  }

  Escape read_escape() {
    if (is_at_end()) refuse("ends with '\\'");
    const char32_t code = take_code();
    switch (code) {
      case 'd': return shorthand(kDigit, false);
      case 'D': return shorthand(kDigit, true);
      case 'w': return shorthand(kWord, false);
      case 'W': return shorthand(kWord, true);
      case 's': return shorthand(kSpace, false);
      case 'S': return shorthand(kSpace, true);
      case 't': return one('\t');
      case 'n': return one('\n');
      case 'r': return one('\r');
      case 'f': return one('\f');
      case 'v': return one('\v');
      case 'x': {
        if (!take("{")) return one(hex(2, 2));
        const char32_t value = hex(1, 6);
        if (!take("}")) refuse("'}' expected after \\x{");
        return one(value);
      }
      case 'u': return one(hex(4, 4));
      default: break;
    }
    const bool is_letter = (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z');
    if (is_letter || (code >= '0' && code <= '9') || code >= 0x80) {
      refuse(concat("\\", static_cast<char>(code < 0x80 ? code : '?'), " is not supported:"));
    }
    return one(code);
  }

  CodeSet char_class() {
    const bool is_inverse = take("^");
    if (is_next("]")) refuse("an empty class; write \\] for the character:");
    std::vector<CodeRange> ranges;
    bool has_shorthand = false;
    while (!take("]")) {
      if (is_next("[:") || is_next("[.") || is_next("[=")) {
        refuse("named classes such as [:alpha:] are not supported:");
      }
      const Escape first = class_item();
      has_shorthand = has_shorthand || first.is_shorthand;
      if (!is_next("-") || pattern_.substr(at_).starts_with("-]")) {
        const auto& added = first.set.ranges();
        ranges.insert(ranges.end(), added.begin(), added.end());
        continue;
      }
      take("-");
      const Escape last = class_item();
      if (!first.is_one || !last.is_one) refuse("a range needs a character at either end:");
      const CodeRange range{first.set.ranges()[0].first, last.set.ranges()[0].first};
      if (range.first > range.last) refuse("a range that ends before it begins:");
      ranges.push_back(range);
    }
    const CodeSet set(std::move(ranges));
    if (!is_inverse) return set;
    return is_json_ && has_shorthand ? kAscii.without(set) : set.inverse();
  }

  Escape class_item() {
    if (take("\\")) return read_escape();
    return one(take_code());
  }

  Rules& rules_;
  std::string_view pattern_;
  bool is_json_;
  size_t at_ = 0;
};

}  // namespace

ExprId parse_regex(Rules& rules, std::string_view pattern, RegexUse use) {
  return RegexParser(rules, pattern, use).parse();
}

ExprId json_character(Rules& rules, const CodeSet& set) {
  static const CodeSet kEscaped{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  std::vector<ExprId> parts;
  const CodeSet plain = set.without(kEscaped);
  if (!plain.is_empty()) parts.push_back(rules.character(plain));
  const CodeSet escaped = set.without(plain);
  for (const CodeRange& range : escaped.ranges()) {
    for (char32_t code = range.first; code <= range.last; ++code) {
      constexpr std::string_view kCodes = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
      const size_t known = code < 0x80 ? kCodes.find(static_cast<char>(code)) : kCodes.npos;
      constexpr std::string_view kHex = "0123456789abcdef";
      std::string text = "\\";
      if (known != kCodes.npos) {
        text += kNames[known];
      } else {
        text += concat("u00", kHex[code >> 4], kHex[code & 15]);
      }
      parts.push_back(rules.text(text));
    }
  }
  return rules.any_of(std::move(parts));
}

}  // namespace tessera::grammar
