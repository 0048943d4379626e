// Logic, shifts, bit fields and permutations of bytes.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <bit>
#include <type_traits>

#include "tests/emulator/instructions/families.h"
#include "tests/emulator/instructions/lanes.h"

namespace tessera::emulator {
namespace {

struct And {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};
struct Not {
  template <class T>
  T operator()(T a) const {
    return static_cast<T>(~a);
  }
};

// Predicates are masks of lanes: the whole warp in one operation.
struct PredicateLogic {
  bool is_a_negated = false, is_b_negated = false;
};

template <class F>
void predicate_logic(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto& logic = instruction.details<PredicateLogic>();
  uint32_t a = warp.predicate(instruction.at[1]);
  if (logic.is_a_negated) a = ~a;
  if constexpr (std::is_same_v<F, Not>) {
    warp.set_predicate(instruction.at[0], lanes, ~a);
  } else {
    uint32_t b = warp.predicate(instruction.at[2]);
    if (logic.is_b_negated) b = ~b;
    warp.set_predicate(instruction.at[0], lanes, F{}(a, b));
  }
}

template <class F>
void bind_logic(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  constexpr size_t kInputs = std::is_same_v<F, Not> ? 1 : 2;
  const auto type = last_type(statement);
  if (!type) return;
  use_operands(instruction, statement, builder, kInputs + 1, bytes_of(*type));
  if (*type == Type::pred) {
    instruction.set_details(
        PredicateLogic{.is_a_negated = statement.operand(1).is_negated,
                       .is_b_negated = kInputs == 2 && statement.operand(2).is_negated});
    instruction.handler = predicate_logic<F>;
    return;
  }
  instruction.handler = for_integer_type(*type, [](auto t) -> Handler {
    using T = decltype(t);
    if constexpr (kInputs == 1) {
      return elementwise<F, T, T>;
    } else {
      return elementwise<F, T, T, T>;
    }
  });
}

struct ShiftLeft {
  template <class T>
  T operator()(T a, uint32_t by) const {
    return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(static_cast<uint64_t>(a) << by);
  }
};
struct ShiftRight {
  template <class T>
  T operator()(T a, uint32_t by) const {
    if (by >= 8 * sizeof(T)) return a < 0 ? static_cast<T>(-1) : T{0};
    return static_cast<T>(a >> by);
  }
};

template <class F>
void bind_shift(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const auto type = last_type(statement);
  if (!type) return;
  use_operands(instruction, statement, builder, 2, bytes_of(*type));
  instruction.at[2] = builder.slot(statement.operand(2), 4).at;
  instruction.handler = for_integer_type(*type, [](auto t) -> Handler {
    using T = decltype(t);
    return elementwise<F, T, T, uint32_t>;
  });
}

// shf: 32 bits out of the 64 of two registers.
template <bool kLeft, bool kWraps>
struct Funnel {
  uint32_t operator()(uint32_t low, uint32_t high, uint32_t by) const {
    const uint64_t both = uint64_t{high} << 32 | low;
    const uint32_t shift = kWraps ? by & 31 : std::min(by, 32u);
    return static_cast<uint32_t>(kLeft ? both >> (32 - shift) : both >> shift);
  }
};

template <bool kLeft, bool kWraps>
constexpr Handler kFunnel =
    elementwise<Funnel<kLeft, kWraps>, uint32_t, uint32_t, uint32_t, uint32_t>;

void bind_funnel(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  use_operands(instruction, statement, builder, 4, 4);
  const bool is_left = statement.has("l");
  instruction.handler = statement.has("wrap")
                            ? (is_left ? kFunnel<true, true> : kFunnel<false, true>)
                            : (is_left ? kFunnel<true, false> : kFunnel<false, false>);
}

constexpr uint64_t low_mask(uint32_t count) {
  return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

struct InsertField {
  template <class T>
  T operator()(T field, T into, uint32_t position, uint32_t length) const {
    const uint32_t from = position & 255;
    if (from >= 64) return into;
    const uint64_t mask = low_mask(length & 255) << from;
    return static_cast<T>((into & ~mask) | (static_cast<uint64_t>(field) << from & mask));
  }
};
struct ExtractField {
  template <class T>
  T operator()(T a, uint32_t position, uint32_t length) const {
    constexpr uint32_t kBits = 8 * sizeof(T);
    const uint32_t from = position & 255, count = length & 255;
    if (count == 0) return 0;
    const auto value = static_cast<std::make_unsigned_t<T>>(a);
    const uint64_t field =
        from >= kBits ? 0 : static_cast<uint64_t>(value >> from) & low_mask(count);
    if constexpr (std::is_unsigned_v<T>) return static_cast<T>(field);
    const uint32_t sign_at = std::min(from + count - 1, kBits - 1);
    const uint32_t used = from >= kBits ? 0 : std::min(count, kBits - from);
    const bool is_negative = (value >> sign_at & 1) != 0;
    return static_cast<T>(is_negative ? field | ~low_mask(used) : field);
  }
};

void bind_insert(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const auto type = last_type(statement);
  if (!type) return;
  use_operands(instruction, statement, builder, 3, bytes_of(*type));
  for (const size_t i : {3u, 4u}) instruction.at[i] = builder.slot(statement.operand(i), 4).at;
  if (*type == Type::u32) {
    instruction.handler =
        elementwise<InsertField, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>;
  } else if (*type == Type::u64) {
    instruction.handler =
        elementwise<InsertField, uint64_t, uint64_t, uint64_t, uint32_t, uint32_t>;
  }
}

void bind_extract(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const auto type = last_type(statement);
  if (!type) return;
  use_operands(instruction, statement, builder, 2, bytes_of(*type));
  for (const size_t i : {2u, 3u}) instruction.at[i] = builder.slot(statement.operand(i), 4).at;
  instruction.handler = for_integer_type(*type, [](auto t) -> Handler {
    using T = decltype(t);
    return elementwise<ExtractField, T, T, uint32_t, uint32_t>;
  });
}

struct Reverse {
  uint32_t operator()(uint32_t a) const {
    uint32_t result = 0;
    for (int i = 0; i < 32; ++i) result |= (a >> i & 1) << (31 - i);
    return result;
  }
};
struct LeadingZeros {
  template <class T>
  uint32_t operator()(T a) const {
    return static_cast<uint32_t>(std::countl_zero(a));
  }
};
struct CountOnes {
  template <class T>
  uint32_t operator()(T a) const {
    return static_cast<uint32_t>(std::popcount(a));
  }
};
// The position of the highest bit that differs from the sign, or (kAsShift) the shift that would
// bring it to the top; all bits set if there is none.
template <bool kAsShift>
struct FindHighest {
  template <class T>
  uint32_t operator()(T a) const {
    using Bits = std::make_unsigned_t<T>;
    const Bits value = static_cast<Bits>(a < 0 ? ~a : a);
    if (value == 0) return ~0u;
    const auto shift = static_cast<uint32_t>(std::countl_zero(value));
    return kAsShift ? shift : 8 * sizeof(T) - 1 - shift;
  }
};

template <class F>
void bind_count(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const auto type = last_type(statement);
  if (!type) return;
  instruction.at[0] = builder.slot(statement.operand(0), 4).at;
  instruction.at[1] = builder.slot(statement.operand(1), bytes_of(*type)).at;
  if (*type == Type::u32) instruction.handler = elementwise<F, uint32_t, uint32_t>;
  if constexpr (!std::is_same_v<F, Reverse>) {
    if (*type == Type::u64) instruction.handler = elementwise<F, uint32_t, uint64_t>;
  }
}

template <bool kAsShift>
Handler find_highest(Type type) {
  return for_integer_type(type, [](auto t) -> Handler {
    return elementwise<FindHighest<kAsShift>, uint32_t, decltype(t)>;
  });
}

void bind_find(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const auto type = last_type(statement);
  if (!type || bytes_of(*type) < 4) return;
  instruction.at[0] = builder.slot(statement.operand(0), 4).at;
  instruction.at[1] = builder.slot(statement.operand(1), bytes_of(*type)).at;
  instruction.handler =
      statement.has("shiftamt") ? find_highest<true>(*type) : find_highest<false>(*type);
}

// lop3: any function of three bits, given by its table of eight.
struct Table {
  uint32_t table;
};

void look_up(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const uint32_t table = instruction.details<Table>().table;
  for_each_lane(lanes, [&](int lane) {
    const uint32_t a = warp.reg<uint32_t>(instruction.at[1])[lane];
    const uint32_t b = warp.reg<uint32_t>(instruction.at[2])[lane];
    const uint32_t c = warp.reg<uint32_t>(instruction.at[3])[lane];
    uint32_t result = 0;
    for (int row = 0; row < 8; ++row) {
      if ((table >> row & 1) == 0) continue;
      result |= ((row & 4) != 0 ? a : ~a) & ((row & 2) != 0 ? b : ~b) & ((row & 1) != 0 ? c : ~c);
    }
    warp.reg<uint32_t>(instruction.at[0])[lane] = result;
  });
}

void bind_lop3(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  use_operands(instruction, statement, builder, 4, 4);
  instruction.set_details(Table{static_cast<uint32_t>(statement.number(4))});
  instruction.handler = look_up;
}

// prmt: each byte of the result is one of eight bytes, or eight copies of its sign.
struct Permute {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t selectors) const {
    const uint64_t bytes = uint64_t{b} << 32 | a;
    uint32_t result = 0;
    for (int i = 0; i < 4; ++i) {
      const uint32_t selector = selectors >> 4 * i & 15;
      auto byte = static_cast<uint32_t>(bytes >> 8 * (selector & 7) & 255);
      if ((selector & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
      result |= byte << 8 * i;
    }
    return result;
  }
};

void bind_permute(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  if (statement.parts.size() != 2) return;
  use_operands(instruction, statement, builder, 4, 4);
  instruction.handler = elementwise<Permute, uint32_t, uint32_t, uint32_t, uint32_t>;
}

constexpr Family kFamilies[] = {
    {"and", bind_logic<And>},
    {"or", bind_logic<Or>},
    {"xor", bind_logic<Xor>},
    {"not", bind_logic<Not>},
    {"shl", bind_shift<ShiftLeft>},
    {"shr", bind_shift<ShiftRight>},
    {"shf", bind_funnel},
    {"bfi", bind_insert},
    {"bfe", bind_extract},
    {"brev", bind_count<Reverse>},
    {"clz", bind_count<LeadingZeros>},
    {"popc", bind_count<CountOnes>},
    {"bfind", bind_find},
    {"lop3", bind_lop3},
    {"prmt", bind_permute},
};

}  // namespace

std::span<const Family> bit_instructions() { return kFamilies; }

}  // namespace tessera::emulator
