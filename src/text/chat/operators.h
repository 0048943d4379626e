// What a template does with values: operators, attributes, items, slices and elements.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/ast.h"
#include "text/chat/render_state.h"

namespace tessera::chat {

bool is_true(const Value& value);
std::optional<int64_t> integer_of(const Value& value);  // integers and booleans
std::optional<double> real_of(const Value& value);      // floats too

bool are_equal(RenderState& state, const Value& a, const Value& b);
// Refuses values that cannot be ordered.
bool is_less(RenderState& state, const Value& a, const Value& b);
bool compare(RenderState& state, CompareOp op, const Value& a, const Value& b);
bool contains(RenderState& state, const Value& container, const Value& item);

// Refuses operands of the wrong type, overflow of 64 bits and division by zero.
Value calculate(RenderState& state, BinaryOp op, const Value& a, const Value& b);
Value negate(RenderState& state, const Value& value);

// Fails with the reason an undefined value carries: "'tools' is undefined".
[[noreturn]] void fail_undefined(RenderState& state, const Value& value);

// "x.name": a method, else an item, else undefined. Refuses attributes of
// undefined values, names that begin with two underscores, and methods that change a value.
Value get_attribute(RenderState& state, const Value& object, std::string_view name);
// "x[key]": an item, else an attribute.
Value get_item(RenderState& state, const Value& object, const Value& key);
// "x[start:stop:step]"; omitted parts are none.
Value get_slice(RenderState& state, const Value& object, const Value& start, const Value& stop,
                const Value& step);
// Looks up a path such as "function.name", for filters with attribute='...'.
Value get_path(RenderState& state, const Value& object, std::string_view path);

// What a loop iterates over: characters, elements or keys. A lazy list is empty afterwards.
std::vector<Value> take_items(RenderState& state, const Value& value);
size_t length_of(RenderState& state, const Value& value);

Value make_undefined(std::string what);

}  // namespace tessera::chat
