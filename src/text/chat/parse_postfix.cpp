// What follows a value: attributes, subscripts, calls, filters and tests.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <utility>

#include "text/chat/parser.h"

namespace tessera::chat {
namespace {

int64_t depth_or_zero(const ExpressionPtr& part) { return part ? part->depth : 0; }

}  // namespace

ExpressionPtr Parser::parse_postfix(ExpressionPtr object) {
  while (true) {
    if (current().is_symbol(".")) {
      object = parse_dot(std::move(object));
    } else if (current().is_symbol("[")) {
      object = parse_subscript(std::move(object));
    } else if (current().is_symbol("(")) {
      object = parse_call(std::move(object));
    } else {
      return object;
    }
  }
}

ExpressionPtr Parser::parse_filters_and_tests(ExpressionPtr input) {
  while (true) {
    if (skip_symbol("|")) {
      input = parse_filter(std::move(input));
    } else if (current().is_name("is")) {
      input = parse_test(std::move(input));
    } else if (current().is_symbol("(")) {
      input = parse_call(std::move(input));
    } else {
      return input;
    }
  }
}

ExpressionPtr Parser::parse_dot(ExpressionPtr object) {
  const int line = take().line;
  const int64_t depth = object->depth;
  if (current().kind == TokenKind::integer) {
    ExpressionPtr key = std::make_unique<Expression>(Expression{line, 1, Literal{take().integer}});
    return add(line, ItemNode{std::move(object), std::move(key)}, depth);
  }
  std::string name = take_name("a name or a number behind '.'");
  return add(line, AttributeNode{std::move(object), std::move(name)}, depth);
}

ExpressionPtr Parser::parse_subscript(ExpressionPtr object) {
  const int line = take().line;
  std::array<ExpressionPtr, 3> parts;  // start, stop, step
  size_t num_colons = 0;
  while (!current().is_symbol("]")) {
    if (skip_symbol(":")) {
      if (++num_colons > 2) fail("a slice has at most two ':'");
    } else if (parts[num_colons]) {
      fail("']' is expected");
    } else {
      parts[num_colons] = parse_expression();
    }
  }
  expect_symbol("]");
  int64_t depth = object->depth;
  for (const ExpressionPtr& part : parts) depth = std::max(depth, depth_or_zero(part));
  auto& [start, stop, step] = parts;
  if (num_colons > 0) {
    return add(line,
               SliceNode{std::move(object), std::move(start), std::move(stop), std::move(step)},
               depth);
  }
  if (!start) fail("an index is expected between '[' and ']'");
  return add(line, ItemNode{std::move(object), std::move(start)}, depth);
}

ExpressionPtr Parser::parse_call(ExpressionPtr callee) {
  const int line = current().line;
  ArgumentNodes arguments = parse_arguments();
  const int64_t depth = std::max(callee->depth, depth_of(arguments));
  return add(line, CallNode{std::move(callee), std::move(arguments)}, depth);
}

ArgumentNodes Parser::parse_arguments() {
  expect_symbol("(");
  ArgumentNodes arguments;
  while (!current().is_symbol(")")) {
    if (current().is_symbol("*") || current().is_symbol("**")) {
      fail("unpacking of arguments with '*' is not supported");
    }
    if (current().kind == TokenKind::name && look().is_symbol("=")) {
      std::string name = take().text;
      take();
      arguments.named.emplace_back(std::move(name), parse_expression());
    } else if (!arguments.named.empty()) {
      fail("an argument without a name follows one with a name");
    } else {
      arguments.positional.push_back(parse_expression());
    }
    if (!skip_symbol(",")) break;
  }
  expect_symbol(")");
  return arguments;
}

// The current token is the filter's name.
ExpressionPtr Parser::parse_filter(ExpressionPtr input) {
  const int line = current().line;
  FilterNode node{std::move(input), take_name("the name of a filter"), {}};
  if (current().is_symbol("(")) node.arguments = parse_arguments();
  const int64_t depth = std::max(depth_or_zero(node.input), depth_of(node.arguments));
  return add(line, std::move(node), depth);
}

ExpressionPtr Parser::parse_test(ExpressionPtr input) {
  const int line = take().line;
  const bool is_negated = skip_name("not");
  TestNode node{std::move(input), take_name("the name of a test"), {}, is_negated};
  const Token& next = current();
  const bool is_word = next.kind == TokenKind::name && !next.is_name("else") &&
                       !next.is_name("or") && !next.is_name("and");
  if (next.is_symbol("(")) {
    node.arguments = parse_arguments();
  } else if (next.is_name("is")) {
    fail("tests with 'is' can not be chained");
  } else if (is_word || next.kind == TokenKind::string || next.kind == TokenKind::integer ||
             next.kind == TokenKind::real || next.is_symbol("[") || next.is_symbol("{")) {
    const Level level(*this);
    node.arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  const int64_t depth = std::max(node.input->depth, depth_of(node.arguments));
  return add(line, std::move(node), depth);
}

}  // namespace tessera::chat
