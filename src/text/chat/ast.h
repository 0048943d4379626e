// A parsed template. Nodes are values without behaviour; evaluator.h walks them.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/chat/value.h"

namespace tessera::chat {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;
struct Statement;
using StatementPtr = std::unique_ptr<Statement>;
using Block = std::vector<StatementPtr>;

struct ArgumentNodes {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};

struct Literal {
  Value value;  // never an object
};
struct NameNode {
  int id;  // index of ParsedTemplate::names
};
struct SequenceNode {
  ListKind kind;  // list or tuple
  std::vector<ExpressionPtr> items;
};
struct DictNode {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
};
struct AttributeNode {
  ExpressionPtr object;
  std::string name;
};
struct ItemNode {
  ExpressionPtr object;
  ExpressionPtr key;
};
struct SliceNode {
  ExpressionPtr object;
  ExpressionPtr start;  // start, stop and step are null if omitted
  ExpressionPtr stop;
  ExpressionPtr step;
};
struct CallNode {
  ExpressionPtr callee;
  ArgumentNodes arguments;
};
struct FilterNode {
  ExpressionPtr input;  // null for the filter of a block
  std::string name;
  ArgumentNodes arguments;
};
struct TestNode {
  ExpressionPtr input;
  std::string name;
  ArgumentNodes arguments;
  bool is_negated;
};
enum class UnaryOp : uint8_t { negate, plus, logical_not };
struct UnaryNode {
  UnaryOp op;
  ExpressionPtr operand;
};
enum class BinaryOp : uint8_t { add, subtract, multiply, divide, floor_divide, modulo, power };
// a + b - c: chains are flat, so a long one is not a deep tree.
struct ArithmeticNode {
  ExpressionPtr first;
  std::vector<std::pair<BinaryOp, ExpressionPtr>> rest;
};
enum class CompareOp : uint8_t {
  equal,
  unequal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in
};
struct CompareNode {
  ExpressionPtr first;
  std::vector<std::pair<CompareOp, ExpressionPtr>> rest;
};
struct LogicNode {
  bool is_and;
  std::vector<ExpressionPtr> operands;
};
struct ConcatNode {
  std::vector<ExpressionPtr> operands;
};
struct ConditionalNode {
  ExpressionPtr test;
  ExpressionPtr then;
  ExpressionPtr otherwise;  // null: undefined
};

struct Expression {
  int line;
  int64_t depth;  // 1 + the depth of the deepest part
  std::variant<Literal, NameNode, SequenceNode, DictNode, AttributeNode, ItemNode, SliceNode,
               CallNode, FilterNode, TestNode, UnaryNode, ArithmeticNode, CompareNode, LogicNode,
               ConcatNode, ConditionalNode>
      node;
};

// The target of an assignment: a name, a field of a namespace, or several of these.
struct Target {
  int id = -1;             // of the name, or of the namespace; -1 for several targets
  std::string field = {};  // empty: the name itself
  std::vector<Target> parts = {};
};

struct TextStatement {
  TextRef text;
};
struct PrintStatement {
  ExpressionPtr value;
};
struct SetStatement {
  Target target;
  ExpressionPtr value;
};
struct SetBlockStatement {
  Target target;
  std::vector<ExpressionPtr> filters;  // FilterNodes without input, in order
  Block body;
};
struct IfStatement {
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block otherwise;
};
struct ForStatement {
  Target target;
  ExpressionPtr items;
  ExpressionPtr test;  // null: all items
  Block body;
  Block otherwise;
};
struct Parameter {
  int id;
  std::string name;
  ExpressionPtr standard;  // null: undefined when not given
};
struct MacroStatement {
  int id;
  std::string name;
  std::vector<Parameter> parameters;
  Block body;
};
struct FilterStatement {
  std::vector<ExpressionPtr> filters;
  Block body;
};
struct WithStatement {
  std::vector<std::pair<Target, ExpressionPtr>> values;
  Block body;
};
struct BreakStatement {};
struct ContinueStatement {};

struct Statement {
  template <class Node>
  Statement(int source_line, Node statement) : line(source_line), node(std::move(statement)) {}

  int line;
  std::variant<TextStatement, PrintStatement, SetStatement, SetBlockStatement, IfStatement,
               ForStatement, MacroStatement, FilterStatement, WithStatement, BreakStatement,
               ContinueStatement>
      node;
};

struct ParsedTemplate {
  Block body;
  std::vector<std::string> names;  // every name the template reads or sets
  int loop_id = -1;                // of the name "loop"
};

}  // namespace tessera::chat
