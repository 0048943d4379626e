// Parses expressions, from the operators that bind least to literals and their suffixes.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "core/text.h"
#include "text/chat/parser.h"

namespace tessera::chat {

int64_t Parser::depth_of(const std::vector<ExpressionPtr>& parts) {
  int64_t depth = 0;
  for (const ExpressionPtr& part : parts) depth = std::max(depth, part->depth);
  return depth;
}

int64_t Parser::depth_of(const ArgumentNodes& arguments) {
  int64_t depth = depth_of(arguments.positional);
  for (const auto& [name, value] : arguments.named) depth = std::max(depth, value->depth);
  return depth;
}

ExpressionPtr Parser::parse_expression(bool with_conditional) {
  const Level level(*this);
  return with_conditional ? parse_conditional() : parse_or();
}

ExpressionPtr Parser::parse_conditional() {
  ExpressionPtr value = parse_or();
  while (skip_name("if")) {
    const int line = current().line;
    ExpressionPtr test = parse_or();
    ExpressionPtr otherwise = skip_name("else") ? parse_expression() : nullptr;
    const int64_t depth =
        std::max({test->depth, value->depth, otherwise ? otherwise->depth : int64_t{0}});
    value =
        add(line, ConditionalNode{std::move(test), std::move(value), std::move(otherwise)}, depth);
  }
  return value;
}

ExpressionPtr Parser::parse_or() {
  const int line = current().line;
  std::vector<ExpressionPtr> operands;
  operands.push_back(parse_and());
  while (skip_name("or")) operands.push_back(parse_and());
  if (operands.size() == 1) return std::move(operands.front());
  const int64_t depth = depth_of(operands);
  return add(line, LogicNode{false, std::move(operands)}, depth);
}

ExpressionPtr Parser::parse_and() {
  const int line = current().line;
  std::vector<ExpressionPtr> operands;
  operands.push_back(parse_not());
  while (skip_name("and")) operands.push_back(parse_not());
  if (operands.size() == 1) return std::move(operands.front());
  const int64_t depth = depth_of(operands);
  return add(line, LogicNode{true, std::move(operands)}, depth);
}

ExpressionPtr Parser::parse_not() {
  if (!current().is_name("not")) return parse_compare();
  const Level level(*this);
  const int line = take().line;
  ExpressionPtr operand = parse_not();
  const int64_t depth = operand->depth;
  return add(line, UnaryNode{UnaryOp::logical_not, std::move(operand)}, depth);
}

namespace {

std::optional<CompareOp> compare_op(const Token& token) {
  if (token.is_symbol("==")) return CompareOp::equal;
  if (token.is_symbol("!=")) return CompareOp::unequal;
  if (token.is_symbol("<")) return CompareOp::less;
  if (token.is_symbol("<=")) return CompareOp::less_equal;
  if (token.is_symbol(">")) return CompareOp::greater;
  if (token.is_symbol(">=")) return CompareOp::greater_equal;
  if (token.is_name("in")) return CompareOp::in;
  return {};
}

std::optional<BinaryOp> sum_op(const Token& token) {
  if (token.is_symbol("+")) return BinaryOp::add;
  if (token.is_symbol("-")) return BinaryOp::subtract;
  return {};
}

std::optional<BinaryOp> product_op(const Token& token) {
  if (token.is_symbol("*")) return BinaryOp::multiply;
  if (token.is_symbol("/")) return BinaryOp::divide;
  if (token.is_symbol("//")) return BinaryOp::floor_divide;
  if (token.is_symbol("%")) return BinaryOp::modulo;
  return {};
}

std::optional<BinaryOp> power_op(const Token& token) {
  if (token.is_symbol("**")) return BinaryOp::power;
  return {};
}

}  // namespace

ExpressionPtr Parser::parse_compare() {
  const int line = current().line;
  ExpressionPtr first = parse_sum();
  std::vector<std::pair<CompareOp, ExpressionPtr>> rest;
  int64_t depth = first->depth;
  while (true) {
    std::optional<CompareOp> op = compare_op(current());
    if (current().is_name("not") && look().is_name("in")) {
      take();
      op = CompareOp::not_in;
    }
    if (!op) break;
    take();
    rest.emplace_back(*op, parse_sum());
    depth = std::max(depth, rest.back().second->depth);
  }
  if (rest.empty()) return first;
  return add(line, CompareNode{std::move(first), std::move(rest)}, depth);
}

// Operators of one precedence, from left to right.
template <class Next, class OperatorOf>
ExpressionPtr Parser::parse_chain(Next next, OperatorOf operator_of) {
  const int line = current().line;
  ExpressionPtr first = next();
  std::vector<std::pair<BinaryOp, ExpressionPtr>> rest;
  int64_t depth = first->depth;
  while (const std::optional<BinaryOp> op = operator_of(current())) {
    take();
    rest.emplace_back(*op, next());
    depth = std::max(depth, rest.back().second->depth);
  }
  if (rest.empty()) return first;
  return add(line, ArithmeticNode{std::move(first), std::move(rest)}, depth);
}

ExpressionPtr Parser::parse_sum() {
  return parse_chain([this] { return parse_concat(); }, sum_op);
}

ExpressionPtr Parser::parse_concat() {
  const int line = current().line;
  std::vector<ExpressionPtr> operands;
  operands.push_back(parse_product());
  while (skip_symbol("~")) operands.push_back(parse_product());
  if (operands.size() == 1) return std::move(operands.front());
  const int64_t depth = depth_of(operands);
  return add(line, ConcatNode{std::move(operands)}, depth);
}

ExpressionPtr Parser::parse_product() {
  return parse_chain([this] { return parse_power(); }, product_op);
}

// Left-associative: here Jinja's ** differs from Python's.
ExpressionPtr Parser::parse_power() {
  return parse_chain([this] { return parse_unary(); }, power_op);
}

ExpressionPtr Parser::parse_unary(bool with_filter) {
  ExpressionPtr value;
  if (current().is_symbol("-") || current().is_symbol("+")) {
    const Level level(*this);
    const UnaryOp op = current().is_symbol("-") ? UnaryOp::negate : UnaryOp::plus;
    const int line = take().line;
    ExpressionPtr operand = parse_unary(false);
    const int64_t depth = operand->depth;
    value = add(line, UnaryNode{op, std::move(operand)}, depth);
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  return with_filter ? parse_filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPtr Parser::parse_name() {
  const Token& token = take();
  const std::string& name = token.text;
  if (name == "true" || name == "True") return add(token.line, Literal{true});
  if (name == "false" || name == "False") return add(token.line, Literal{false});
  if (name == "none" || name == "None") return add(token.line, Literal{None{}});
  return add(token.line, NameNode{intern(name)});
}

ExpressionPtr Parser::parse_primary() {
  const Token& token = current();
  const int line = token.line;
  switch (token.kind) {
    case TokenKind::name: return parse_name();
    case TokenKind::integer: return add(line, Literal{take().integer});
    case TokenKind::real: return add(line, Literal{take().real});
    case TokenKind::string: {
      std::string text;  // adjacent strings are joined
      while (current().kind == TokenKind::string) text += take().text;
      return add(line, Literal{control_text(text)});
    }
    default: break;
  }
  if (skip_symbol("(")) {
    ExpressionPtr value = parse_tuple(true, true);
    expect_symbol(")");
    return value;
  }
  if (token.is_symbol("[")) return parse_list();
  if (token.is_symbol("{")) return parse_dict();
  fail("an expression is expected");
}

ExpressionPtr Parser::parse_tuple(bool with_conditional, bool is_parenthesized,
                                  std::string_view stop) {
  const int line = current().line;
  const auto is_at_end = [&] {
    const Token& token = current();
    return token.kind == TokenKind::print_end || token.kind == TokenKind::block_end ||
           token.is_symbol(")") || (!stop.empty() && token.is_name(stop));
  };
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  while (!is_at_end()) {
    items.push_back(parse_expression(with_conditional));
    if (!skip_symbol(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items.front());
  if (!is_tuple && !is_parenthesized) fail("an expression is expected");
  const int64_t depth = depth_of(items);
  return add(line, SequenceNode{ListKind::tuple, std::move(items)}, depth);
}

ExpressionPtr Parser::parse_list() {
  const int line = take().line;
  std::vector<ExpressionPtr> items;
  while (!current().is_symbol("]")) {
    items.push_back(parse_expression());
    if (!skip_symbol(",")) break;
  }
  expect_symbol("]");
  const int64_t depth = depth_of(items);
  return add(line, SequenceNode{ListKind::list, std::move(items)}, depth);
}

ExpressionPtr Parser::parse_dict() {
  const int line = take().line;
  DictNode node;
  int64_t depth = 0;
  while (!current().is_symbol("}")) {
    ExpressionPtr key = parse_expression();
    expect_symbol(":");
    ExpressionPtr value = parse_expression();
    depth = std::max({depth, key->depth, value->depth});
    node.items.emplace_back(std::move(key), std::move(value));
    if (!skip_symbol(",")) break;
  }
  expect_symbol("}");
  return add(line, std::move(node), depth);
}

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
