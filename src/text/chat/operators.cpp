// Truth, equality, order and membership.
// SPDX-License-Identifier: MIT
#include "text/chat/operators.h"

#include <algorithm>

#include "core/text.h"
#include "text/chat/text_ops.h"

namespace tessera::chat {

bool is_true(const Value& value) {
  if (const bool* flag = value.as<bool>()) return *flag;
  if (const int64_t* number = value.as<int64_t>()) return *number != 0;
  if (const double* number = value.as<double>()) return *number != 0.0;
  if (const Text* text = value.text()) return !text->empty();
  if (const List* list = value.list()) return list->kind == ListKind::lazy || !list->items.empty();
  if (const Dict* dict = value.dict()) return dict->size() > 0;
  return !value.is_undefined() && !value.is_none();
}

std::optional<int64_t> integer_of(const Value& value) {
  if (const bool* flag = value.as<bool>()) return *flag ? 1 : 0;
  if (const int64_t* number = value.as<int64_t>()) return *number;
  return {};
}

std::optional<double> real_of(const Value& value) {
  if (const double* number = value.as<double>()) return *number;
  if (const auto number = integer_of(value)) return static_cast<double>(*number);
  return {};
}

void fail_undefined(RenderState& state, const Value& value) {
  const auto& what = value.as<Undefined>()->what;
  state.fail(what ? *what : "the value is undefined");
}

namespace {

bool are_equal_lists(RenderState& state, const List& a, const List& b) {
  if (a.kind != b.kind || a.items.size() != b.items.size()) return &a == &b;
  const auto level = state.enter_value();
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!are_equal(state, a.items[i], b.items[i])) return false;
  }
  return true;
}

bool are_equal_dicts(RenderState& state, const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  const auto level = state.enter_value();
  for (const auto& [key, value] : a.entries()) {
    if (const Text* text = key.text()) state.pay_bytes(text->size());
    const Value* other = b.find(key);
    if (!other || !are_equal(state, value, *other)) return false;
  }
  return true;
}

}  // namespace

bool are_equal(RenderState& state, const Value& a, const Value& b) {
  state.pay(1);
  if (const Text* text = a.text()) {
    const Text* other = b.text();
    if (!other || text->size() != other->size()) return false;
    state.pay_bytes(text->size());
    return text->bytes() == other->bytes();
  }
  if (const auto x = integer_of(a)) {
    if (const auto y = integer_of(b)) return *x == *y;
  }
  if (const auto x = real_of(a)) {
    const auto y = real_of(b);
    return y && *x == *y;
  }
  if (a.list() && b.list()) return are_equal_lists(state, *a.list(), *b.list());
  if (a.dict() && b.dict()) return are_equal_dicts(state, *a.dict(), *b.dict());
  if (a.data().index() != b.data().index()) return false;
  if (a.is_none() || a.is_undefined()) return true;
  // Namespaces, macros, functions and loops are equal to themselves alone.
  return std::visit(
      [](const auto& x, const auto& y) {
        if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(x)>> &&
                      std::is_same_v<decltype(x), decltype(y)>) {
          return x == y;
        } else {
          return false;
        }
      },
      a.data(), b.data());
}

bool is_less(RenderState& state, const Value& a, const Value& b) {
  state.pay(1);
  if (a.is_undefined()) fail_undefined(state, a);
  if (b.is_undefined()) fail_undefined(state, b);
  if (a.text() && b.text()) {
    state.pay_bytes(std::min(a.text()->size(), b.text()->size()));
    return a.text()->bytes() < b.text()->bytes();  // UTF-8 sorts as its code points do
  }
  const auto i = integer_of(a);
  const auto j = integer_of(b);
  if (i && j) return *i < *j;
  const auto x = real_of(a);
  const auto y = real_of(b);
  if (x && y) return *x < *y;
  const List* left = a.list();
  const List* right = b.list();
  if (left && right && left->kind == right->kind && left->kind <= ListKind::tuple) {
    const auto level = state.enter_value();
    const size_t shared = std::min(left->items.size(), right->items.size());
    for (size_t k = 0; k < shared; ++k) {
      if (are_equal(state, left->items[k], right->items[k])) continue;
      return is_less(state, left->items[k], right->items[k]);
    }
    return left->items.size() < right->items.size();
  }
  state.fail(concat("'<' and '>' can not compare ", describe(a), " with ", describe(b)));
}

namespace {

// "At most" is not "not greater" where a value is not a number.
bool is_less_or_equal(RenderState& state, const Value& a, const Value& b) {
  return is_less(state, a, b) || are_equal(state, a, b);
}

}  // namespace

bool compare(RenderState& state, CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::equal: return are_equal(state, a, b);
    case CompareOp::unequal: return !are_equal(state, a, b);
    case CompareOp::less: return is_less(state, a, b);
    case CompareOp::less_equal: return is_less_or_equal(state, a, b);
    case CompareOp::greater: return is_less(state, b, a);
    case CompareOp::greater_equal: return is_less_or_equal(state, b, a);
    case CompareOp::in: return contains(state, b, a);
    case CompareOp::not_in: return !contains(state, b, a);
  }
  return false;
}

bool contains(RenderState& state, const Value& container, const Value& item) {
  if (const Text* text = container.text()) {
    if (item.is_undefined()) fail_undefined(state, item);
    if (!item.text()) {
      state.fail(concat("'in' a string needs a string on its left; got ", describe(item)));
    }
    return find_text(state, text->bytes(), item.text()->bytes(), 0) != std::string_view::npos;
  }
  if (const List* list = container.list()) {
    const auto is_item = [&](const Value& element) { return are_equal(state, element, item); };
    return std::ranges::any_of(list->items, is_item);
  }
  if (const Dict* dict = container.dict()) {
    if (const Text* text = item.text()) state.pay_bytes(text->size());
    return Dict::can_be_key(item) && dict->find(item) != nullptr;
  }
  if (container.is_undefined()) return false;
  state.fail(concat("'in' needs a container on its right; got ", describe(container)));
}

}  // namespace tessera::chat
