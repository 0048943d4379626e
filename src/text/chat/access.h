// Attributes, items, slices and the elements of values, as Jinja's sandbox gives them.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/chat/render_state.h"

namespace tessera::chat {

// "x.name": a method first, then an item; undefined where there is neither. Refuses attributes of
// undefined values, names that begin with two underscores, and methods that change a value.
Value get_attribute(RenderState& state, const Value& object, std::string_view name);
// "x[key]": an item first, then an attribute.
Value get_item(RenderState& state, const Value& object, const Value& key);
// "x[start:stop:step]"; none where left out.
Value get_slice(RenderState& state, const Value& object, const Value& start, const Value& stop,
                const Value& step);
// "function.name": what filters with attribute='...' look up.
Value get_path(RenderState& state, const Value& object, std::string_view path);

// What a loop walks: characters, elements, keys. A lazy list is empty afterwards.
std::vector<Value> take_items(RenderState& state, const Value& value);
size_t length_of(RenderState& state, const Value& value);

Value make_undefined(std::string what);

}  // namespace tessera::chat
