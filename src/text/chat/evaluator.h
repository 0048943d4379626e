// Walks a parsed template and writes its text.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "text/chat/ast.h"
#include "text/chat/builtins.h"
#include "text/chat/render_state.h"

namespace tessera::chat {

// Renders the template with `variables` as its outermost names. Names that are not variables may be
// global functions.
Text evaluate(const ParsedTemplate& parsed, RenderState& state, const Dict& variables);

class Evaluator {
 public:
  Evaluator(const ParsedTemplate& parsed, RenderState& state, const Dict& variables);
  Text run();

 private:
  // How a block ended.
  enum class Flow : uint8_t { normal, leave_loop, next_round };

  Value evaluate(const Expression& expression);
  Value evaluate(const Literal& node) { return node.value; }
  Value evaluate(const NameNode& node) { return look_up(node.id); }
  Value evaluate(const SequenceNode& node);
  Value evaluate(const DictNode& node);
  Value evaluate(const AttributeNode& node);
  Value evaluate(const ItemNode& node);
  Value evaluate(const SliceNode& node);
  Value evaluate(const CallNode& node);
  Value evaluate(const FilterNode& node);
  Value evaluate(const TestNode& node);
  Value evaluate(const UnaryNode& node);
  Value evaluate(const ArithmeticNode& node);
  Value evaluate(const CompareNode& node);
  Value evaluate(const LogicNode& node);
  Value evaluate(const ConcatNode& node);
  Value evaluate(const ConditionalNode& node);
  bool holds(const Expression& expression);
  Arguments evaluate_arguments(const ArgumentNodes& nodes);
  Value apply_filters(const std::vector<ExpressionPtr>& filters, Value input);
  [[noreturn]] void fail_call(const CallNode& node, const Value& callee);
  Value call_macro(const Macro& macro, const Arguments& arguments);

  Flow run_block(const Block& block);
  Flow run_scoped(const Block& block);  // in a scope of its own
  Flow run(const TextStatement& node);
  Flow run(const PrintStatement& node);
  Flow run(const SetStatement& node);
  Flow run(const SetBlockStatement& node);
  Flow run(const IfStatement& node);
  Flow run(const ForStatement& node);
  Flow run(const MacroStatement& node);
  Flow run(const FilterStatement& node);
  Flow run(const WithStatement& node);
  Flow run(const BreakStatement&) { return Flow::leave_loop; }
  Flow run(const ContinueStatement&) { return Flow::next_round; }
  std::vector<Value> select_items(const ForStatement& node);

  // The text `body` writes, and how it ended.
  struct Captured {
    Value text;
    Flow flow;
  };
  Captured capture(const Block& body);

  Value look_up(int id);
  void assign(const Target& target, const Value& value);

  const ParsedTemplate& parsed_;
  RenderState& state_;
  Scope* scope_ = nullptr;
  TextBuilder* out_ = nullptr;
};

}  // namespace tessera::chat
