// Filters on single values, and the lookup of all filters.
// SPDX-License-Identifier: MIT
#include <charconv>
#include <cmath>

#include "core/text.h"
#include "text/chat/access.h"
#include "text/chat/builtins.h"
#include "text/chat/operators.h"
#include "text/chat/print.h"
#include "text/chat/text_ops.h"
#include "text/unicode.h"

namespace tessera::chat {
namespace {

Value filter_default(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "default", arguments, {"default_value", "boolean"});
  const bool is_missing = input.is_undefined() || (given.flag(1, false) && !is_true(input));
  if (!is_missing) return input;
  return given.has(0) ? given.at(0) : control_text("");
}

Value filter_length(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "length", arguments, {});
  return static_cast<int64_t>(length_of(state, input));
}

Value filter_string(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "string", arguments, {});
  return to_text(state, input);
}

Value filter_abs(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "abs", arguments, {});
  if (const double* number = input.as<double>()) return std::fabs(*number);
  if (const auto number = integer_of(input)) {
    return *number < 0 ? negate(state, *number) : Value(*number);
  }
  if (input.is_undefined()) fail_undefined(state, input);
  state.fail(concat("'abs' needs a number; got ", describe(input)));
}

// The whole text between whitespace as a number.
template <class T>
std::optional<T> read_number(const Text& text) {
  std::string_view bytes = text.bytes();
  bytes.remove_prefix(unicode::count_leading_space(bytes));
  bytes.remove_suffix(unicode::count_trailing_space(bytes));
  if (bytes.starts_with('+') && !bytes.starts_with("+-")) bytes.remove_prefix(1);
  T number{};
  const auto read = std::from_chars(bytes.data(), bytes.data() + bytes.size(), number);
  if (read.ec != std::errc() || read.ptr != bytes.data() + bytes.size()) return {};
  return number;
}

// A float as an integer, where it fits.
std::optional<int64_t> truncate(double number) {
  if (!(std::fabs(number) < 9.2e18)) return {};
  return static_cast<int64_t>(number);
}

Value filter_int(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "int", arguments, {"default", "base"});
  if (given.integer(1, 10) != 10) state.fail("'int' reads numbers of base 10 only");
  if (input.is_undefined()) fail_undefined(state, input);
  std::optional<int64_t> number = integer_of(input);
  if (const double* real = input.as<double>()) number = truncate(*real);
  if (const Text* text = input.text()) {
    state.pay_bytes(text->size());
    number = read_number<int64_t>(*text);
    if (!number) {
      if (const auto real = read_number<double>(*text)) number = truncate(*real);
    }
  }
  if (number) return *number;
  return given.has(0) ? given.at(0) : Value(int64_t{0});
}

Value filter_float(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "float", arguments, {"default"});
  if (input.is_undefined()) fail_undefined(state, input);
  std::optional<double> number = real_of(input);
  if (const Text* text = input.text()) {
    state.pay_bytes(text->size());
    number = read_number<double>(*text);
  }
  if (number) return *number;
  return given.has(0) ? given.at(0) : Value(0.0);
}

Value filter_safe(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "safe", arguments, {});
  return to_text(state, input);
}

std::string json_indent(RenderState& state, const Value& value) {
  if (const Text* text = value.text()) return std::string(text->bytes());
  const auto width = integer_of(value);
  if (!width) state.fail(concat("'tojson' needs an integer as 'indent'; got ", describe(value)));
  constexpr int64_t kMostSpaces = 64;
  if (*width > kMostSpaces) state.fail(concat("'tojson' indents by at most ", kMostSpaces));
  return std::string(static_cast<size_t>(std::max<int64_t>(*width, 0)), ' ');
}

// Named as the function Hugging Face puts in the place of Jinja's own filter.
Value filter_tojson(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "tojson", arguments,
                        {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{.sorts_keys = given.flag(3, false), .is_ascii = given.flag(0, false)};
  if (given.has(1) && !given.at(1).is_none()) {
    style.indent = json_indent(state, given.at(1));
    style.item_separator = std::string(1, ',');
  }
  if (given.has(2) && !given.at(2).is_none()) {
    const List* pair = given.at(2).list();
    if (!pair || pair->items.size() != 2 || !pair->items[0].text() || !pair->items[1].text()) {
      state.fail("'tojson' needs two strings as 'separators'");
    }
    style.item_separator = pair->items[0].text()->bytes();
    style.key_separator = pair->items[1].text()->bytes();
  }
  return to_json(state, input, style);
}

constexpr Builtin kFilters[] = {
    {"abs", &filter_abs},         {"count", &filter_length}, {"d", &filter_default},
    {"default", &filter_default}, {"float", &filter_float},  {"int", &filter_int},
    {"length", &filter_length},   {"safe", &filter_safe},    {"string", &filter_string},
    {"tojson", &filter_tojson},
};

}  // namespace

const Builtin* find_filter(std::string_view name) {
  if (const Builtin* filter = find_builtin(kFilters, name)) return filter;
  if (const Builtin* filter = find_text_filter(name)) return filter;
  return find_sequence_filter(name);
}

Value apply_filter(RenderState& state, std::string_view name, const Value& input,
                   const Arguments& arguments) {
  const Builtin* filter = find_filter(name);
  if (!filter) state.fail(concat("unknown filter '", name.substr(0, 60), "'"));
  return filter->call(state, input, arguments);
}

}  // namespace tessera::chat
