// str.format(): fields in braces, and how a value is written in one.
// SPDX-License-Identifier: MIT
#pragma once

#include "text/chat/arguments.h"
#include "text/chat/render_state.h"

namespace tessera::chat {

// `pattern` with its fields filled in. Bytes of the pattern and of strings keep their origin.
Value format_text(RenderState& state, const Text& pattern, const Arguments& arguments);

// Writes `value` as Python's format(value, spec) does: fill and alignment, sign, width, grouping,
// precision, type. Padding counts as input, digits as control text.
void format_value(TextBuilder& out, RenderState& state, const Value& value, std::string_view spec);

}  // namespace tessera::chat
