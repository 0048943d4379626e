// Filters on single values and on text, and the lookup of all filters.
// SPDX-License-Identifier: MIT
#include <charconv>
#include <cmath>

#include "core/text.h"
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

// The text without surrounding whitespace, if all of it is a number.
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

// A float truncated to an integer, if it fits.
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

// With the arguments of the function that Hugging Face substitutes for Jinja's own filter.
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

Value filter_trim(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "trim", arguments, {"chars"});
  const Text* set = given.has(0) && !given.at(0).is_none() ? &given.text(0) : nullptr;
  return strip(state, to_text(state, input), Side::both, set);
}

template <Case kCase>
Value filter_case(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "a filter of case", arguments, {});
  return change_case(state, *to_text(state, input), kCase);
}

Value filter_replace(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "replace", arguments, {"old", "new", "count"}, 2);
  const bool has_count = given.has(2) && !given.at(2).is_none();
  const TextRef from = to_text(state, given.at(0));
  const TextRef to = to_text(state, given.at(1));
  return replace(state, to_text(state, input), *from, *to, has_count ? given.integer(2, -1) : -1);
}

Value filter_join(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "join", arguments, {"d", "attribute"});
  const TextRef separator =
      given.has(0) ? to_text(state, given.at(0)) : std::make_shared<const Text>();
  const bool has_attribute = given.has(1) && !given.at(1).is_none();
  TextBuilder out(state);
  bool is_first = true;
  for (const Value& item : take_items(state, input)) {
    if (!is_first) out.append(*separator);
    is_first = false;
    print(out, state, has_attribute ? get_path(state, item, given.text(1).bytes()) : item);
  }
  return out.take_value();
}

// Indents the lines after the first; blank lines only if asked.
Value filter_indent(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "indent", arguments, {"width", "first", "blank"});
  const bool has_text = given.has(0) && given.at(0).text();
  const int64_t width = has_text ? 0 : given.integer(0, 4);
  state.check_text_size(static_cast<size_t>(std::max<int64_t>(width, 0)));
  const Text spaces(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '), true);
  const Text& indent = has_text ? given.text(0) : spaces;
  const bool indents_first = given.flag(1, false);
  const bool indents_blank = given.flag(2, false);

  const TextRef text = to_text(state, input);
  const std::string_view bytes = text->bytes();
  TextBuilder out(state);
  size_t position = 0;
  bool is_first = true;
  while (true) {
    const size_t end = std::min(bytes.find('\n', position), bytes.size());
    const bool is_wanted = is_first ? indents_first : indents_blank || end > position;
    if (is_wanted) out.append(indent);
    is_first = false;
    const bool is_last = end == bytes.size();
    out.append(*text, position, is_last ? end : end + 1);
    if (is_last) return out.take_value();
    position = end + 1;
  }
}

constexpr Builtin kFilters[] = {
    {"abs", &filter_abs},
    {"capitalize", &filter_case<Case::capitalize>},
    {"count", &filter_length},
    {"d", &filter_default},
    {"default", &filter_default},
    {"float", &filter_float},
    {"indent", &filter_indent},
    {"int", &filter_int},
    {"join", &filter_join},
    {"length", &filter_length},
    {"lower", &filter_case<Case::lower>},
    {"replace", &filter_replace},
    {"safe", &filter_safe},
    {"string", &filter_string},
    {"title", &filter_case<Case::words>},
    {"tojson", &filter_tojson},
    {"trim", &filter_trim},
    {"upper", &filter_case<Case::upper>},
};

}  // namespace

const Builtin* find_filter(std::string_view name) {
  const Builtin* filter = find_builtin(kFilters, name);
  return filter ? filter : find_sequence_filter(name);
}

Value apply_filter(RenderState& state, std::string_view name, const Value& input,
                   const Arguments& arguments) {
  const Builtin* filter = find_filter(name);
  if (!filter) state.fail(concat("unknown filter '", name.substr(0, 60), "'"));
  return filter->call(state, input, arguments);
}

}  // namespace tessera::chat
