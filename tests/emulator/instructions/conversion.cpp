// cvt: between any two types, with a rounding and with saturation, and of pairs of small floats.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tests/emulator/instructions/families.h"
#include "tests/emulator/instructions/lanes.h"
#include "tests/emulator/small_floats.h"

namespace tessera::emulator {
namespace {

enum class Rounding : uint8_t { none, nearest, zero, down, up };

struct Conversion {
  Type from, to;
  Slot result{}, operand{}, low_operand{};  // the second of a pair
  Rounding rounding = Rounding::none;
  bool is_to_integral = false;  // .rni: of a float, to a whole number
  bool saturates = false;
  bool clamps_negative = false;  // .relu
  bool flushes = false;
};

double to_double(uint64_t bits, Type type) {
  switch (type) {
    case Type::f16: return from_f16(static_cast<uint16_t>(bits));
    case Type::bf16: return from_bf16(static_cast<uint16_t>(bits));
    case Type::f32: return std::bit_cast<float>(static_cast<uint32_t>(bits));
    default: return std::bit_cast<double>(bits);
  }
}

// Clamps to what an integer type can hold; NaN becomes 0.
template <class T, class S>
uint64_t clamp_to(S value) {
  using Limits = std::numeric_limits<T>;
  if (value != value) return 0;
  if (value <= static_cast<S>(Limits::min())) return static_cast<uint64_t>(Limits::min());
  if (value >= static_cast<S>(Limits::max())) return static_cast<uint64_t>(Limits::max());
  return static_cast<uint64_t>(static_cast<T>(value));
}

template <class S>
uint64_t clamp_to_type(S value, Type type) {
  switch (type) {
    case Type::u8: return clamp_to<uint8_t>(value);
    case Type::s8: return clamp_to<int8_t>(value);
    case Type::u16: return clamp_to<uint16_t>(value);
    case Type::s16: return clamp_to<int16_t>(value);
    case Type::u32: return clamp_to<uint32_t>(value);
    case Type::s32: return clamp_to<int32_t>(value);
    case Type::u64: return clamp_to<uint64_t>(value);
    default: return clamp_to<int64_t>(value);
  }
}

// The value of an integer type in the lowest bits of a register.
uint64_t extend(uint64_t bits, Type type) {
  if (is_signed(type)) return static_cast<uint64_t>(sign_extend(bits, bytes_of(type)));
  const int unused = 64 - 8 * bytes_of(type);
  return bits << unused >> unused;
}

double round_whole(double value, Rounding rounding) {
  switch (rounding) {
    case Rounding::nearest: return std::nearbyint(value);
    case Rounding::zero: return std::trunc(value);
    case Rounding::down: return std::floor(value);
    case Rounding::up: return std::ceil(value);
    default: return value;
  }
}

float round_to_float(double value, Rounding rounding) {
  const auto nearest = static_cast<float>(value);
  const double rounded = nearest;
  switch (rounding) {
    case Rounding::zero:
      return std::fabs(rounded) > std::fabs(value) ? std::nextafter(nearest, 0.0f) : nearest;
    case Rounding::down: return rounded > value ? std::nextafter(nearest, -INFINITY) : nearest;
    case Rounding::up: return rounded < value ? std::nextafter(nearest, INFINITY) : nearest;
    default: return nearest;
  }
}

uint16_t round_to_f16(double value, Rounding rounding) {
  const uint16_t nearest = to_f16(value);
  const bool is_beyond = std::fabs(from_f16(nearest)) > std::fabs(value);
  return static_cast<uint16_t>(rounding == Rounding::zero && is_beyond ? nearest - 1 : nearest);
}

uint16_t round_to_bf16(double value, Rounding rounding) {
  const auto single = static_cast<float>(value);
  if (rounding != Rounding::zero || std::isnan(single)) return to_bf16(single);
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(single) >> 16);
}

uint64_t from_integer(uint64_t bits, const Conversion& conversion) {
  const uint64_t value = extend(bits, conversion.from);
  const bool is_unsigned = !is_signed(conversion.from);
  const auto in_int64 = static_cast<int64_t>(value);
  if (is_integer(conversion.to)) {
    if (!conversion.saturates) return extend(value, conversion.to);
    return is_unsigned ? clamp_to_type(static_cast<__int128>(value), conversion.to)
                       : clamp_to_type(static_cast<__int128>(in_int64), conversion.to);
  }
  const double exact = is_unsigned ? static_cast<double>(value) : static_cast<double>(in_int64);
  switch (conversion.to) {
    case Type::f64: return std::bit_cast<uint64_t>(exact);
    case Type::f16: return to_f16(exact);
    case Type::bf16: return to_bf16(static_cast<float>(exact));
    default: break;
  }
  if (conversion.rounding == Rounding::nearest) {  // from 64 bits: rounded once
    return std::bit_cast<uint32_t>(is_unsigned ? static_cast<float>(value)
                                               : static_cast<float>(in_int64));
  }
  return std::bit_cast<uint32_t>(round_to_float(exact, conversion.rounding));
}

uint64_t from_float(uint64_t bits, const Conversion& conversion) {
  double value = to_double(bits, conversion.from);
  if (is_integer(conversion.to)) {
    return clamp_to_type(round_whole(value, conversion.rounding), conversion.to);
  }
  Rounding rounding = conversion.rounding;
  if (conversion.is_to_integral) {
    value = round_whole(value, rounding);
    rounding = Rounding::none;
  }
  if (conversion.saturates) value = std::isnan(value) ? 0 : std::clamp(value, 0.0, 1.0);
  if (conversion.clamps_negative && value < 0) value = 0;
  switch (conversion.to) {
    case Type::f64: return std::bit_cast<uint64_t>(value);
    case Type::f16: return round_to_f16(value, rounding);
    case Type::bf16: return round_to_bf16(value, rounding);
    case Type::tf32: return std::bit_cast<uint32_t>(round_to_tf32(static_cast<float>(value)));
    default: break;
  }
  const float single = round_to_float(value, rounding);
  return std::bit_cast<uint32_t>(conversion.flushes ? flush_subnormal(single) : single);
}

void convert(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto& conversion = instruction.details<Conversion>();
  const bool is_from_integer = is_integer(conversion.from);
  for_each_lane(lanes, [&](int lane) {
    const uint64_t bits = warp.read(conversion.operand, lane);
    warp.write(conversion.result, lane,
               is_from_integer ? from_integer(bits, conversion) : from_float(bits, conversion));
  });
}

// Of two floats into the halves of a register; the first operand goes to the upper half.
uint32_t pack(float value, const Conversion& conversion) {
  if (conversion.clamps_negative && value < 0) value = 0;
  switch (conversion.to) {
    case Type::f16x2: return round_to_f16(value, conversion.rounding);
    case Type::bf16x2: return round_to_bf16(value, conversion.rounding);
    case Type::e4m3x2: return to_e4m3(value);
    default: return to_e5m2(value);
  }
}

void convert_pair(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto& conversion = instruction.details<Conversion>();
  const int bits = 4 * bytes_of(conversion.to);  // of a half
  for_each_lane(lanes, [&](int lane) {
    const float high = warp.reg<float>(conversion.operand.at)[lane];
    const float low = warp.reg<float>(conversion.low_operand.at)[lane];
    warp.write(conversion.result, lane, pack(high, conversion) << bits | pack(low, conversion));
  });
}

void widen_pair(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto& conversion = instruction.details<Conversion>();
  const auto widen = [&](uint32_t bits) -> uint32_t {
    const auto byte = static_cast<uint8_t>(bits);
    return to_f16(conversion.from == Type::e4m3x2 ? from_e4m3(byte) : from_e5m2(byte));
  };
  for_each_lane(lanes, [&](int lane) {
    const uint32_t pair = warp.reg<uint16_t>(conversion.operand.at)[lane];
    warp.write(conversion.result, lane, widen(pair >> 8) << 16 | widen(pair));
  });
}

void narrow_pair(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto& conversion = instruction.details<Conversion>();
  for_each_lane(lanes, [&](int lane) {
    const uint32_t pair = warp.reg<uint32_t>(conversion.operand.at)[lane];
    const float high = from_f16(static_cast<uint16_t>(pair >> 16));
    const float low = from_f16(static_cast<uint16_t>(pair));
    warp.write(conversion.result, lane, pack(high, conversion) << 8 | pack(low, conversion));
  });
}

struct Cast {
  template <class T>
  T operator()(T a) const {
    return a;
  }
};
struct F16ToFloat {
  float operator()(uint16_t a) const { return from_f16(a); }
};
struct FloatToF16 {
  uint16_t operator()(float a) const { return to_f16(a); }
};
struct FloatToBf16 {
  uint16_t operator()(float a) const { return to_bf16(a); }
};

// The conversions that kernels use most, without the detour through 64 bits; null for others.
Handler quick_conversion(const Conversion& conversion) {
  const Type from = conversion.from, to = conversion.to;
  const bool is_from_64 = from == Type::u64 || from == Type::s64;
  const bool is_plain = conversion.operand.bytes == std::max(2, bytes_of(from)) &&
                        conversion.result.bytes == std::max(2, bytes_of(to));
  if (!is_plain || conversion.is_to_integral || conversion.saturates ||
      conversion.clamps_negative || conversion.flushes) {
    return nullptr;
  }
  if (from == Type::s32 && to == Type::s64) return elementwise<Cast, int64_t, int32_t>;
  if (from == Type::u32 && to == Type::u64) return elementwise<Cast, uint64_t, uint32_t>;
  if (is_from_64 && bytes_of(to) == 4 && is_integer(to)) {
    return elementwise<Cast, uint32_t, uint64_t>;
  }
  if (from == Type::u16 && to == Type::u32) return elementwise<Cast, uint32_t, uint16_t>;
  if (from == Type::u32 && to == Type::u16) return elementwise<Cast, uint16_t, uint32_t>;
  if (from == Type::f16 && to == Type::f32) return elementwise<F16ToFloat, float, uint16_t>;
  if (conversion.rounding != Rounding::nearest) return nullptr;
  if (from == Type::s32 && to == Type::f32) return elementwise<Cast, float, int32_t>;
  if (from == Type::f32 && to == Type::f16) return elementwise<FloatToF16, uint16_t, float>;
  if (from == Type::f32 && to == Type::bf16) return elementwise<FloatToBf16, uint16_t, float>;
  return nullptr;
}

Rounding rounding_of(const Statement& statement) {
  const auto has = [&](const char* name, const char* integral) {
    return statement.has(name) || statement.has(integral);
  };
  if (has("rn", "rni") || statement.has("rna")) return Rounding::nearest;
  if (has("rz", "rzi")) return Rounding::zero;
  if (has("rm", "rmi")) return Rounding::down;
  if (has("rp", "rpi")) return Rounding::up;
  return Rounding::none;
}

bool is_pair(Type type) { return type >= Type::f16x2 && type <= Type::e5m2x2; }

void bind_convert(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const size_t count = statement.parts.size();
  if (count < 3) return;
  const auto to = parse_type(statement.part(count - 2)),
             from = parse_type(statement.part(count - 1));
  if (!to || !from) return;
  Conversion conversion{.from = *from, .to = *to};
  conversion.rounding = rounding_of(statement);
  for (const char* whole : {"rni", "rzi", "rmi", "rpi"}) {
    conversion.is_to_integral |= statement.has(whole);
  }
  conversion.saturates = statement.has("sat");
  conversion.clamps_negative = statement.has("relu");
  conversion.flushes = statement.has("ftz");
  conversion.result = builder.slot(statement.operand(0), std::max(2, bytes_of(*to)));
  conversion.operand = builder.slot(statement.operand(1), std::max(2, bytes_of(*from)));
  if (!is_pair(*to)) {
    if (is_pair(*from)) return;
    instruction.at[0] = conversion.result.at;
    instruction.at[1] = conversion.operand.at;
    const Handler quick = quick_conversion(conversion);
    instruction.handler = quick != nullptr ? quick : convert;
  } else if (*from == Type::f32 && statement.operands.size() == 3) {
    conversion.low_operand = builder.slot(statement.operand(2), 4);
    instruction.handler = convert_pair;
  } else if (*to == Type::f16x2 && (*from == Type::e4m3x2 || *from == Type::e5m2x2)) {
    instruction.handler = widen_pair;
  } else if (*from == Type::f16x2 && (*to == Type::e4m3x2 || *to == Type::e5m2x2)) {
    instruction.handler = narrow_pair;
  }
  instruction.set_details(conversion);
}

constexpr Family kFamilies[] = {{"cvt", bind_convert}};

}  // namespace

std::span<const Family> conversion_instructions() { return kFamilies; }

}  // namespace tessera::emulator
