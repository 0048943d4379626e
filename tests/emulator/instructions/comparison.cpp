// setp, selp and testp. A comparison of f16 is one of f32, and a predicate is a mask of lanes.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "tests/emulator/instructions/families.h"
#include "tests/emulator/instructions/lanes.h"
#include "tests/emulator/small_floats.h"

namespace tessera::emulator {
namespace {

struct Outputs {
  bool has_opposite = false;  // setp writes the opposite to a second predicate, in at[3]
};

struct Half {  // f16 in a register
  uint16_t bits;
};

template <class T>
auto value_of(T value) {
  if constexpr (std::is_same_v<T, Half>) {
    return from_f16(value.bits);
  } else {
    return value;
  }
}

template <class F, class T>
void compare(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const T* const a = warp.reg<T>(instruction.at[1]);
  const T* const b = warp.reg<T>(instruction.at[2]);
  uint32_t result = 0;
  for_each_lane(lanes, [&](int lane) {
    result |= uint32_t{F{}(value_of(a[lane]), value_of(b[lane]))} << lane;
  });
  warp.set_predicate(instruction.at[0], lanes, result);
  if (instruction.details<Outputs>().has_opposite) {
    warp.set_predicate(instruction.at[3], lanes, ~result);
  }
}

// With a NaN the ordered comparisons are false, and the unordered ones (ltu) true.
struct Equal {
  template <class T>
  bool operator()(T a, T b) const {
    return a == b;
  }
};
struct NotEqual {
  template <class T>
  bool operator()(T a, T b) const {
    return a < b || a > b;
  }
};
struct Less {
  template <class T>
  bool operator()(T a, T b) const {
    return a < b;
  }
};
struct LessOrEqual {
  template <class T>
  bool operator()(T a, T b) const {
    return a <= b;
  }
};
template <class F>
struct Swapped {
  template <class T>
  bool operator()(T a, T b) const {
    return F{}(b, a);
  }
};
template <class F>
struct Unless {
  template <class T>
  bool operator()(T a, T b) const {
    return !F{}(a, b);
  }
};
struct AreNumbers {
  template <class T>
  bool operator()(T a, T b) const {
    return a == a && b == b;
  }
};
struct IsInfinite {
  bool operator()(float a, float) const { return std::isinf(a); }
};
struct IsFinite {
  bool operator()(float a, float) const { return std::isfinite(a); }
};

using Greater = Swapped<Less>;
using GreaterOrEqual = Swapped<LessOrEqual>;

template <class T>
Handler comparison_named(std::string_view name) {
  struct Named {
    std::string_view name;
    Handler handler;
  };
  static constexpr Named kComparisons[] = {
      {"eq", compare<Equal, T>},
      {"ne", compare<NotEqual, T>},
      {"lt", compare<Less, T>},
      {"lo", compare<Less, T>},
      {"le", compare<LessOrEqual, T>},
      {"ls", compare<LessOrEqual, T>},
      {"gt", compare<Greater, T>},
      {"hi", compare<Greater, T>},
      {"ge", compare<GreaterOrEqual, T>},
      {"hs", compare<GreaterOrEqual, T>},
      {"equ", compare<Unless<NotEqual>, T>},
      {"neu", compare<Unless<Equal>, T>},
      {"ltu", compare<Unless<GreaterOrEqual>, T>},
      {"leu", compare<Unless<Greater>, T>},
      {"gtu", compare<Unless<LessOrEqual>, T>},
      {"geu", compare<Unless<Less>, T>},
      {"num", compare<AreNumbers, T>},
      {"nan", compare<Unless<AreNumbers>, T>},
  };
  for (const Named& comparison : kComparisons) {
    if (comparison.name == name) return comparison.handler;
  }
  return nullptr;
}

void bind_setp(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const auto type = last_type(statement);
  const bool has_more = statement.parts.size() > 3 && statement.part(2) != "ftz";
  if (!type || has_more) return;  // a comparison combined with another predicate
  const int bytes = std::max(2, bytes_of(*type));
  const bool has_opposite = statement.operand(1).is_second;
  const size_t inputs = has_opposite ? 2 : 1;
  instruction.at[0] = builder.slot(statement.operand(0), 1).at;
  instruction.at[1] = builder.slot(statement.operand(inputs), bytes).at;
  instruction.at[2] = builder.slot(statement.operand(inputs + 1), bytes).at;
  if (has_opposite) instruction.at[3] = builder.slot(statement.operand(1), 1).at;
  instruction.set_details(Outputs{has_opposite});
  const std::string& name = statement.part(1);
  switch (*type) {
    case Type::f32: instruction.handler = comparison_named<float>(name); break;
    case Type::f64: instruction.handler = comparison_named<double>(name); break;
    case Type::f16: instruction.handler = comparison_named<Half>(name); break;
    default:
      instruction.handler =
          for_integer_type(*type, [&](auto t) { return comparison_named<decltype(t)>(name); });
  }
}

void bind_testp(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  if (last_type(statement) != Type::f32) return;
  instruction.at[0] = builder.slot(statement.operand(0), 1).at;
  instruction.at[1] = instruction.at[2] = builder.slot(statement.operand(1), 4).at;
  instruction.set_details(Outputs{});
  if (statement.has("infinite")) instruction.handler = compare<IsInfinite, float>;
  if (statement.has("finite")) instruction.handler = compare<IsFinite, float>;
  if (statement.has("notanumber")) instruction.handler = compare<Unless<AreNumbers>, float>;
  if (statement.has("number")) instruction.handler = compare<AreNumbers, float>;
}

struct Choice {
  bool is_negated = false;
};

template <class T>
void select(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  uint32_t chosen = warp.predicate(instruction.at[3]);
  if (instruction.details<Choice>().is_negated) chosen = ~chosen;
  T* const out = warp.reg<T>(instruction.at[0]);
  const T* const a = warp.reg<T>(instruction.at[1]);
  const T* const b = warp.reg<T>(instruction.at[2]);
  for_each_lane(lanes,
                [&](int lane) { out[lane] = (chosen >> lane & 1) != 0 ? a[lane] : b[lane]; });
}

void bind_selp(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const auto type = last_type(statement);
  if (!type) return;
  const int bytes = bytes_of(*type);
  use_operands(instruction, statement, builder, 3, bytes);
  instruction.at[3] = builder.slot(statement.operand(3), 1).at;
  instruction.set_details(Choice{statement.operand(3).is_negated});
  if (bytes == 2) instruction.handler = select<uint16_t>;
  if (bytes == 4) instruction.handler = select<uint32_t>;
  if (bytes == 8) instruction.handler = select<uint64_t>;
}

constexpr Family kFamilies[] = {{"setp", bind_setp}, {"testp", bind_testp}, {"selp", bind_selp}};

}  // namespace

std::span<const Family> comparison_instructions() { return kFamilies; }

}  // namespace tessera::emulator
