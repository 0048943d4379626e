// Attributes, items, slices and elements.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "core/text.h"
#include "text/chat/builtins.h"
#include "text/chat/operators.h"
#include "text/chat/text_ops.h"
#include "text/unicode.h"

namespace tessera::chat {
namespace {

constexpr size_t kShownBytes = 60;  // of a name in a message

Value make_missing(const Value& object, std::string_view name) {
  return make_undefined(
      concat(describe(object), " has no attribute '", name.substr(0, kShownBytes), "'"));
}

Value loop_attribute(RenderState& state, Loop& loop, std::string_view name) {
  const auto count = static_cast<int64_t>(loop.items.size());
  const auto index = static_cast<int64_t>(loop.index);
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return count - index;
  if (name == "revindex0") return count - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == count;
  if (name == "length") return count;
  if (name == "depth") return int64_t{1};  // counts recursion of loops, which is not supported
  if (name == "depth0") return int64_t{0};
  if (name == "previtem") {
    return index > 0 ? loop.items[loop.index - 1] : make_undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < count ? loop.items[loop.index + 1] : make_undefined("there is no next item");
  }
  if (const Builtin* method = find_loop_method(name)) {
    return state.make<Function>(method->name, method->call, Value(&loop));
  }
  return make_missing(&loop, name);
}

// The element of an index, counted from the end if negative; none if out of range.
std::optional<size_t> index_within(int64_t index, size_t size) {
  if (index < 0) index += static_cast<int64_t>(size);
  if (index < 0 || index >= static_cast<int64_t>(size)) return {};
  return static_cast<size_t>(index);
}

const Value* find_in_dict(RenderState& state, const Dict& dict, std::string_view name) {
  state.pay_bytes(name.size());
  return dict.find(name);
}

bool changes_value(const Value& object, std::string_view name) {
  static constexpr std::string_view kOfDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  static constexpr std::string_view kOfList[] = {"append", "clear",  "extend",  "insert",
                                                 "pop",    "remove", "reverse", "sort"};
  if (object.dict()) return std::ranges::find(kOfDict, name) != std::end(kOfDict);
  if (object.list()) return std::ranges::find(kOfList, name) != std::end(kOfList);
  return false;
}

// Methods and fields, but not the items of a dictionary.
Value own_attribute(RenderState& state, const Value& object, std::string_view name) {
  if (object.is_undefined()) fail_undefined(state, object);
  if (name.starts_with("__")) {
    state.fail(concat("attribute '", name.substr(0, kShownBytes), "' is not allowed"));
  }
  if (changes_value(object, name)) {
    state.fail(concat("method '", name, "' is not allowed: it changes ", describe(object)));
  }
  if (const auto* space = object.as<Namespace*>()) {
    const Value* field = find_in_dict(state, (*space)->fields, name);
    return field ? *field : make_missing(object, name);
  }
  if (const auto* loop = object.as<Loop*>()) return loop_attribute(state, **loop, name);
  const Builtin* method = object.text()   ? find_text_method(name)
                          : object.dict() ? find_dict_method(name)
                                          : nullptr;
  if (method) return state.make<Function>(method->name, method->call, object);
  return make_missing(object, name);
}

}  // namespace

Value make_undefined(std::string what) {
  return Undefined{std::make_shared<const std::string>(std::move(what))};
}

Value get_attribute(RenderState& state, const Value& object, std::string_view name) {
  Value own = own_attribute(state, object, name);
  if (!own.is_undefined() || !object.dict()) return own;
  const Value* item = find_in_dict(state, *object.dict(), name);
  return item ? *item : own;
}

Value get_item(RenderState& state, const Value& object, const Value& key) {
  if (object.is_undefined()) fail_undefined(state, object);
  if (const Dict* dict = object.dict()) {
    if (const Text* text = key.text()) state.pay_bytes(text->size());
    const Value* item = Dict::can_be_key(key) ? dict->find(key) : nullptr;
    if (item) return *item;
  }
  if (const Text* name = key.text()) return own_attribute(state, object, name->bytes());
  const auto index = integer_of(key);
  if (index && object.list() && object.list()->kind <= ListKind::range) {
    const List& list = *object.list();
    if (const auto i = index_within(*index, list.items.size())) return list.items[*i];
    return make_undefined(
        concat(describe(object), " of ", list.items.size(), " elements has no element ", *index));
  }
  if (index && object.text()) {
    const std::vector<size_t> offsets = character_offsets(state, *object.text());
    if (const auto i = index_within(*index, offsets.size() - 1)) {
      return sub_text(state, *object.text(), offsets[*i], offsets[*i + 1]);
    }
  }
  return make_undefined(concat(describe(object), " has no such element"));
}

namespace {

struct SliceRange {
  int64_t start;
  int64_t stop;
  int64_t step;
};

int64_t slice_bound(RenderState& state, const Value& value, int64_t standard, int64_t size,
                    int64_t lowest, int64_t highest) {
  if (value.is_none()) return standard;
  if (value.is_undefined()) fail_undefined(state, value);
  const auto number = integer_of(value);
  if (!number) state.fail(concat("a slice needs integers; got ", describe(value)));
  const int64_t bound = *number < 0 ? std::max(*number, -size - 1) + size : *number;
  return std::clamp(bound, lowest, highest);
}

// Python's rules: bounds are clamped to the ends.
SliceRange resolve_slice(RenderState& state, int64_t size, const Value& start, const Value& stop,
                         const Value& step) {
  const std::optional<int64_t> given = step.is_none() ? 1 : integer_of(step);
  if (!given) state.fail(concat("a slice needs integers; got ", describe(step)));
  if (*given == 0) state.fail("the step of a slice can not be zero");
  const int64_t stride = std::clamp(*given, -size - 1, size + 1);
  if (stride > 0) {
    return {slice_bound(state, start, 0, size, 0, size),
            slice_bound(state, stop, size, size, 0, size), stride};
  }
  return {slice_bound(state, start, size - 1, size, -1, size - 1),
          slice_bound(state, stop, -1, size, -1, size - 1), stride};
}

}  // namespace

Value get_slice(RenderState& state, const Value& object, const Value& start, const Value& stop,
                const Value& step) {
  if (object.is_undefined()) fail_undefined(state, object);
  const Text* text = object.text();
  const List* list = object.list();
  if (!text && (!list || list->kind > ListKind::range)) {
    return make_undefined(concat(describe(object), " can not be sliced"));
  }
  const std::vector<size_t> offsets =
      text ? character_offsets(state, *text) : std::vector<size_t>();
  const size_t size = text ? offsets.size() - 1 : list->items.size();
  const SliceRange range = resolve_slice(state, static_cast<int64_t>(size), start, stop, step);
  if (text && range.step == 1) {
    const size_t first = static_cast<size_t>(range.start);
    const size_t last = static_cast<size_t>(std::max(range.start, range.stop));
    return sub_text(state, *text, offsets[first], offsets[last]);
  }
  TextBuilder builder(state);
  std::vector<Value> items;
  for (int64_t i = range.start; range.step > 0 ? i < range.stop : i > range.stop; i += range.step) {
    const auto at = static_cast<size_t>(i);
    if (text) {
      builder.append(*text, offsets[at], offsets[at + 1]);
    } else {
      state.pay(1);
      items.push_back(list->items[at]);
    }
  }
  return text ? builder.take_value() : state.make_list(std::move(items), list->kind);
}

Value get_path(RenderState& state, const Value& object, std::string_view path) {
  Value value = object;
  while (true) {
    const size_t dot = std::min(path.find('.'), path.size());
    const std::string_view part = path.substr(0, dot);
    int64_t index = 0;
    const auto read = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index = read.ec == std::errc() && read.ptr == part.data() + part.size();
    state.pay_bytes(part.size());
    value = get_item(state, value, is_index ? Value(index) : control_text(part));
    if (dot == path.size()) return value;
    path.remove_prefix(dot + 1);
  }
}

std::vector<Value> take_items(RenderState& state, const Value& value) {
  if (List* list = value.list()) {
    if (list->kind == ListKind::lazy) return std::exchange(list->items, {});
    state.pay_elements(list->items.size());
    return list->items;
  }
  std::vector<Value> items;
  if (const Dict* dict = value.dict()) {
    state.pay_elements(dict->size());
    for (const auto& [key, unused] : dict->entries()) items.push_back(key);
    return items;
  }
  if (const Text* text = value.text()) {
    const std::vector<size_t> offsets = character_offsets(state, *text);
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      items.push_back(sub_text(state, *text, offsets[i], offsets[i + 1]));
    }
    return items;
  }
  if (value.is_undefined()) return items;
  state.fail(concat(describe(value), " can not be looped over"));
}

size_t length_of(RenderState& state, const Value& value) {
  if (const Text* text = value.text()) {
    state.pay_bytes(text->size());
    return unicode::count_characters(text->bytes());
  }
  if (const List* list = value.list(); list && list->kind != ListKind::lazy) {
    return list->items.size();
  }
  if (const Dict* dict = value.dict()) return dict->size();
  if (const auto* loop = value.as<Loop*>()) return (*loop)->items.size();
  if (value.is_undefined()) return 0;
  state.fail(concat(describe(value), " has no length"));
}

}  // namespace tessera::chat
