// Tokens to a tree, by recursive descent with Jinja's precedences.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/chat/ast.h"
#include "text/chat/lexer.h"

namespace tessera::chat {

// Refuses syntax errors, with the line, and nesting deeper than `max_depth`.
ParsedTemplate parse_template(std::string_view source, int64_t max_depth);

// Expressions are in parse_expression.cpp, statements in parse_statement.cpp.
class Parser {
 public:
  Parser(std::vector<Token> tokens, int64_t max_depth)
      : tokens_(std::move(tokens)), max_depth_(max_depth) {}
  ParsedTemplate run();

 private:
  class Level;

  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  const Token& take();
  bool skip_name(std::string_view word);
  bool skip_symbol(std::string_view symbol);
  void expect_symbol(std::string_view symbol);
  void expect_name(std::string_view word);
  void expect_kind(TokenKind kind, std::string_view what);
  std::string take_name(std::string_view what);
  [[noreturn]] void fail(std::string_view what,
                         std::source_location where = std::source_location::current()) const;
  [[noreturn]] void fail_depth() const;
  int intern(const std::string& name);

  // Makes a node whose deepest part has `depth`. Chains such as a.b.c are parsed in a loop but make
  // deep trees, so depth is checked here as well as by Level.
  template <class Node>
  ExpressionPtr add(int line, Node node, int64_t depth = 0) {
    if (depth >= max_depth_) fail_depth();
    return std::make_unique<Expression>(Expression{line, depth + 1, std::move(node)});
  }
  static int64_t depth_of(const std::vector<ExpressionPtr>& parts);
  static int64_t depth_of(const ArgumentNodes& arguments);

  ExpressionPtr parse_expression(bool with_conditional = true);
  ExpressionPtr parse_conditional();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  template <class Next, class OperatorOf>
  ExpressionPtr parse_chain(Next next, OperatorOf operator_of);
  ExpressionPtr parse_unary(bool with_filter = true);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_name();
  // Ends at the end of a tag, at ')' and before the name `stop`.
  ExpressionPtr parse_tuple(bool with_conditional, bool is_parenthesized,
                            std::string_view stop = {});
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr object);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr input);
  ExpressionPtr parse_subscript(ExpressionPtr object);
  ExpressionPtr parse_dot(ExpressionPtr object);
  ExpressionPtr parse_call(ExpressionPtr callee);
  ExpressionPtr parse_filter(ExpressionPtr input);
  ExpressionPtr parse_test(ExpressionPtr input);
  ArgumentNodes parse_arguments();

  // Statements up to one of the tags `ends`; its name is then the current token.
  Block parse_block(std::initializer_list<std::string_view> ends);
  // As parse_block, between the end of the opening tag and the closing tag, both included.
  Block parse_body(std::string_view end);
  Block parse_branch(std::initializer_list<std::string_view> ends);
  StatementPtr parse_statement();
  StatementPtr parse_set(int line);
  StatementPtr parse_for(int line);
  StatementPtr parse_if(int line);
  StatementPtr parse_macro(int line);
  StatementPtr parse_with(int line);
  StatementPtr parse_jump(int line, bool is_break);
  std::vector<ExpressionPtr> parse_block_filters();
  Target parse_targets(bool with_fields, std::string_view stop);
  Target parse_target(bool with_fields);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int64_t max_depth_;
  int64_t depth_ = 0;
  int64_t num_loops_ = 0;  // loops around the statement, within its macro
  std::unordered_map<std::string, int> ids_;
  std::vector<std::string> names_;
};

// One level of recursion, which bounds the parser's stack.
class Parser::Level {
 public:
  explicit Level(Parser& parser) : parser_(parser) {
    if (parser.depth_ >= parser.max_depth_) parser.fail_depth();
    ++parser.depth_;
  }
  ~Level() { --parser_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Parser& parser_;
};

}  // namespace tessera::chat
