// The values of expressions and the effects of statements.
// SPDX-License-Identifier: MIT
#include "text/chat/evaluator.h"

#include <algorithm>
#include <utility>

#include "core/text.h"
#include "text/chat/builtins.h"
#include "text/chat/operators.h"
#include "text/chat/print.h"

namespace tessera::chat {

Value Evaluator::evaluate(const Expression& expression) {
  state_.line = expression.line;
  state_.pay(1);
  const auto level = state_.enter_node();
  return std::visit([this](const auto& node) { return evaluate(node); }, expression.node);
}

bool Evaluator::holds(const Expression& expression) { return is_true(evaluate(expression)); }

Value Evaluator::look_up(int id) {
  for (const Scope* scope = scope_; scope; scope = scope->parent) {
    const auto it = scope->names.find(id);
    if (it != scope->names.end()) return it->second;
  }
  const std::string& name = parsed_.names[static_cast<size_t>(id)];
  return make_undefined(concat("'", name.substr(0, 60), "' is undefined"));
}

Value Evaluator::evaluate(const SequenceNode& node) {
  std::vector<Value> items;
  for (const ExpressionPtr& item : node.items) items.push_back(evaluate(*item));
  return state_.make_list(std::move(items), node.kind);
}

Value Evaluator::evaluate(const DictNode& node) {
  Dict* dict = state_.make<Dict>();
  for (const auto& [key_node, value_node] : node.items) {
    const Value key = evaluate(*key_node);
    if (!Dict::can_be_key(key)) state_.fail(concat(describe(key), " can not be a key"));
    if (key.text()) state_.pay_bytes(key.text()->size());
    dict->set(key, evaluate(*value_node));
  }
  return dict;
}

Value Evaluator::evaluate(const AttributeNode& node) {
  return get_attribute(state_, evaluate(*node.object), node.name);
}

Value Evaluator::evaluate(const ItemNode& node) {
  const Value object = evaluate(*node.object);
  return get_item(state_, object, evaluate(*node.key));
}

Value Evaluator::evaluate(const SliceNode& node) {
  const auto bound = [this](const ExpressionPtr& part) {
    return part ? evaluate(*part) : Value(None{});
  };
  const Value object = evaluate(*node.object);
  const Value start = bound(node.start);
  const Value stop = bound(node.stop);
  return get_slice(state_, object, start, stop, bound(node.step));
}

Arguments Evaluator::evaluate_arguments(const ArgumentNodes& nodes) {
  Arguments arguments;
  for (const ExpressionPtr& node : nodes.positional) {
    arguments.positional.push_back(evaluate(*node));
  }
  for (const auto& [name, node] : nodes.named) arguments.named.emplace_back(name, evaluate(*node));
  return arguments;
}

void Evaluator::fail_call(const CallNode& node, const Value& callee) {
  if (!callee.is_undefined()) state_.fail(concat(describe(callee), " can not be called"));
  if (const auto* attribute = std::get_if<AttributeNode>(&node.callee->node)) {
    const auto& what = callee.as<Undefined>()->what;
    state_.fail(concat("unknown method '", attribute->name.substr(0, 60), "'",
                       what ? ": " + *what : std::string()));
  }
  if (const auto* name = std::get_if<NameNode>(&node.callee->node)) {
    const std::string& text = parsed_.names[static_cast<size_t>(name->id)];
    state_.fail(concat("unknown function '", text.substr(0, 60), "'"));
  }
  fail_undefined(state_, callee);
}

Value Evaluator::evaluate(const CallNode& node) {
  const Value callee = evaluate(*node.callee);
  const int line = state_.line;
  const Arguments arguments = evaluate_arguments(node.arguments);
  state_.line = line;
  if (const auto* function = callee.as<Function*>()) {
    return (*function)->call(state_, (*function)->self, arguments);
  }
  if (const auto* macro = callee.as<Macro*>()) return call_macro(**macro, arguments);
  fail_call(node, callee);
}

Value Evaluator::call_macro(const Macro& macro, const Arguments& arguments) {
  const auto level = state_.enter_call();
  const MacroStatement& declaration = *macro.declaration;
  const std::vector<Parameter>& parameters = declaration.parameters;
  if (arguments.positional.size() > parameters.size()) {
    state_.fail(concat("macro '", declaration.name, "' takes at most ", parameters.size(),
                       " arguments; got ", arguments.positional.size()));
  }
  const auto mark = state_.mark_scopes();
  Scope* const caller = scope_;
  scope_ = &state_.push_scope(macro.scope);
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    scope_->names[parameters[i].id] = arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.named) {
    const auto it = std::ranges::find(parameters, name, &Parameter::name);
    if (it == parameters.end() || scope_->names.contains(it->id)) {
      state_.fail(concat("macro '", declaration.name, "' does not take argument '",
                         name.substr(0, 60), "' here"));
    }
    scope_->names[it->id] = value;
  }
  for (const Parameter& parameter : parameters) {
    if (scope_->names.contains(parameter.id)) continue;
    Value value = parameter.standard
                      ? evaluate(*parameter.standard)
                      : make_undefined(concat("parameter '", parameter.name, "' was not given"));
    scope_->names[parameter.id] = std::move(value);
  }
  Value text = capture(declaration.body).text;
  scope_ = caller;
  state_.pop_scopes(mark);
  return text;
}

Value Evaluator::evaluate(const FilterNode& node) {
  const Value input = evaluate(*node.input);
  const int line = state_.line;
  const Arguments arguments = evaluate_arguments(node.arguments);
  state_.line = line;
  return apply_filter(state_, node.name, input, arguments);
}

Value Evaluator::apply_filters(const std::vector<ExpressionPtr>& filters, Value input) {
  for (const ExpressionPtr& filter : filters) {
    const auto& node = std::get<FilterNode>(filter->node);
    const Arguments arguments = evaluate_arguments(node.arguments);
    state_.line = filter->line;
    input = apply_filter(state_, node.name, input, arguments);
  }
  return input;
}

Value Evaluator::evaluate(const TestNode& node) {
  const Value input = evaluate(*node.input);
  const int line = state_.line;
  const Arguments arguments = evaluate_arguments(node.arguments);
  state_.line = line;
  return apply_test(state_, node.name, input, arguments) != node.is_negated;
}

Value Evaluator::evaluate(const UnaryNode& node) {
  const Value operand = evaluate(*node.operand);
  if (node.op == UnaryOp::logical_not) return !is_true(operand);
  const Value negative = negate(state_, operand);
  return node.op == UnaryOp::negate ? negative : operand;
}

Value Evaluator::evaluate(const ArithmeticNode& node) {
  Value result = evaluate(*node.first);
  for (const auto& [op, operand] : node.rest) {
    result = calculate(state_, op, result, evaluate(*operand));
  }
  return result;
}

// a < b < c means a < b and b < c; each operand is evaluated at most once.
Value Evaluator::evaluate(const CompareNode& node) {
  Value left = evaluate(*node.first);
  for (const auto& [op, operand] : node.rest) {
    Value right = evaluate(*operand);
    if (!compare(state_, op, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

// As in Python, the value of the first operand that decides, or else of the last.
Value Evaluator::evaluate(const LogicNode& node) {
  Value value;
  for (const ExpressionPtr& operand : node.operands) {
    value = evaluate(*operand);
    if (is_true(value) != node.is_and) break;
  }
  return value;
}

Value Evaluator::evaluate(const ConcatNode& node) {
  TextBuilder out(state_);
  for (const ExpressionPtr& operand : node.operands) print(out, state_, evaluate(*operand));
  return out.take_value();
}

Value Evaluator::evaluate(const ConditionalNode& node) {
  if (holds(*node.test)) return evaluate(*node.then);
  if (node.otherwise) return evaluate(*node.otherwise);
  return make_undefined("the condition is false and there is no 'else'");
}

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
  // The template gets its own scope, so that `set` does not overwrite variables.
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
  // Values are evaluated in the enclosing scope.
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

// The items that pass the loop's test.
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
