// Built-in functions, filters, tests and methods: tables by name, and how they read arguments.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat/render_state.h"
#include "text/chat/value.h"

namespace tessera::chat {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;  // names live in the parsed template
};

// Matches arguments, given by position or by name, with the names of a signature. Refuses too many,
// unknown names and values given twice; the message names the callee.
class Signature {
 public:
  Signature(RenderState& state, std::string_view callee, const Arguments& arguments,
            std::initializer_list<std::string_view> names, size_t num_required = 0);

  bool has(size_t i) const { return values_[i] != nullptr; }
  const Value& at(size_t i) const { return *values_[i]; }  // has(i)
  bool flag(size_t i, bool standard) const;
  int64_t integer(size_t i, int64_t standard) const;
  // The text of an argument that must be a string.
  const Text& text(size_t i) const;

 private:
  RenderState& state_;
  std::string_view callee_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;  // null if not given
};

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

// Null if there is none of that name.
const Builtin* find_filter(std::string_view name);
const Builtin* find_sequence_filter(std::string_view name);  // part of find_filter
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
