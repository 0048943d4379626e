// What a filter, test, function or method is called with.
// SPDX-License-Identifier: MIT
#pragma once

#include <initializer_list>
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

// Arguments in the order of a signature, whether given by position or by name. Refuses too many of
// them, unknown names and a value given twice, naming the callee.
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
  std::vector<const Value*> values_;  // null where not given
};

}  // namespace tessera::chat
