// The effects of statements.
// SPDX-License-Identifier: MIT
#include <utility>

#include "core/text.h"
#include "text/chat/access.h"
#include "text/chat/builtins.h"
#include "text/chat/evaluator.h"
#include "text/chat/operators.h"
#include "text/chat/print.h"

namespace tessera::chat {

Evaluator::Evaluator(const ParsedTemplate& parsed, RenderState& state, const Dict& variables)
    : parsed_(parsed), state_(state), scope_(&state.push_scope(nullptr)) {
  for (size_t id = 0; id < parsed.names.size(); ++id) {
    const std::string& name = parsed.names[id];
    if (const Value* variable = variables.find(name)) {
      scope_->names[static_cast<int>(id)] = *variable;
    } else if (const Builtin* function = find_builtin(functions(), name)) {
      scope_->names[static_cast<int>(id)] =
          state.make<Function>(function->name, function->call, Value());
    }
  }
}

Text Evaluator::run() {
  // Blocks write into a scope of the template's own, so that variables stay what they were.
  TextBuilder out(state_);
  out_ = &out;
  scope_ = &state_.push_scope(scope_);
  run_block(parsed_.body);
  return out.take();
}

Evaluator::Flow Evaluator::run_block(const Block& block) {
  const auto level = state_.enter_node();
  for (const StatementPtr& statement : block) {
    state_.line = statement->line;
    state_.pay(1);
    const Flow flow = std::visit([this](const auto& node) { return run(node); }, statement->node);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Evaluator::Flow Evaluator::run_scoped(const Block& block) {
  const auto mark = state_.mark_scopes();
  Scope* const outer = scope_;
  scope_ = &state_.push_scope(outer);
  const Flow flow = run_block(block);
  scope_ = outer;
  state_.pop_scopes(mark);
  return flow;
}

Evaluator::Captured Evaluator::capture(const Block& body) {
  TextBuilder text(state_);
  TextBuilder* const outer = std::exchange(out_, &text);
  const Flow flow = run_scoped(body);
  out_ = outer;
  return {text.take_value(), flow};
}

void Evaluator::assign(const Target& target, const Value& value) {
  if (!target.parts.empty()) {
    const std::vector<Value> values = take_items(state_, value);
    if (values.size() != target.parts.size()) {
      state_.fail(
          concat("can not unpack ", values.size(), " values into ", target.parts.size(), " names"));
    }
    for (size_t i = 0; i < values.size(); ++i) assign(target.parts[i], values[i]);
    return;
  }
  if (target.field.empty()) {
    scope_->names[target.id] = value;
    return;
  }
  const Value object = look_up(target.id);
  const auto* space = object.as<Namespace*>();
  if (!space) {
    state_.fail(concat("only fields of a namespace can be set; '",
                       parsed_.names[static_cast<size_t>(target.id)].substr(0, 60), "' is ",
                       describe(object)));
  }
  state_.pay_bytes(target.field.size());
  (*space)->fields.set(control_text(target.field), value);
}

Evaluator::Flow Evaluator::run(const TextStatement& node) {
  out_->append(*node.text);
  return Flow::normal;
}

Evaluator::Flow Evaluator::run(const PrintStatement& node) {
  print(*out_, state_, evaluate(*node.value));
  return Flow::normal;
}

Evaluator::Flow Evaluator::run(const SetStatement& node) {
  assign(node.target, evaluate(*node.value));
  return Flow::normal;
}

Evaluator::Flow Evaluator::run(const SetBlockStatement& node) {
  Captured captured = capture(node.body);
  assign(node.target, apply_filters(node.filters, std::move(captured.text)));
  return captured.flow;
}

Evaluator::Flow Evaluator::run(const FilterStatement& node) {
  Captured captured = capture(node.body);
  print(*out_, state_, apply_filters(node.filters, std::move(captured.text)));
  return captured.flow;
}

Evaluator::Flow Evaluator::run(const IfStatement& node) {
  for (const auto& [test, body] : node.branches) {
    if (holds(*test)) return run_block(body);
  }
  return run_block(node.otherwise);
}

Evaluator::Flow Evaluator::run(const MacroStatement& node) {
  scope_->names[node.id] = state_.make_macro(node, *scope_);
  return Flow::normal;
}

Evaluator::Flow Evaluator::run(const WithStatement& node) {
  // Values are those of the names outside.
  std::vector<Value> values;
  for (const auto& [target, value] : node.values) values.push_back(evaluate(*value));
  const auto mark = state_.mark_scopes();
  Scope* const outer = scope_;
  scope_ = &state_.push_scope(outer);
  for (size_t i = 0; i < values.size(); ++i) assign(node.values[i].first, values[i]);
  const Flow flow = run_block(node.body);
  scope_ = outer;
  state_.pop_scopes(mark);
  return flow;
}

// What the loop walks: the items that pass its test.
std::vector<Value> Evaluator::select_items(const ForStatement& node) {
  std::vector<Value> items = take_items(state_, evaluate(*node.items));
  if (!node.test) return items;
  std::vector<Value> kept;
  Scope* const outer = scope_;
  for (Value& item : items) {
    const auto mark = state_.mark_scopes();
    scope_ = &state_.push_scope(outer);
    assign(node.target, item);
    if (holds(*node.test)) kept.push_back(std::move(item));
    scope_ = outer;
    state_.pop_scopes(mark);
  }
  return kept;
}

Evaluator::Flow Evaluator::run(const ForStatement& node) {
  Loop* loop = state_.make<Loop>();
  loop->items = select_items(node);
  if (loop->items.empty()) return run_scoped(node.otherwise);
  Scope* const outer = scope_;
  for (size_t i = 0; i < loop->items.size(); ++i) {
    state_.pay(1);
    loop->index = i;
    const auto mark = state_.mark_scopes();
    scope_ = &state_.push_scope(outer);
    scope_->names[parsed_.loop_id] = loop;
    assign(node.target, loop->items[i]);
    const Flow flow = run_block(node.body);
    scope_ = outer;
    state_.pop_scopes(mark);
    if (flow == Flow::leave_loop) break;
  }
  return Flow::normal;
}

Text evaluate(const ParsedTemplate& parsed, RenderState& state, const Dict& variables) {
  return Evaluator(parsed, state, variables).run();
}

}  // namespace tessera::chat
