// The tests behind 'is'.
// SPDX-License-Identifier: MIT
#include <cmath>

#include "core/text.h"
#include "text/chat/builtins.h"
#include "text/chat/operators.h"
#include "text/chat/text_ops.h"

namespace tessera::chat {
namespace {

template <bool (*kHolds)(const Value&)>
Value test_kind(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "is", arguments, {});
  return kHolds(input);
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_boolean(const Value& value) { return value.is<bool>(); }
bool is_literally_true(const Value& value) { return value.is<bool>() && *value.as<bool>(); }
bool is_literally_false(const Value& value) { return value.is<bool>() && !*value.as<bool>(); }
bool is_integer(const Value& value) { return value.is<int64_t>(); }
bool is_float(const Value& value) { return value.is<double>(); }
bool is_number(const Value& value) { return real_of(value).has_value(); }
bool is_string(const Value& value) { return value.text() != nullptr; }
bool is_mapping(const Value& value) { return value.dict() != nullptr; }
bool is_callable(const Value& value) { return value.is<Function*>() || value.is<Macro*>(); }

bool is_iterable(const Value& value) {
  return value.text() || value.list() || value.dict() || value.is_undefined() || value.is<Loop*>();
}

bool is_sequence(const Value& value) {
  if (const List* list = value.list()) return list->kind <= ListKind::range;
  return value.text() || value.dict() || value.is_undefined();
}

template <CompareOp kOp>
Value test_compare(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "is", arguments, {"other"}, 1);
  return compare(state, kOp, input, given.at(0));
}

bool has_rest(RenderState& state, const Value& input, int64_t divisor, int64_t rest) {
  const Value left = calculate(state, BinaryOp::modulo, input, divisor);
  return are_equal(state, left, rest);
}

template <int64_t kRest>
Value test_parity(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, kRest ? "odd" : "even", arguments, {});
  return has_rest(state, input, 2, kRest);
}

Value test_divisible(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "divisibleby", arguments, {"num"}, 1);
  return has_rest(state, input, given.integer(0, 1), 0);
}

// Identity: what is one object in Python. Small values are one object each.
Value test_same(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "sameas", arguments, {"other"}, 1);
  const Value& other = given.at(0);
  if (input.data().index() != other.data().index()) return false;
  if (input.list() || input.dict()) {
    return input.list() == other.list() && input.dict() == other.dict();
  }
  return are_equal(state, input, other);
}

// A text has a case where some letter of it has, and no letter has the other case.
template <Case kCase>
Value test_case(RenderState& state, const Value& input, const Arguments& arguments) {
  constexpr Case kOther = kCase == Case::upper ? Case::lower : Case::upper;
  const Signature given(state, "is", arguments, {});
  const Text* text = input.text();
  if (!text) return false;
  const Value same = change_case(state, *text, kCase);
  const Value other = change_case(state, *text, kOther);
  return text->bytes() == same.text()->bytes() && text->bytes() != other.text()->bytes();
}

Value test_filter(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "filter", arguments, {});
  return input.text() && find_filter(input.text()->bytes()) != nullptr;
}

Value test_test(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "test", arguments, {});
  return input.text() && find_test(input.text()->bytes()) != nullptr;
}

constexpr Builtin kTests[] = {
    {"!=", &test_compare<CompareOp::unequal>},
    {"<", &test_compare<CompareOp::less>},
    {"<=", &test_compare<CompareOp::less_equal>},
    {"==", &test_compare<CompareOp::equal>},
    {">", &test_compare<CompareOp::greater>},
    {">=", &test_compare<CompareOp::greater_equal>},
    {"boolean", &test_kind<is_boolean>},
    {"callable", &test_kind<is_callable>},
    {"defined", &test_kind<is_defined>},
    {"divisibleby", &test_divisible},
    {"eq", &test_compare<CompareOp::equal>},
    {"equalto", &test_compare<CompareOp::equal>},
    {"even", &test_parity<0>},
    {"false", &test_kind<is_literally_false>},
    {"filter", &test_filter},
    {"float", &test_kind<is_float>},
    {"ge", &test_compare<CompareOp::greater_equal>},
    {"greaterthan", &test_compare<CompareOp::greater>},
    {"gt", &test_compare<CompareOp::greater>},
    {"in", &test_compare<CompareOp::in>},
    {"integer", &test_kind<is_integer>},
    {"iterable", &test_kind<is_iterable>},
    {"le", &test_compare<CompareOp::less_equal>},
    {"lessthan", &test_compare<CompareOp::less>},
    {"lower", &test_case<Case::lower>},
    {"lt", &test_compare<CompareOp::less>},
    {"mapping", &test_kind<is_mapping>},
    {"ne", &test_compare<CompareOp::unequal>},
    {"none", &test_kind<is_none>},
    {"number", &test_kind<is_number>},
    {"odd", &test_parity<1>},
    {"sameas", &test_same},
    {"sequence", &test_kind<is_sequence>},
    {"string", &test_kind<is_string>},
    {"test", &test_test},
    {"true", &test_kind<is_literally_true>},
    {"undefined", &test_kind<is_undefined>},
    {"upper", &test_case<Case::upper>},
};

}  // namespace

const Builtin* find_test(std::string_view name) { return find_builtin(kTests, name); }

bool apply_test(RenderState& state, std::string_view name, const Value& input,
                const Arguments& arguments) {
  const Builtin* test = find_test(name);
  if (!test) state.fail(concat("unknown test '", name.substr(0, 60), "'"));
  return is_true(test->call(state, input, arguments));
}

}  // namespace tessera::chat
