// Filters that select, order and reduce the elements of a sequence.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <set>

#include "core/text.h"
#include "text/chat/builtins.h"
#include "text/chat/operators.h"
#include "text/chat/print.h"
#include "text/chat/text_ops.h"

namespace tessera::chat {
namespace {

Value filter_list(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "list", arguments, {});
  return state.make_list(take_items(state, input));
}

Value filter_first(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "first", arguments, {});
  const std::vector<Value> items = take_items(state, input);
  return items.empty() ? make_undefined("'first' of nothing is undefined") : items.front();
}

Value filter_last(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "last", arguments, {});
  const std::vector<Value> items = take_items(state, input);
  return items.empty() ? make_undefined("'last' of nothing is undefined") : items.back();
}

Value filter_reverse(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "reverse", arguments, {});
  std::vector<Value> items = take_items(state, input);
  std::ranges::reverse(items);
  if (!input.text()) return state.make_list(std::move(items), ListKind::lazy);
  TextBuilder out(state);
  for (const Value& item : items) out.append(*item.text());
  return out.take_value();
}

std::vector<Value> pairs_of(RenderState& state, const Dict& dict) {
  std::vector<Value> pairs;
  for (const auto& [key, value] : dict.entries()) {
    pairs.push_back(state.make_list({key, value}, ListKind::tuple));
  }
  return pairs;
}

Value filter_items(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "items", arguments, {});
  if (input.is_undefined()) return state.make_list({}, ListKind::lazy);
  if (!input.dict()) state.fail(concat("'items' needs a dictionary; got ", describe(input)));
  return state.make_list(pairs_of(state, *input.dict()), ListKind::lazy);
}

// Strings compare without case unless is_case_sensitive.
Value sort_key(RenderState& state, const Value& value, bool is_case_sensitive) {
  if (is_case_sensitive || !value.text()) return value;
  return change_case(state, *value.text(), Case::lower);
}

// A stable sort. As in Python, a reversed sort keeps the order of equal elements.
std::vector<Value> sort_by(RenderState& state, std::vector<Value> keys, std::vector<Value> items,
                           bool is_reversed) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto precedes = [&](size_t a, size_t b) {
    return is_reversed ? is_less(state, keys[b], keys[a]) : is_less(state, keys[a], keys[b]);
  };
  std::ranges::stable_sort(order, precedes);
  std::vector<Value> sorted;
  for (size_t i : order) sorted.push_back(items[i]);
  return sorted;
}

Value attribute_or_self(RenderState& state, const Signature& given, size_t i, const Value& item) {
  if (!given.has(i) || given.at(i).is_none()) return item;
  if (given.at(i).text()) return get_path(state, item, given.text(i).bytes());
  return get_item(state, item, given.at(i));
}

Value filter_sort(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<Value> items = take_items(state, input);
  std::vector<Value> keys;
  for (const Value& item : items) {
    const Value key = attribute_or_self(state, given, 2, item);
    keys.push_back(sort_key(state, key, given.flag(1, false)));
  }
  return state.make_list(sort_by(state, std::move(keys), std::move(items), given.flag(0, false)));
}

Value filter_dictsort(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (!input.dict()) state.fail(concat("'dictsort' needs a dictionary; got ", describe(input)));
  const std::string_view by = given.has(1) ? given.text(1).bytes() : "key";
  if (by != "key" && by != "value") state.fail("'dictsort' sorts by 'key' or by 'value'");
  std::vector<Value> keys;
  for (const auto& [key, value] : input.dict()->entries()) {
    keys.push_back(sort_key(state, by == "key" ? key : value, given.flag(0, false)));
  }
  return state.make_list(
      sort_by(state, std::move(keys), pairs_of(state, *input.dict()), given.flag(2, false)));
}

Value filter_unique(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "unique", arguments, {"case_sensitive", "attribute"});
  Dict seen;
  std::vector<Value> items;
  for (const Value& item : take_items(state, input)) {
    const Value chosen = attribute_or_self(state, given, 1, item);
    const Value key = sort_key(state, chosen, given.flag(0, false));
    if (!Dict::can_be_key(key)) state.fail(concat("'unique' can not take ", describe(key)));
    if (const Text* text = key.text()) state.pay_bytes(text->size());
    if (seen.find(key)) continue;
    seen.set(key, true);
    items.push_back(item);
  }
  return state.make_list(std::move(items), ListKind::lazy);
}

template <bool kIsMax>
Value filter_extreme(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, kIsMax ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  Value best;
  Value best_key;
  for (const Value& item : take_items(state, input)) {
    const Value chosen = attribute_or_self(state, given, 1, item);
    const Value key = sort_key(state, chosen, given.flag(0, false));
    const bool is_better = best_key.is_undefined() ||
                           (kIsMax ? is_less(state, best_key, key) : is_less(state, key, best_key));
    if (!is_better) continue;
    best = item;
    best_key = key;
  }
  return best;
}

Value filter_sum(RenderState& state, const Value& input, const Arguments& arguments) {
  const Signature given(state, "sum", arguments, {"attribute", "start"});
  Value total = given.has(1) ? given.at(1) : Value(int64_t{0});
  for (const Value& item : take_items(state, input)) {
    total = calculate(state, BinaryOp::add, total, attribute_or_self(state, given, 0, item));
  }
  return total;
}

// The name that the arguments of map, select and reject begin with, and the arguments after it.
struct NamedCall {
  std::string_view name;
  Arguments arguments;
};

NamedCall split_call(RenderState& state, std::string_view callee, const Arguments& arguments,
                     size_t position) {
  const std::vector<Value>& given = arguments.positional;
  const Text* name = given[position].text();
  if (!name) {
    state.fail(
        concat("'", callee, "' needs a name as its argument; got ", describe(given[position])));
  }
  const auto rest = given.begin() + static_cast<std::ptrdiff_t>(position) + 1;
  return {name->bytes(), {std::vector<Value>(rest, given.end()), arguments.named}};
}

Value filter_map(RenderState& state, const Value& input, const Arguments& arguments) {
  std::vector<Value> mapped;
  if (!is_true(input))
    return state.make_list({}, ListKind::lazy);  // Jinja maps none and 0 to nothing
  if (arguments.positional.empty()) {
    const Signature given(state, "map", arguments, {"attribute", "default"}, 1);
    for (const Value& item : take_items(state, input)) {
      Value value = attribute_or_self(state, given, 0, item);
      if (value.is_undefined() && given.has(1)) value = given.at(1);
      mapped.push_back(std::move(value));
    }
  } else {
    const NamedCall call = split_call(state, "map", arguments, 0);
    for (const Value& item : take_items(state, input)) {
      mapped.push_back(apply_filter(state, call.name, item, call.arguments));
    }
  }
  return state.make_list(std::move(mapped), ListKind::lazy);
}

// select, reject, selectattr, rejectattr: by a test of each element or of its attribute.
template <bool kIsKept, bool kHasAttribute>
Value filter_select(RenderState& state, const Value& input, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"reject", "select", "rejectattr", "selectattr"};
  constexpr std::string_view kName = kNames[(kHasAttribute ? 2 : 0) + (kIsKept ? 1 : 0)];
  constexpr size_t kTest = kHasAttribute ? 1 : 0;  // the position of the test's name
  if (!is_true(input)) return state.make_list({}, ListKind::lazy);  // as in Jinja
  if (arguments.positional.size() < kTest) {
    state.fail(concat("'", kName, "' needs the name of an attribute"));
  }
  const bool has_test = arguments.positional.size() > kTest;
  const NamedCall test = has_test ? split_call(state, kName, arguments, kTest) : NamedCall{};
  const std::string_view attribute =
      kHasAttribute ? split_call(state, kName, arguments, 0).name : std::string_view();
  std::vector<Value> kept;
  for (const Value& item : take_items(state, input)) {
    const Value value = kHasAttribute ? get_path(state, item, attribute) : item;
    const bool passes =
        has_test ? apply_test(state, test.name, value, test.arguments) : is_true(value);
    if (passes == kIsKept) kept.push_back(item);
  }
  return state.make_list(std::move(kept), ListKind::lazy);
}

constexpr Builtin kFilters[] = {
    {"dictsort", &filter_dictsort},
    {"first", &filter_first},
    {"items", &filter_items},
    {"last", &filter_last},
    {"list", &filter_list},
    {"map", &filter_map},
    {"max", &filter_extreme<true>},
    {"min", &filter_extreme<false>},
    {"reject", &filter_select<false, false>},
    {"rejectattr", &filter_select<false, true>},
    {"reverse", &filter_reverse},
    {"select", &filter_select<true, false>},
    {"selectattr", &filter_select<true, true>},
    {"sort", &filter_sort},
    {"sum", &filter_sum},
    {"unique", &filter_unique},
};

}  // namespace

const Builtin* find_sequence_filter(std::string_view name) { return find_builtin(kFilters, name); }

}  // namespace tessera::chat
