// Values as text: str(), repr(), json.dumps() and format().
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "text/chat/render_state.h"

namespace tessera::chat {

// str(): strings unchanged, undefined as nothing. The digits of a number are control text, since
// they cannot spell a special token; the brackets of lists and dictionaries are input.
void print(TextBuilder& out, RenderState& state, const Value& value);
// repr(): strings in quotes. What it adds counts as input.
void print_repr(TextBuilder& out, RenderState& state, const Value& value);
// str() as a value; a string is returned as it is.
TextRef to_text(RenderState& state, const Value& value);

struct JsonStyle {
  std::optional<std::string> indent = {};  // none: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sorts_keys = false;
  bool is_ascii = false;
};
// json.dumps(). The bytes of strings, escaped or not, keep their origin; the rest counts as input.
Value to_json(RenderState& state, const Value& value, const JsonStyle& style);

// repr() of a float: the shortest digits that parse to the same number.
std::string format_real(double value);

// str.format(): `pattern` with its fields filled in. The bytes of pattern and strings keep their
// origin.
Value format_text(RenderState& state, const Text& pattern, const Arguments& arguments);

// Writes `value` as Python's format(value, spec) does: fill and alignment, sign, width, grouping,
// precision, type. Padding counts as input, digits as control text.
void format_value(TextBuilder& out, RenderState& state, const Value& value, std::string_view spec);

}  // namespace tessera::chat
