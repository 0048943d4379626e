// Matches arguments with the names of a signature.
// SPDX-License-Identifier: MIT
#include "text/chat/arguments.h"

#include <algorithm>

#include "core/text.h"
#include "text/chat/operators.h"

namespace tessera::chat {

Signature::Signature(RenderState& state, std::string_view callee, const Arguments& arguments,
                     std::initializer_list<std::string_view> names, size_t num_required)
    : state_(state), callee_(callee), names_(names), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names_.size()) {
    state.fail(concat("'", callee, "' takes at most ", names_.size(), " arguments; got ",
                      arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto it = std::ranges::find(names_, name);
    if (it == names_.end()) {
      state.fail(concat("'", callee, "' has no argument '", name.substr(0, 60), "'"));
    }
    const Value*& slot = values_[static_cast<size_t>(it - names_.begin())];
    if (slot) state.fail(concat("'", callee, "' got its argument '", name, "' twice"));
    slot = &value;
  }
  for (size_t i = 0; i < num_required; ++i) {
    if (!values_[i]) state.fail(concat("'", callee, "' needs its argument '", names_[i], "'"));
  }
}

bool Signature::flag(size_t i, bool standard) const { return has(i) ? is_true(at(i)) : standard; }

int64_t Signature::integer(size_t i, int64_t standard) const {
  if (!has(i)) return standard;
  if (const auto number = integer_of(at(i))) return *number;
  state_.fail(
      concat("'", callee_, "' needs an integer as '", names_[i], "'; got ", describe(at(i))));
}

const Text& Signature::text(size_t i) const {
  if (const Text* text = at(i).text()) return *text;
  state_.fail(concat("'", callee_, "' needs a string as '", names_[i], "'; got ", describe(at(i))));
}

}  // namespace tessera::chat
