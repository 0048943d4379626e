// Values as text: str(), repr() and JSON, as Python writes them.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "text/chat/render_state.h"

namespace tessera::chat {

// str(): strings as they are, undefined as nothing. A number's digits are control text, since they
// spell no token by themselves; the brackets of lists and dictionaries are not.
void print(TextBuilder& out, RenderState& state, const Value& value);
// repr(): strings in quotes. What it adds to them counts as input.
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
// json.dumps(). A string's bytes, escaped or not, keep their origin; all else counts as input.
Value to_json(RenderState& state, const Value& value, const JsonStyle& style);

// repr() of a float: the shortest digits that read back as the same number.
std::string format_real(double value);

}  // namespace tessera::chat
