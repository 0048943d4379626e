// Truth, comparison, membership and arithmetic.
// SPDX-License-Identifier: MIT
#include "text/chat/operators.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

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
  // Namespaces, macros, functions and loops equal only themselves.
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

// With NaN, "a <= b" is not "not (a > b)".
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

namespace {

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};

std::string_view symbol(BinaryOp op) { return kSymbols[static_cast<size_t>(op)]; }

[[noreturn]] void fail_overflow(RenderState& state, BinaryOp op) {
  state.fail(concat("the result of '", symbol(op), "' exceeds 64 bits"));
}

int64_t divide_down(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

int64_t raise(RenderState& state, int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (true) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) {
      fail_overflow(state, BinaryOp::power);
    }
    exponent >>= 1;
    if (exponent == 0) return result;
    if (__builtin_mul_overflow(base, base, &base)) fail_overflow(state, BinaryOp::power);
  }
}

Value calculate_integers(RenderState& state, BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOp::add:
      if (__builtin_add_overflow(a, b, &result)) fail_overflow(state, op);
      return result;
    case BinaryOp::subtract:
      if (__builtin_sub_overflow(a, b, &result)) fail_overflow(state, op);
      return result;
    case BinaryOp::multiply:
      if (__builtin_mul_overflow(a, b, &result)) fail_overflow(state, op);
      return result;
    case BinaryOp::divide: return static_cast<double>(a) / static_cast<double>(b);
    case BinaryOp::floor_divide:
      if (a == INT64_MIN && b == -1) fail_overflow(state, op);
      return divide_down(a, b);
    case BinaryOp::modulo:
      if (b == -1) return int64_t{0};
      return a - divide_down(a, b) * b;
    case BinaryOp::power:
      if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
      return raise(state, a, b);
  }
  return {};
}

Value calculate_reals(RenderState& state, BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::add: return a + b;
    case BinaryOp::subtract: return a - b;
    case BinaryOp::multiply: return a * b;
    case BinaryOp::divide: return a / b;
    case BinaryOp::floor_divide: return std::floor(a / b);
    case BinaryOp::modulo: {
      const double rest = std::fmod(a, b);
      return rest != 0.0 && (rest < 0.0) != (b < 0.0) ? rest + b : rest;
    }
    case BinaryOp::power:
      if (a < 0.0 && b != std::floor(b)) state.fail("'**' of a negative number has no real result");
      return std::pow(a, b);
  }
  return {};
}

bool needs_divisor(BinaryOp op) {
  return op == BinaryOp::divide || op == BinaryOp::floor_divide || op == BinaryOp::modulo;
}

Value join_lists(RenderState& state, const List& a, const List& b) {
  state.pay_elements(a.items.size() + b.items.size());
  std::vector<Value> items = a.items;
  items.insert(items.end(), b.items.begin(), b.items.end());
  return state.make_list(std::move(items), a.kind);
}

Value repeat_text(RenderState& state, const Text& text, int64_t times) {
  TextBuilder builder(state);
  if (text.empty() || times <= 0) return builder.take_value();
  size_t size = 0;
  if (__builtin_mul_overflow(text.size(), static_cast<size_t>(times), &size)) size = SIZE_MAX;
  state.check_text_size(size);
  if (text.runs().size() > 1) {
    for (int64_t i = 0; i < times; ++i) builder.append(text);
    return builder.take_value();
  }
  std::string bytes;
  bytes.reserve(size);
  for (int64_t i = 0; i < times; ++i) bytes.append(text.bytes());
  builder.append(bytes, text.runs().front().is_control);
  return builder.take_value();
}

Value repeat_list(RenderState& state, const List& list, int64_t times) {
  std::vector<Value> items;
  for (int64_t i = 0; i < times && !list.items.empty(); ++i) {
    state.pay_elements(list.items.size());
    items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return state.make_list(std::move(items), list.kind);
}

bool is_real_list(const Value& value) {
  return value.list() && value.list()->kind <= ListKind::tuple;
}

}  // namespace

Value calculate(RenderState& state, BinaryOp op, const Value& a, const Value& b) {
  if (a.is_undefined()) fail_undefined(state, a);
  if (b.is_undefined()) fail_undefined(state, b);
  const auto x = real_of(a);
  const auto y = real_of(b);
  if (x && y) {
    if (needs_divisor(op) && *y == 0.0) state.fail(concat("'", symbol(op), "' by zero"));
    const auto i = integer_of(a);
    const auto j = integer_of(b);
    if (op == BinaryOp::power && *x == 0.0 && *y < 0.0) state.fail("'**' of zero by a negative");
    if (i && j) return calculate_integers(state, op, *i, *j);
    return calculate_reals(state, op, *x, *y);
  }
  if (op == BinaryOp::add) {
    if (a.text() && b.text()) {
      TextBuilder builder(state);
      builder.append(*a.text());
      builder.append(*b.text());
      return builder.take_value();
    }
    if (is_real_list(a) && is_real_list(b) && a.list()->kind == b.list()->kind) {
      return join_lists(state, *a.list(), *b.list());
    }
  }
  if (op == BinaryOp::multiply) {
    const Value& repeated = integer_of(a) ? b : a;
    const auto times = integer_of(integer_of(a) ? a : b);
    if (times && repeated.text()) return repeat_text(state, *repeated.text(), *times);
    if (times && is_real_list(repeated)) return repeat_list(state, *repeated.list(), *times);
  }
  state.fail(concat("'", symbol(op), "' can not take ", describe(a), " and ", describe(b)));
}

Value negate(RenderState& state, const Value& value) {
  if (const auto number = integer_of(value)) {
    return calculate_integers(state, BinaryOp::subtract, 0, *number);
  }
  if (const double* number = value.as<double>()) return -*number;
  if (value.is_undefined()) fail_undefined(state, value);
  state.fail(concat("'-' can not take ", describe(value)));
}

}  // namespace tessera::chat
