// add, sub, mul, mad, div, rem, min, max, abs, neg and dp4a of integers. Those of floating point
// share the names, so what is not an integer goes to bind_float.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <limits>
#include <type_traits>

#include "tests/emulator/instructions/arithmetic_float.h"
#include "tests/emulator/instructions/families.h"
#include "tests/emulator/instructions/lanes.h"

namespace tessera::emulator {
namespace {

// Arithmetic wraps, so it is done on 64 unsigned bits and cut to the type.
template <class T>
constexpr uint64_t bits(T value) {
  return static_cast<uint64_t>(value);
}

template <class T>
constexpr bool is_most_negative_by_minus_one(T a, T b) {
  if constexpr (std::is_signed_v<T>) return a == std::numeric_limits<T>::min() && b == -1;
  return false;
}

template <class T>
using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(bits(a) + bits(b));
  }
};
struct Sub {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(bits(a) - bits(b));
  }
};
struct Mul {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(bits(a) * bits(b));
  }
};
struct MulHigh {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>((static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b)) >> (8 * sizeof(T)));
  }
};
struct MulAdd {
  template <class T>
  T operator()(T a, T b, T c) const {
    return static_cast<T>(bits(a) * bits(b) + bits(c));
  }
};
struct MulHighAdd {
  template <class T>
  T operator()(T a, T b, T c) const {
    return Add{}(MulHigh{}(a, b), c);
  }
};
struct MulWide {  // the product has twice the width
  template <class T>
  auto operator()(T a, T b) const {
    return static_cast<int64_t>(bits(a) * bits(b));
  }
};
struct MulAddWide {
  template <class T, class R>
  R operator()(T a, T b, R c) const {
    return static_cast<R>(bits(a) * bits(b) + bits(c));
  }
};
struct Div {  // by zero: all bits set, as the hardware does
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return static_cast<T>(-1);
    if (is_most_negative_by_minus_one(a, b)) return a;
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return a;
    if (is_most_negative_by_minus_one(a, b)) return 0;
    return static_cast<T>(a % b);
  }
};
struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return std::min(a, b);
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return std::max(a, b);
  }
};
struct Neg {
  template <class T>
  T operator()(T a) const {
    return static_cast<T>(-bits(a));
  }
};
struct Abs {
  template <class T>
  T operator()(T a) const {
    return a < 0 ? static_cast<T>(-bits(a)) : a;
  }
};

int32_t saturate(int64_t value) {
  return static_cast<int32_t>(std::clamp<int64_t>(value, std::numeric_limits<int32_t>::min(),
                                                  std::numeric_limits<int32_t>::max()));
}
struct AddSaturated {
  int32_t operator()(int32_t a, int32_t b) const { return saturate(int64_t{a} + b); }
};
struct SubSaturated {
  int32_t operator()(int32_t a, int32_t b) const { return saturate(int64_t{a} - b); }
};

template <class F>
Handler binary(Type type) {
  return for_integer_type(type, [](auto t) -> Handler {
    using T = decltype(t);
    return elementwise<F, T, T, T>;
  });
}

template <class F>
Handler ternary(Type type) {
  return for_integer_type(type, [](auto t) -> Handler {
    using T = decltype(t);
    return elementwise<F, T, T, T, T>;
  });
}

template <class F>
Handler unary(Type type) {
  return for_integer_type(type, [](auto t) -> Handler {
    using T = decltype(t);
    return elementwise<F, T, T>;
  });
}

// F on both 16-bit integers of a word.
template <class F, class T>
struct OfPairs {
  uint32_t operator()(uint32_t a, uint32_t b) const {
    const auto of_half = [&](int shift) {
      const T result = F{}(static_cast<T>(a >> shift), static_cast<T>(b >> shift));
      return uint32_t{static_cast<uint16_t>(result)} << shift;
    };
    return of_half(16) | of_half(0);
  }
};

template <class F>
Handler binary_of_pairs(Type type) {
  if (type == Type::u16x2) return elementwise<OfPairs<F, uint16_t>, uint32_t, uint32_t, uint32_t>;
  return elementwise<OfPairs<F, int16_t>, uint32_t, uint32_t, uint32_t>;
}

// An instruction of integers with `kInputs` operands beside its result; others are floating point.
template <class F, size_t kInputs>
void bind_simple(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const auto type = last_type(statement);
  if (!type) return;
  const bool is_pair = *type == Type::u16x2 || *type == Type::s16x2;
  if (!is_integer(*type) && !is_pair) return bind_float(instruction, statement, builder);
  use_operands(instruction, statement, builder, kInputs + 1, bytes_of(*type));
  if constexpr (kInputs == 1) {
    instruction.handler = unary<F>(*type);
  } else {
    instruction.handler = is_pair ? binary_of_pairs<F>(*type) : binary<F>(*type);
  }
}

template <class F, class Saturated>
void bind_sum(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  bind_simple<F, 2>(instruction, statement, builder);
  const bool is_carried = statement.has("cc");
  if (is_carried) instruction.handler = nullptr;
  if (statement.has("sat") && last_type(statement) == Type::s32) {
    instruction.handler = elementwise<Saturated, int32_t, int32_t, int32_t>;
  }
}

template <class T, class R>
constexpr Handler kMulWide = elementwise<MulWide, R, T, T>;
template <class T, class R>
constexpr Handler kMulAddWide = elementwise<MulAddWide, R, T, T, R>;

// Operands of the type, and a result (and addend) of twice its width.
void bind_wide(Instruction& instruction, const Statement& statement, KernelBuilder& builder,
               Type type) {
  const int bytes = bytes_of(type);
  const bool has_addend = statement.part(0) == "mad";
  use_operands(instruction, statement, builder, 3, bytes);
  instruction.at[0] = builder.slot(statement.operand(0), 2 * bytes).at;
  if (has_addend) instruction.at[3] = builder.slot(statement.operand(3), 2 * bytes).at;
  switch (type) {
    case Type::s16:
      instruction.handler = has_addend ? kMulAddWide<int16_t, int32_t> : kMulWide<int16_t, int32_t>;
      break;
    case Type::u16:
      instruction.handler =
          has_addend ? kMulAddWide<uint16_t, uint32_t> : kMulWide<uint16_t, uint32_t>;
      break;
    case Type::s32:
      instruction.handler = has_addend ? kMulAddWide<int32_t, int64_t> : kMulWide<int32_t, int64_t>;
      break;
    case Type::u32:
      instruction.handler =
          has_addend ? kMulAddWide<uint32_t, uint64_t> : kMulWide<uint32_t, uint64_t>;
      break;
    default: break;
  }
}

void bind_mul(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const auto type = last_type(statement);
  if (!type) return;
  if (!is_integer(*type)) return bind_float(instruction, statement, builder);
  if (statement.has("wide")) return bind_wide(instruction, statement, builder, *type);
  use_operands(instruction, statement, builder, 3, bytes_of(*type));
  if (statement.has("lo")) instruction.handler = binary<Mul>(*type);
  if (statement.has("hi")) instruction.handler = binary<MulHigh>(*type);
}

void bind_mad(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const auto type = last_type(statement);
  if (!type || !is_integer(*type) || statement.has("cc") || statement.has("sat")) return;
  if (statement.has("wide")) return bind_wide(instruction, statement, builder, *type);
  use_operands(instruction, statement, builder, 4, bytes_of(*type));
  if (statement.has("lo")) instruction.handler = ternary<MulAdd>(*type);
  if (statement.has("hi")) instruction.handler = ternary<MulHighAdd>(*type);
}

// The dot product of four bytes each, added to an integer.
template <class A, class B>
struct Dot4 {
  int32_t operator()(uint32_t a, uint32_t b, int32_t c) const {
    auto sum = static_cast<uint32_t>(c);
    for (int i = 0; i < 4; ++i) {
      sum += static_cast<uint32_t>(static_cast<A>(a >> 8 * i) * static_cast<B>(b >> 8 * i));
    }
    return static_cast<int32_t>(sum);
  }
};

template <class A, class B>
constexpr Handler kDot4 = elementwise<Dot4<A, B>, int32_t, uint32_t, uint32_t, int32_t>;

void bind_dp4a(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  use_operands(instruction, statement, builder, 4, 4);
  const bool is_a_signed = statement.part(1) == "s32", is_b_signed = statement.part(2) == "s32";
  instruction.handler = is_a_signed
                            ? (is_b_signed ? kDot4<int8_t, int8_t> : kDot4<int8_t, uint8_t>)
                            : (is_b_signed ? kDot4<uint8_t, int8_t> : kDot4<uint8_t, uint8_t>);
}

constexpr Family kFamilies[] = {
    {"add", bind_sum<Add, AddSaturated>},
    {"sub", bind_sum<Sub, SubSaturated>},
    {"mul", bind_mul},
    {"mad", bind_mad},
    {"dp4a", bind_dp4a},
    {"div", bind_simple<Div, 2>},
    {"rem", bind_simple<Rem, 2>},
    {"min", bind_simple<Min, 2>},
    {"max", bind_simple<Max, 2>},
    {"abs", bind_simple<Abs, 1>},
    {"neg", bind_simple<Neg, 1>},
};

}  // namespace

std::span<const Family> integer_instructions() { return kFamilies; }

}  // namespace tessera::emulator
