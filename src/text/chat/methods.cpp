// Methods of strings, dictionaries and the loop variable.
// SPDX-License-Identifier: MIT
#include "core/text.h"
#include "text/chat/builtins.h"
#include "text/chat/operators.h"
#include "text/chat/print.h"
#include "text/chat/text_ops.h"
#include "text/unicode.h"

namespace tessera::chat {
namespace {

template <Case kCase>
Value text_case(RenderState& state, const Value& self, const Arguments& arguments) {
  const Signature given(state, "a method of case", arguments, {});
  return change_case(state, *self.text(), kCase);
}

template <Side kSide>
Value text_strip(RenderState& state, const Value& self, const Arguments& arguments) {
  const Signature given(state, "strip", arguments, {"chars"});
  const Text* set = given.has(0) && !given.at(0).is_none() ? &given.text(0) : nullptr;
  return strip(state, self.text_ref(), kSide, set);
}

Value text_split(RenderState& state, const Value& self, const Arguments& arguments) {
  const Signature given(state, "split", arguments, {"sep", "maxsplit"});
  const Text* separator = given.has(0) && !given.at(0).is_none() ? &given.text(0) : nullptr;
  return state.make_list(split(state, *self.text(), separator, given.integer(1, -1)));
}

Value text_splitlines(RenderState& state, const Value& self, const Arguments& arguments) {
  const Signature given(state, "splitlines", arguments, {});
  return state.make_list(split_lines(state, *self.text()));
}

Value text_replace(RenderState& state, const Value& self, const Arguments& arguments) {
  const Signature given(state, "replace", arguments, {"old", "new", "count"}, 2);
  return replace(state, self.text_ref(), given.text(0), given.text(1), given.integer(2, -1));
}

bool has_affix(std::string_view text, std::string_view affix, bool is_prefix) {
  return is_prefix ? text.starts_with(affix) : text.ends_with(affix);
}

// Takes a string or a tuple of strings.
template <bool kIsPrefix>
Value text_has_affix(RenderState& state, const Value& self, const Arguments& arguments) {
  constexpr std::string_view kName = kIsPrefix ? "startswith" : "endswith";
  const Signature given(state, kName, arguments, {"affix"}, 1);
  const List* several = given.at(0).list();
  if (!several || several->kind != ListKind::tuple) {
    state.pay_bytes(given.text(0).size());
    return has_affix(self.text()->bytes(), given.text(0).bytes(), kIsPrefix);
  }
  for (const Value& affix : several->items) {
    if (!affix.text()) state.fail(concat("'", kName, "' needs strings; got ", describe(affix)));
    state.pay_bytes(affix.text()->size());
    if (has_affix(self.text()->bytes(), affix.text()->bytes(), kIsPrefix)) return true;
  }
  return false;
}

template <bool kIsPrefix>
Value text_remove_affix(RenderState& state, const Value& self, const Arguments& arguments) {
  const Signature given(state, kIsPrefix ? "removeprefix" : "removesuffix", arguments, {"affix"},
                        1);
  const Text& text = *self.text();
  const size_t size = given.text(0).size();
  state.pay_bytes(size);
  if (size == 0 || !has_affix(text.bytes(), given.text(0).bytes(), kIsPrefix)) return self;
  return kIsPrefix ? sub_text(state, text, size, text.size())
                   : sub_text(state, text, 0, text.size() - size);
}

Value text_find(RenderState& state, const Value& self, const Arguments& arguments) {
  const Signature given(state, "find", arguments, {"sub"}, 1);
  const std::string_view bytes = self.text()->bytes();
  const size_t found = find_text(state, bytes, given.text(0).bytes(), 0);
  if (found == std::string_view::npos) return int64_t{-1};
  return static_cast<int64_t>(unicode::count_characters(bytes.substr(0, found)));
}

Value text_count(RenderState& state, const Value& self, const Arguments& arguments) {
  const Signature given(state, "count", arguments, {"sub"}, 1);
  const std::string_view bytes = self.text()->bytes();
  const std::string_view sub = given.text(0).bytes();
  if (sub.empty()) return static_cast<int64_t>(length_of(state, self)) + 1;
  int64_t count = 0;
  for (size_t at = find_text(state, bytes, sub, 0); at != std::string_view::npos;
       at = find_text(state, bytes, sub, at + sub.size())) {
    ++count;
  }
  return count;
}

// Unlike the filter, the method takes only strings.
Value text_join(RenderState& state, const Value& self, const Arguments& arguments) {
  const Signature given(state, "join", arguments, {"iterable"}, 1);
  TextBuilder out(state);
  bool is_first = true;
  for (const Value& item : take_items(state, given.at(0))) {
    if (!item.text()) state.fail(concat("'join' needs strings; got ", describe(item)));
    if (!is_first) out.append(*self.text());
    is_first = false;
    out.append(*item.text());
  }
  return out.take_value();
}

Value text_format(RenderState& state, const Value& self, const Arguments& arguments) {
  return format_text(state, *self.text(), arguments);
}

template <bool (*kHolds)(char32_t)>
Value text_all(RenderState& state, const Value& self, const Arguments& arguments) {
  const Signature given(state, "a test of characters", arguments, {});
  const std::string_view bytes = self.text()->bytes();
  state.pay_bytes(bytes.size());
  for (size_t i = 0; i < bytes.size();) {
    const unicode::Character c = unicode::character_at(bytes, i);
    if (!kHolds(c.code)) return false;
    i += c.bytes;
  }
  return !bytes.empty();
}

bool is_decimal(char32_t c) { return c >= '0' && c <= '9'; }

constexpr Builtin kTextMethods[] = {
    {"capitalize", &text_case<Case::capitalize>},
    {"count", &text_count},
    {"endswith", &text_has_affix<false>},
    {"find", &text_find},
    {"format", &text_format},
    {"isdigit", &text_all<is_decimal>},
    {"isspace", &text_all<unicode::is_space>},
    {"join", &text_join},
    {"lower", &text_case<Case::lower>},
    {"lstrip", &text_strip<Side::left>},
    {"removeprefix", &text_remove_affix<true>},
    {"removesuffix", &text_remove_affix<false>},
    {"replace", &text_replace},
    {"rstrip", &text_strip<Side::right>},
    {"split", &text_split},
    {"splitlines", &text_splitlines},
    {"startswith", &text_has_affix<true>},
    {"strip", &text_strip<Side::both>},
    {"title", &text_case<Case::title>},
    {"upper", &text_case<Case::upper>},
};

enum class Part : uint8_t { keys, values, items };

template <Part kPart>
Value dict_view(RenderState& state, const Value& self, const Arguments& arguments) {
  const Signature given(state, "a view of a dictionary", arguments, {});
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict()->entries()) {
    state.pay(1);
    if (kPart == Part::keys) items.push_back(key);
    if (kPart == Part::values) items.push_back(value);
    if (kPart == Part::items) items.push_back(state.make_list({key, value}, ListKind::tuple));
  }
  return state.make_list(std::move(items), ListKind::view);
}

Value dict_get(RenderState& state, const Value& self, const Arguments& arguments) {
  const Signature given(state, "get", arguments, {"key", "default"}, 1);
  if (!Dict::can_be_key(given.at(0))) {
    state.fail(concat(describe(given.at(0)), " can not be a key"));
  }
  if (const Text* text = given.at(0).text()) state.pay_bytes(text->size());
  if (const Value* found = self.dict()->find(given.at(0))) return *found;
  return given.has(1) ? given.at(1) : Value(None{});
}

Value dict_copy(RenderState& state, const Value& self, const Arguments& arguments) {
  const Signature given(state, "copy", arguments, {});
  return self;  // dictionaries never change
}

constexpr Builtin kDictMethods[] = {
    {"copy", &dict_copy},
    {"get", &dict_get},
    {"items", &dict_view<Part::items>},
    {"keys", &dict_view<Part::keys>},
    {"values", &dict_view<Part::values>},
};

Value loop_cycle(RenderState& state, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) state.fail("'cycle' needs something to cycle through");
  const Loop& loop = **self.as<Loop*>();
  return arguments.positional[loop.index % arguments.positional.size()];
}

Value loop_changed(RenderState& state, const Value& self, const Arguments& arguments) {
  Loop& loop = **self.as<Loop*>();
  const std::vector<Value>& now = arguments.positional;
  bool is_same = loop.has_changed && now.size() == loop.last_changed.size();
  for (size_t i = 0; is_same && i < now.size(); ++i) {
    is_same = are_equal(state, now[i], loop.last_changed[i]);
  }
  loop.has_changed = true;
  loop.last_changed = now;
  return !is_same;
}

constexpr Builtin kLoopMethods[] = {{"changed", &loop_changed}, {"cycle", &loop_cycle}};

}  // namespace

const Builtin* find_text_method(std::string_view name) { return find_builtin(kTextMethods, name); }
const Builtin* find_dict_method(std::string_view name) { return find_builtin(kDictMethods, name); }
const Builtin* find_loop_method(std::string_view name) { return find_builtin(kLoopMethods, name); }

}  // namespace tessera::chat
