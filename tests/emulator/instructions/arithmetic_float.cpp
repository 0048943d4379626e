// Arithmetic of f64, f32, and of 16-bit numbers alone and in pairs.
//
// Approximate instructions (ex2, lg2, rcp, rsqrt, sin, cos, tanh) are those of the host's library,
// which are closer to the exact value than a device's. 16-bit numbers are computed in f32 and
// rounded once, which is exact for everything but fma, whose double-precision result is rounded
// twice.
// SPDX-License-Identifier: MIT
#include "tests/emulator/instructions/arithmetic_float.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/emulator/instructions/lanes.h"
#include "tests/emulator/small_floats.h"

namespace tessera::emulator {
namespace {

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
struct Sub {
  template <class T>
  T operator()(T a, T b) const {
    return a - b;
  }
};
struct Mul {
  template <class T>
  T operator()(T a, T b) const {
    return a * b;
  }
};
struct Div {
  template <class T>
  T operator()(T a, T b) const {
    return a / b;
  }
};
struct Fma {
  template <class T>
  T operator()(T a, T b, T c) const {
    return std::fma(a, b, c);
  }
};
struct Neg {
  template <class T>
  T operator()(T a) const {
    return -a;
  }
};
struct Abs {
  template <class T>
  T operator()(T a) const {
    return std::fabs(a);
  }
};
struct CopySign {  // PTX gives the sign first
  template <class T>
  T operator()(T sign, T magnitude) const {
    return std::copysign(magnitude, sign);
  }
};

// The larger or smaller of two: -0 is smaller than +0. A NaN is ignored, or (kKeepsNan) returned.
template <bool kLargest, bool kKeepsNan>
struct Extreme {
  template <class T>
  T operator()(T a, T b) const {
    if (std::isnan(a) || std::isnan(b)) {
      if (kKeepsNan) return std::numeric_limits<T>::quiet_NaN();
      return std::isnan(a) ? b : a;
    }
    const bool is_a_larger = a == b ? !std::signbit(a) : a > b;
    return is_a_larger == kLargest ? a : b;
  }
};

// A result of double precision rounded to f32 towards zero, down or up.
enum class Towards { zero, down, up };

template <Towards kTowards>
float round_directed(double exact) {
  const auto nearest = static_cast<float>(exact);
  const double value = nearest;
  const bool is_too_large = value > exact, is_too_small = value < exact;
  const bool goes_down = kTowards == Towards::down || (kTowards == Towards::zero && exact > 0);
  if (is_too_large && goes_down) return std::nextafter(nearest, -INFINITY);
  if (is_too_small && !goes_down) return std::nextafter(nearest, INFINITY);
  return nearest;
}

template <class F, Towards kTowards>
struct Directed {
  template <class... T>
  float operator()(T... operands) const {
    return round_directed<kTowards>(F{}(static_cast<double>(operands)...));
  }
};

// Approximations, with subnormal operands and results replaced by zero where the opcode says .ftz.
struct Exp2 {
  template <class T>
  T operator()(T a) const {
    return std::exp2(a);
  }
};
struct Log2 {
  template <class T>
  T operator()(T a) const {
    return std::log2(a);
  }
};
struct Reciprocal {
  template <class T>
  T operator()(T a) const {
    return T{1} / a;
  }
};
struct SquareRoot {
  template <class T>
  T operator()(T a) const {
    return std::sqrt(a);
  }
};
struct ReciprocalRoot {
  template <class T>
  T operator()(T a) const {
    return static_cast<T>(1.0 / std::sqrt(static_cast<double>(a)));
  }
};
struct Sine {
  template <class T>
  T operator()(T a) const {
    return std::sin(a);
  }
};
struct Cosine {
  template <class T>
  T operator()(T a) const {
    return std::cos(a);
  }
};
struct Tangent {
  template <class T>
  T operator()(T a) const {
    return std::tanh(a);
  }
};
template <class F>
struct Flushed {
  float operator()(float a) const { return flush_subnormal(F{}(flush_subnormal(a))); }
};

struct F16 {
  static float load(uint16_t bits) { return from_f16(bits); }
  static uint16_t store(float value) { return to_f16(value); }
};
struct Bf16 {
  static float load(uint16_t bits) { return from_bf16(bits); }
  static uint16_t store(float value) { return to_bf16(value); }
};

// F on one 16-bit number, or on two in a word.
template <class Format, class F>
struct OfHalves {
  template <class Word, class... Words>
  Word operator()(Word first, Words... others) const {
    uint32_t result = 0;
    for (size_t shift = 0; shift < 8 * sizeof(Word); shift += 16) {
      const auto load = [&](Word word) {
        return Format::load(static_cast<uint16_t>(word >> shift));
      };
      const float value = F{}(load(first), load(others)...);
      result |= uint32_t{Format::store(value)} << shift;
    }
    return static_cast<Word>(result);
  }
};

template <class F, class T, size_t kInputs>
constexpr Handler handler_of() {
  if constexpr (kInputs == 1) return elementwise<F, T, T>;
  if constexpr (kInputs == 2) return elementwise<F, T, T, T>;
  if constexpr (kInputs == 3) return elementwise<F, T, T, T, T>;
}

template <class F, size_t kInputs>
Handler handler_for(Type type) {
  switch (type) {
    case Type::f32: return handler_of<F, float, kInputs>();
    case Type::f64: return handler_of<F, double, kInputs>();
    case Type::f16: return handler_of<OfHalves<F16, F>, uint16_t, kInputs>();
    case Type::bf16: return handler_of<OfHalves<Bf16, F>, uint16_t, kInputs>();
    case Type::f16x2: return handler_of<OfHalves<F16, F>, uint32_t, kInputs>();
    case Type::bf16x2: return handler_of<OfHalves<Bf16, F>, uint32_t, kInputs>();
    default: return nullptr;
  }
}

template <class F, size_t kInputs>
Handler directed_handler(const Statement& statement) {
  if (statement.has("rz")) return handler_of<Directed<F, Towards::zero>, float, kInputs>();
  if (statement.has("rm")) return handler_of<Directed<F, Towards::down>, float, kInputs>();
  return handler_of<Directed<F, Towards::up>, float, kInputs>();
}

template <class F, size_t kInputs>
void bind_rounded(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const Type type = *last_type(statement);
  if (statement.has("sat") || statement.has("relu")) return;
  use_operands(instruction, statement, builder, kInputs + 1, std::max(2, bytes_of(type)));
  const bool is_directed = statement.has("rz") || statement.has("rm") || statement.has("rp");
  if (!is_directed) {
    instruction.handler = handler_for<F, kInputs>(type);
  } else if (type == Type::f32) {
    instruction.handler = directed_handler<F, kInputs>(statement);
  }
}

template <bool kLargest>
void bind_extreme(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const Type type = *last_type(statement);
  use_operands(instruction, statement, builder, 3, std::max(2, bytes_of(type)));
  instruction.handler = statement.has("NaN") ? handler_for<Extreme<kLargest, true>, 2>(type)
                                             : handler_for<Extreme<kLargest, false>, 2>(type);
}

template <class F>
void bind_function(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const auto type = last_type(statement);
  if (type != Type::f32 && type != Type::f64) return;
  use_operands(instruction, statement, builder, 2, bytes_of(*type));
  if (type == Type::f64) {
    instruction.handler = elementwise<F, double, double>;
  } else if (statement.has("ftz")) {
    instruction.handler = elementwise<Flushed<F>, float, float>;
  } else {
    instruction.handler = elementwise<F, float, float>;
  }
}

void bind_fma(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  if (last_type(statement)) bind_rounded<Fma, 3>(instruction, statement, builder);
}

void bind_copysign(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const auto type = last_type(statement);
  if (type != Type::f32 && type != Type::f64) return;
  use_operands(instruction, statement, builder, 3, bytes_of(*type));
  instruction.handler = handler_for<CopySign, 2>(*type);
}

// Those whose names integers have too.
constexpr Family kShared[] = {
    {"add", bind_rounded<Add, 2>}, {"sub", bind_rounded<Sub, 2>}, {"mul", bind_rounded<Mul, 2>},
    {"div", bind_rounded<Div, 2>}, {"neg", bind_rounded<Neg, 1>}, {"abs", bind_rounded<Abs, 1>},
    {"min", bind_extreme<false>},  {"max", bind_extreme<true>},
};

constexpr Family kFamilies[] = {
    {"fma", bind_fma},
    {"copysign", bind_copysign},
    {"ex2", bind_function<Exp2>},
    {"lg2", bind_function<Log2>},
    {"rcp", bind_function<Reciprocal>},
    {"sqrt", bind_function<SquareRoot>},
    {"rsqrt", bind_function<ReciprocalRoot>},
    {"sin", bind_function<Sine>},
    {"cos", bind_function<Cosine>},
    {"tanh", bind_function<Tangent>},
};

}  // namespace

void bind_float(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  for (const Family& family : kShared) {
    if (family.name == statement.part(0)) family.bind(instruction, statement, builder);
  }
}

std::span<const Family> float_instructions() { return kFamilies; }

}  // namespace tessera::emulator
