// Strings, whitespace and values of JSON.
// SPDX-License-Identifier: MIT
#include "grammar/json_parts.h"

#include <utility>

#include "core/text.h"
#include "core/utf8.h"
#include "tessera/core/error.h"

namespace tessera::grammar {
namespace {

constexpr int32_t kMostWhitespace = 64;
const CodeSet kEscapedCodes{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};

}  // namespace

JsonParts::JsonParts(Rules& rules, int32_t max_whitespace)
    : rules_(rules), max_whitespace_(max_whitespace) {
  if (max_whitespace < 0 || max_whitespace > kMostWhitespace) {
    fail(concat("constraint: max_whitespace is ", max_whitespace, "; give 0 to ", kMostWhitespace));
  }
}

ExprId JsonParts::blank() {
  if (max_whitespace_ == 0) return rules_.text("");
  return shared("whitespace", [&] {
    const CodeSet blanks{{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}};
    return rules_.repeat(rules_.character(blanks), 0, max_whitespace_);
  });
}

ExprId JsonParts::open(std::string_view bracket) {
  return rules_.sequence({rules_.text(bracket), blank()});
}
ExprId JsonParts::close(std::string_view bracket) {
  return rules_.sequence({blank(), rules_.text(bracket)});
}
ExprId JsonParts::comma() { return rules_.sequence({blank(), rules_.text(","), blank()}); }
ExprId JsonParts::colon() { return rules_.sequence({blank(), rules_.text(":"), blank()}); }

// Escapes of surrogates come in pairs, so that every string is text.
ExprId JsonParts::character() {
  const auto one_of = [&](std::initializer_list<CodeRange> ranges) {
    return rules_.character(CodeSet(ranges));
  };
  const ExprId hex = one_of({{'0', '9'}, {'A', 'F'}, {'a', 'f'}});
  const ExprId d = one_of({{'D', 'D'}, {'d', 'd'}});
  const ExprId two = rules_.repeat(hex, 2, 2), three = rules_.repeat(hex, 3, 3);
  const ExprId u = rules_.text("u");
  const ExprId not_d = one_of({{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}});
  const ExprId high = one_of({{'8', '9'}, {'A', 'B'}, {'a', 'b'}});
  const ExprId low = one_of({{'C', 'F'}, {'c', 'f'}});
  const ExprId escape = rules_.any_of(
      {one_of({{'"', '"'},
               {'/', '/'},
               {'\\', '\\'},
               {'b', 'b'},
               {'f', 'f'},
               {'n', 'n'},
               {'r', 'r'},
               {'t', 't'}}),
       rules_.sequence({u, not_d, three}), rules_.sequence({u, d, one_of({{'0', '7'}}), two}),
       rules_.sequence({u, d, high, two, rules_.text("\\u"), d, low, two})});
  return rules_.any_of(
      {rules_.character(kEscapedCodes.inverse()), rules_.sequence({rules_.text("\\"), escape})});
}

ExprId JsonParts::quoted(ExprId content) {
  const ExprId quote = rules_.text("\"");
  return rules_.sequence({quote, content, quote});
}

ExprId JsonParts::string() {
  return shared("string", [&] { return quoted(rules_.repeat(character(), 0, kNoEnd)); });
}

ExprId JsonParts::string(int64_t least, std::optional<int64_t> most) {
  if (least == 0 && !most) return string();
  const ExprId one = shared("character", [&] { return character(); });
  return quoted(rules_.repeat(one, least, most.value_or(kNoEnd)));
}

// Keys are written without escapes, so that each has one spelling. Vertex 2 is where a key has left
// all names, vertex 3 the beginning of the key; the others follow the names.
ExprId JsonParts::key_except(const std::vector<std::string>& names) {
  const ExprId quote = rules_.text("\"");
  constexpr int32_t kFree = 2, kRoot = 3;
  struct Node {
    std::map<char32_t, int32_t> children = {};
    bool is_name = false;
  };
  std::vector<Node> nodes(1);
  for (const std::string& name : names) {
    size_t at = 0;
    for (std::string_view rest = name; !rest.empty();) {
      const unicode::Character next = unicode::read_character(rest);
      rest.remove_prefix(next.bytes);
      const auto [place, is_new] =
          nodes[at].children.try_emplace(next.code, static_cast<int32_t>(nodes.size()));
      at = static_cast<size_t>(place->second);
      if (is_new) nodes.emplace_back();
    }
    nodes[at].is_name = true;
  }
  const CodeSet plain = kEscapedCodes.inverse();
  std::vector<Expr::Arc> arcs{{kGraphStart, kRoot, quote},
                              {kFree, kFree, rules_.character(plain)},
                              {kFree, kGraphEnd, quote}};
  for (size_t i = 0; i < nodes.size(); ++i) {
    const int32_t vertex = kRoot + static_cast<int32_t>(i);
    if (!nodes[i].is_name) arcs.push_back({vertex, kGraphEnd, quote});
    std::vector<CodeRange> taken;
    for (const auto& [code, child] : nodes[i].children) {
      taken.push_back({code, code});
      const CodeSet one = CodeSet({{code, code}}).without(kEscapedCodes);
      if (!one.is_empty()) arcs.push_back({vertex, kRoot + child, rules_.character(one)});
    }
    arcs.push_back({vertex, kFree, rules_.character(plain.without(CodeSet(std::move(taken))))});
  }
  return rules_.graph(std::move(arcs));
}

ExprId JsonParts::boolean() { return rules_.any_of({rules_.text("true"), rules_.text("false")}); }

ExprId JsonParts::null() { return rules_.text("null"); }

ExprId JsonParts::value() {
  return shared("value", [&] {
    return rules_.any_of({any_object(), any_array(), string(), number(), boolean(), null()});
  });
}

ExprId JsonParts::any_object() {
  return shared("object", [&] {
    const ExprId member = rules_.sequence({string(), colon(), value()});
    const ExprId more = rules_.repeat(rules_.sequence({comma(), member}), 0, kNoEnd);
    return rules_.sequence(
        {open("{"), rules_.optional(rules_.sequence({member, more})), close("}")});
  });
}

ExprId JsonParts::any_array() {
  return shared("array", [&] { return array(value(), 0, std::nullopt); });
}

ExprId JsonParts::array(ExprId item, int64_t least, std::optional<int64_t> most) {
  const ExprId next = rules_.sequence({comma(), item});
  if (most == 0) return rules_.sequence({open("["), close("]")});
  const int64_t most_more = most ? *most - 1 : kNoEnd;
  const ExprId more = rules_.repeat(next, std::max<int64_t>(0, least - 1), most_more);
  ExprId items = rules_.sequence({item, more});
  if (least == 0) items = rules_.optional(items);
  return rules_.sequence({open("["), items, close("]")});
}

}  // namespace tessera::grammar
