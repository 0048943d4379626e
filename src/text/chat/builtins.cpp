// How built-ins read their arguments; the global functions; the tests used with 'is'.
// SPDX-License-Identifier: MIT
#include "text/chat/builtins.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <string>

#include "core/text.h"
#include "text/chat/operators.h"
#include "text/chat/print.h"
#include "text/chat/text_ops.h"

namespace tessera::chat {

Signature::Signature(RenderState& state, std::string_view callee, const Arguments& arguments,
                     std::initializer_list<std::string_view> names, size_t num_required)
    : state_(state), callee_(callee), names_(names), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names_.size()) {
    state.fail(concat("'", callee, "' takes at most ", names_.size(), " arguments; got ",
                      arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto it = std::ranges::find(names_, name);
    if (it == names_.end()) {
      state.fail(concat("'", callee, "' has no argument '", name.substr(0, 60), "'"));
    }
    const Value*& slot = values_[static_cast<size_t>(it - names_.begin())];
    if (slot) state.fail(concat("'", callee, "' got its argument '", name, "' twice"));
    slot = &value;
  }
  for (size_t i = 0; i < num_required; ++i) {
    if (!values_[i]) state.fail(concat("'", callee, "' needs its argument '", names_[i], "'"));
  }
}

bool Signature::flag(size_t i, bool standard) const { return has(i) ? is_true(at(i)) : standard; }

int64_t Signature::integer(size_t i, int64_t standard) const {
  if (!has(i)) return standard;
  if (const auto number = integer_of(at(i))) return *number;
  state_.fail(
      concat("'", callee_, "' needs an integer as '", names_[i], "'; got ", describe(at(i))));
}

const Text& Signature::text(size_t i) const {
  if (const Text* text = at(i).text()) return *text;
  state_.fail(concat("'", callee_, "' needs a string as '", names_[i], "'; got ", describe(at(i))));
}

namespace {

Value make_range(RenderState& state, const Value&, const Arguments& arguments) {
  const Signature given(state, "range", arguments, {"start", "stop", "step"}, 1);
  const bool has_start = given.has(1);
  const int64_t start = has_start ? given.integer(0, 0) : 0;
  const int64_t stop = given.integer(has_start ? 1 : 0, 0);
  const int64_t step = given.integer(2, 1);
  if (step == 0) state.fail("the step of 'range' can not be zero");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    state.pay(1);  // before the element is made
    items.push_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return state.make_list(std::move(items), ListKind::range);
}

void set_field(RenderState& state, Dict& dict, const Value& key, const Value& value) {
  if (!Dict::can_be_key(key)) state.fail(concat(describe(key), " can not be a key"));
  state.pay_bytes(key.text() ? key.text()->size() : 0);
  dict.set(key, value);
}

// The fields of dict(...) and namespace(...): those of a dictionary, then the named ones.
void fill(RenderState& state, std::string_view callee, Dict& dict, const Arguments& arguments) {
  if (arguments.positional.size() > 1) state.fail(concat("'", callee, "' takes one dictionary"));
  if (!arguments.positional.empty()) {
    const Dict* source = arguments.positional[0].dict();
    if (!source) {
      state.fail(
          concat("'", callee, "' needs a dictionary; got ", describe(arguments.positional[0])));
    }
    for (const auto& [key, value] : source->entries()) set_field(state, dict, key, value);
  }
  for (const auto& [name, value] : arguments.named) {
    set_field(state, dict, control_text(name), value);
  }
}

Value make_dict(RenderState& state, const Value&, const Arguments& arguments) {
  Dict* dict = state.make<Dict>();
  fill(state, "dict", *dict, arguments);
  return dict;
}

Value make_namespace(RenderState& state, const Value&, const Arguments& arguments) {
  Namespace* made = state.make<Namespace>();
  fill(state, "namespace", made->fields, arguments);
  return made;
}

Value raise_exception(RenderState& state, const Value&, const Arguments& arguments) {
  const Signature given(state, "raise_exception", arguments, {"message"}, 1);
  state.fail(concat("the template refuses: ", to_text(state, given.at(0))->bytes()));
}

// The local time, formatted one field at a time so that unknown fields are refused.
Value strftime_now(RenderState& state, const Value&, const Arguments& arguments) {
  const Signature given(state, "strftime_now", arguments, {"format"}, 1);
  const std::string_view format = given.text(0).bytes();
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  TextBuilder out(state);
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out.append(format.substr(i, 1), true);
      continue;
    }
    std::string field = "%";
    if (i + 1 < format.size() && format[i + 1] == '-') field += format[++i];
    const char letter = ++i < format.size() ? format[i] : '\0';
    static constexpr std::string_view kFields = "aAbBdeHIjmMpSuwyYZ%";
    if (letter == '\0' || kFields.find(letter) == std::string_view::npos) {
      state.fail(concat("'strftime_now' knows the fields ", kFields, "; found '%",
                        letter == '\0' ? ' ' : letter, "'"));
    }
    std::array<char, 64> buffer;
    field += letter;
    const size_t size = std::strftime(buffer.data(), buffer.size(), field.c_str(), &local);
    out.append({buffer.data(), size}, true);
  }
  return out.take_value();
}

constexpr Builtin kFunctions[] = {
    {"dict", &make_dict},   {"namespace", &make_namespace},  {"raise_exception", &raise_exception},
    {"range", &make_range}, {"strftime_now", &strftime_now},
};

}  // namespace

std::span<const Builtin> functions() { return kFunctions; }

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

// Python's `is`. Values that are not containers count as one object if they are equal.
Value test_same(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "sameas", arguments, {"other"}, 1);
  const Value& other = given.at(0);
  if (input.data().index() != other.data().index()) return false;
  if (input.list() || input.dict()) {
    return input.list() == other.list() && input.dict() == other.dict();
  }
  return are_equal(state, input, other);
}

// True if some letter has this case and none has the other.
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
