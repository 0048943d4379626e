// Truth, equality, order, arithmetic and membership, as Python defines them.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

#include "text/chat/ast.h"
#include "text/chat/render_state.h"

namespace tessera::chat {

bool is_true(const Value& value);
std::optional<int64_t> integer_of(const Value& value);  // of integers and booleans
std::optional<double> real_of(const Value& value);      // of floats too

bool are_equal(RenderState& state, const Value& a, const Value& b);
// Refuses values without a common order.
bool is_less(RenderState& state, const Value& a, const Value& b);
bool compare(RenderState& state, CompareOp op, const Value& a, const Value& b);
bool contains(RenderState& state, const Value& container, const Value& item);

// Refuses operands of the wrong type, overflow of 64 bits and division by zero.
Value calculate(RenderState& state, BinaryOp op, const Value& a, const Value& b);
Value negate(RenderState& state, const Value& value);

// Fails with what an undefined value has to say: "'tools' is undefined".
[[noreturn]] void fail_undefined(RenderState& state, const Value& value);

}  // namespace tessera::chat
