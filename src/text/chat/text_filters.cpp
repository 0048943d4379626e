// Filters that take a value as text.
// SPDX-License-Identifier: MIT
#include "core/text.h"
#include "text/chat/access.h"
#include "text/chat/builtins.h"
#include "text/chat/operators.h"
#include "text/chat/print.h"
#include "text/chat/text_ops.h"

namespace tessera::chat {
namespace {

Value filter_trim(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "trim", arguments, {"chars"});
  const Text* set = given.has(0) && !given.at(0).is_none() ? &given.text(0) : nullptr;
  return strip(state, to_text(state, input), Side::both, set);
}

template <Case kCase>
Value filter_case(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "a filter of case", arguments, {});
  return change_case(state, *to_text(state, input), kCase);
}

Value filter_replace(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "replace", arguments, {"old", "new", "count"}, 2);
  const bool has_count = given.has(2) && !given.at(2).is_none();
  const TextRef from = to_text(state, given.at(0));
  const TextRef to = to_text(state, given.at(1));
  return replace(state, to_text(state, input), *from, *to, has_count ? given.integer(2, -1) : -1);
}

Value filter_join(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "join", arguments, {"d", "attribute"});
  const TextRef separator =
      given.has(0) ? to_text(state, given.at(0)) : std::make_shared<const Text>();
  const bool has_attribute = given.has(1) && !given.at(1).is_none();
  TextBuilder out(state);
  bool is_first = true;
  for (const Value& item : take_items(state, input)) {
    if (!is_first) out.append(*separator);
    is_first = false;
    print(out, state, has_attribute ? get_path(state, item, given.text(1).bytes()) : item);
  }
  return out.take_value();
}

// Lines behind the first are indented, blank ones only where asked for.
Value filter_indent(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "indent", arguments, {"width", "first", "blank"});
  const bool has_text = given.has(0) && given.at(0).text();
  const int64_t width = has_text ? 0 : given.integer(0, 4);
  state.check_text_size(static_cast<size_t>(std::max<int64_t>(width, 0)));
  const Text spaces(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '), true);
  const Text& indent = has_text ? given.text(0) : spaces;
  const bool indents_first = given.flag(1, false);
  const bool indents_blank = given.flag(2, false);

  const TextRef text = to_text(state, input);
  const std::string_view bytes = text->bytes();
  TextBuilder out(state);
  size_t position = 0;
  bool is_first = true;
  while (true) {
    const size_t end = std::min(bytes.find('\n', position), bytes.size());
    const bool is_wanted = is_first ? indents_first : indents_blank || end > position;
    if (is_wanted) out.append(indent);
    is_first = false;
    const bool is_last = end == bytes.size();
    out.append(*text, position, is_last ? end : end + 1);
    if (is_last) return out.take_value();
    position = end + 1;
  }
}

constexpr Builtin kFilters[] = {
    {"capitalize", &filter_case<Case::capitalize>},
    {"indent", &filter_indent},
    {"join", &filter_join},
    {"lower", &filter_case<Case::lower>},
    {"replace", &filter_replace},
    {"title", &filter_case<Case::words>},
    {"trim", &filter_trim},
    {"upper", &filter_case<Case::upper>},
};

}  // namespace

const Builtin* find_text_filter(std::string_view name) { return find_builtin(kFilters, name); }

}  // namespace tessera::chat
