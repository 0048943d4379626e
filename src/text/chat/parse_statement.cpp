// Statements, assignment targets, and access to the tokens.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <utility>

#include "core/text.h"
#include "text/chat/parser.h"
#include "text/chat/render_state.h"

namespace tessera::chat {
namespace {

template <class Node>
StatementPtr make(int line, Node node) {
  return std::make_unique<Statement>(line, std::move(node));
}

std::string show(const Token& token) {
  switch (token.kind) {
    case TokenKind::data: return "text";
    case TokenKind::print_begin: return "'{{'";
    case TokenKind::print_end: return "'}}'";
    case TokenKind::block_begin: return "'{%'";
    case TokenKind::block_end: return "'%}'";
    case TokenKind::string: return "a string";
    case TokenKind::integer:
    case TokenKind::real: return "a number";
    case TokenKind::end: return "the template's end";
    default: return concat("'", token.text.substr(0, 60), "'");
  }
}

}  // namespace

void Parser::fail(std::string_view what, std::source_location where) const {
  fail_at(current().line, concat(what, "; found ", show(current())), where);
}

void Parser::fail_depth() const {
  fail_at(current().line, concat("nesting deeper than ", max_depth_, " levels"));
}

// Stays at the last token, which is `end`.
const Token& Parser::take() {
  const Token& token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::skip_name(std::string_view word) {
  if (!current().is_name(word)) return false;
  take();
  return true;
}

bool Parser::skip_symbol(std::string_view symbol) {
  if (!current().is_symbol(symbol)) return false;
  take();
  return true;
}

void Parser::expect_symbol(std::string_view symbol) {
  if (!skip_symbol(symbol)) fail(concat("'", symbol, "' is expected"));
}

void Parser::expect_name(std::string_view word) {
  if (!skip_name(word)) fail(concat("'", word, "' is expected"));
}

void Parser::expect_kind(TokenKind kind, std::string_view what) {
  if (current().kind != kind) fail(concat("'", what, "' is expected"));
  take();
}

std::string Parser::take_name(std::string_view what) {
  if (current().kind != TokenKind::name) fail(concat(what, " is expected"));
  return take().text;
}

int Parser::intern(const std::string& name) {
  const auto [it, is_new] = ids_.try_emplace(name, static_cast<int>(names_.size()));
  if (is_new) names_.push_back(name);
  return it->second;
}

ParsedTemplate Parser::run() {
  ParsedTemplate parsed;
  parsed.loop_id = intern("loop");
  parsed.body = parse_block({});
  parsed.names = std::move(names_);
  return parsed;
}

Block Parser::parse_block(std::initializer_list<std::string_view> ends) {
  const Level level(*this);
  Block block;
  while (current().kind != TokenKind::end) {
    const int line = current().line;
    if (current().kind == TokenKind::data) {
      block.push_back(make(line, TextStatement{std::make_shared<const Text>(take().text, true)}));
    } else if (current().kind == TokenKind::print_begin) {
      take();
      block.push_back(make(line, PrintStatement{parse_tuple(true, false)}));
      expect_kind(TokenKind::print_end, "}}");
    } else {
      expect_kind(TokenKind::block_begin, "{%");
      const auto is_current = [this](std::string_view end) { return current().is_name(end); };
      if (std::ranges::any_of(ends, is_current)) return block;
      if (skip_name("generation")) {
        // Marks the assistant's text for training; its body is rendered as it is.
        block.push_back(make(line, WithStatement{{}, parse_body("endgeneration")}));
      } else {
        block.push_back(parse_statement());
      }
      expect_kind(TokenKind::block_end, "%}");
    }
  }
  if (ends.size() > 0) fail(concat("'{% ", *(ends.end() - 1), " %}' is missing"));
  return block;
}

Block Parser::parse_branch(std::initializer_list<std::string_view> ends) {
  skip_symbol(":");
  expect_kind(TokenKind::block_end, "%}");
  return parse_block(ends);
}

Block Parser::parse_body(std::string_view end) {
  Block body = parse_branch({end});
  take();
  return body;
}

StatementPtr Parser::parse_statement() {
  const int line = current().line;
  const std::string tag = current().text;
  if (current().kind != TokenKind::name) fail("the name of a tag is expected");
  take();
  if (tag == "set") return parse_set(line);
  if (tag == "for") return parse_for(line);
  if (tag == "if") return parse_if(line);
  if (tag == "macro") return parse_macro(line);
  if (tag == "with") return parse_with(line);
  if (tag == "break" || tag == "continue") return parse_jump(line, tag == "break");
  if (tag == "filter") {
    FilterStatement node;
    node.filters.push_back(parse_filter(nullptr));
    for (ExpressionPtr& filter : parse_block_filters()) node.filters.push_back(std::move(filter));
    node.body = parse_body("endfilter");
    return make(line, std::move(node));
  }
  static constexpr std::string_view kRefused[] = {"call",    "include", "import",    "from",
                                                  "extends", "block",   "autoescape"};
  if (std::ranges::find(kRefused, tag) != std::end(kRefused)) {
    fail_at(line, concat("tag '", tag, "' is not supported in chat templates"));
  }
  fail_at(line, concat("unknown tag '", tag.substr(0, 60), "'"));
}

std::vector<ExpressionPtr> Parser::parse_block_filters() {
  std::vector<ExpressionPtr> filters;
  while (skip_symbol("|")) filters.push_back(parse_filter(nullptr));
  return filters;
}

Target Parser::parse_target(bool with_fields) {
  if (skip_symbol("(")) {
    const Level level(*this);
    Target target = parse_targets(false, {});
    expect_symbol(")");
    return target;
  }
  const std::string name = take_name("a name to assign to");
  static constexpr std::string_view kReserved[] = {"true", "false", "none",
                                                   "True", "False", "None"};
  if (std::ranges::find(kReserved, name) != std::end(kReserved)) {
    fail(concat("'", name, "' can not be assigned to"));
  }
  Target target{.id = intern(name)};
  if (with_fields && skip_symbol(".")) target.field = take_name("a field's name behind '.'");
  return target;
}

Target Parser::parse_targets(bool with_fields, std::string_view stop) {
  Target first = parse_target(with_fields);
  if (!current().is_symbol(",")) return first;
  Target several;
  several.parts.push_back(std::move(first));
  while (skip_symbol(",")) {
    if (current().is_symbol(")") || current().is_symbol("=")) break;
    if (!stop.empty() && current().is_name(stop)) break;
    several.parts.push_back(parse_target(with_fields));
  }
  return several;
}

StatementPtr Parser::parse_set(int line) {
  Target target = parse_targets(true, {});
  if (skip_symbol("=")) {
    return make(line, SetStatement{std::move(target), parse_tuple(true, false)});
  }
  std::vector<ExpressionPtr> filters = parse_block_filters();
  Block body = parse_body("endset");
  return make(line, SetBlockStatement{std::move(target), std::move(filters), std::move(body)});
}

StatementPtr Parser::parse_for(int line) {
  ForStatement node;
  node.target = parse_targets(false, "in");
  expect_name("in");
  node.items = parse_tuple(false, false, "recursive");
  if (skip_name("if")) node.test = parse_expression();
  if (current().is_name("recursive")) fail("recursive loops are not supported");
  ++num_loops_;
  node.body = parse_branch({"else", "endfor"});
  --num_loops_;
  if (take().text == "else") node.otherwise = parse_body("endfor");
  return make(line, std::move(node));
}

StatementPtr Parser::parse_if(int line) {
  IfStatement node;
  do {
    ExpressionPtr test = parse_tuple(false, false);
    Block body = parse_branch({"elif", "else", "endif"});
    node.branches.emplace_back(std::move(test), std::move(body));
  } while (skip_name("elif"));
  if (take().text == "else") node.otherwise = parse_body("endif");
  return make(line, std::move(node));
}

StatementPtr Parser::parse_macro(int line) {
  MacroStatement node;
  node.name = take_name("the name of a macro");
  node.id = intern(node.name);
  expect_symbol("(");
  while (!current().is_symbol(")")) {
    Parameter parameter;
    parameter.name = take_name("the name of a parameter");
    parameter.id = intern(parameter.name);
    if (skip_symbol("=")) {
      parameter.standard = parse_expression();
    } else if (!node.parameters.empty() && node.parameters.back().standard) {
      fail("a parameter without a default follows one with a default");
    }
    node.parameters.push_back(std::move(parameter));
    if (!skip_symbol(",")) break;
  }
  expect_symbol(")");
  const int64_t num_loops = std::exchange(num_loops_, 0);
  node.body = parse_body("endmacro");
  num_loops_ = num_loops;
  return make(line, std::move(node));
}

StatementPtr Parser::parse_with(int line) {
  WithStatement node;
  while (current().kind != TokenKind::block_end) {
    Target target = parse_target(false);
    expect_symbol("=");
    node.values.emplace_back(std::move(target), parse_expression());
    if (!skip_symbol(",")) break;
  }
  node.body = parse_body("endwith");
  return make(line, std::move(node));
}

StatementPtr Parser::parse_jump(int line, bool is_break) {
  if (num_loops_ == 0) fail_at(line, "'break' and 'continue' stand within a loop only");
  if (is_break) return make(line, BreakStatement{});
  return make(line, ContinueStatement{});
}

ParsedTemplate parse_template(std::string_view source, int64_t max_depth) {
  return Parser(tokenize(source), max_depth).run();
}

}  // namespace tessera::chat
