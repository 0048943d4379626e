// The filters, tests, functions and methods that templates may name.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <span>
#include <string_view>

#include "text/chat/arguments.h"
#include "text/chat/value.h"

namespace tessera::chat {

// `self` is the input of a filter or test, the object of a method, and undefined for a function.
// A test answers with a boolean.
struct Builtin {
  std::string_view name;
  NativeCall call;
};

inline const Builtin* find_builtin(std::span<const Builtin> table, std::string_view name) {
  const auto it = std::ranges::find(table, name, &Builtin::name);
  return it == table.end() ? nullptr : &*it;
}

// Null where there is none of that name.
const Builtin* find_filter(std::string_view name);
const Builtin* find_text_filter(std::string_view name);      // those that yield text
const Builtin* find_sequence_filter(std::string_view name);  // those that choose or order elements
const Builtin* find_test(std::string_view name);
const Builtin* find_text_method(std::string_view name);
const Builtin* find_dict_method(std::string_view name);
const Builtin* find_loop_method(std::string_view name);
std::span<const Builtin> functions();  // range, dict, namespace, raise_exception, strftime_now

// Refuses an unknown name: "unknown filter 'foo'".
Value apply_filter(RenderState& state, std::string_view name, const Value& input,
                   const Arguments& arguments);
bool apply_test(RenderState& state, std::string_view name, const Value& input,
                const Arguments& arguments);

}  // namespace tessera::chat
