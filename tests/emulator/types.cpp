// Names and sizes of types.
// SPDX-License-Identifier: MIT
#include "tests/emulator/types.h"

namespace tessera::emulator {
namespace {

struct NamedType {
  std::string_view name;
  Type type;
};

constexpr NamedType kTypes[] = {
    {"pred", Type::pred},     {"u8", Type::u8},         {"s8", Type::s8},
    {"b8", Type::u8},         {"u16", Type::u16},       {"s16", Type::s16},
    {"b16", Type::u16},       {"u32", Type::u32},       {"s32", Type::s32},
    {"b32", Type::u32},       {"u64", Type::u64},       {"s64", Type::s64},
    {"b64", Type::u64},       {"f16", Type::f16},       {"bf16", Type::bf16},
    {"f32", Type::f32},       {"f64", Type::f64},       {"tf32", Type::tf32},
    {"e4m3", Type::e4m3},     {"e5m2", Type::e5m2},     {"f16x2", Type::f16x2},
    {"bf16x2", Type::bf16x2}, {"e4m3x2", Type::e4m3x2}, {"e5m2x2", Type::e5m2x2},
    {"u16x2", Type::u16x2},   {"s16x2", Type::s16x2},
};

}  // namespace

std::optional<Type> parse_type(std::string_view name) {
  for (const NamedType& known : kTypes) {
    if (known.name == name) return known.type;
  }
  return std::nullopt;
}

int bytes_of(Type type) {
  switch (type) {
    case Type::pred:
    case Type::u8:
    case Type::s8:
    case Type::e4m3:
    case Type::e5m2: return 1;
    case Type::u16:
    case Type::s16:
    case Type::f16:
    case Type::bf16:
    case Type::e4m3x2:
    case Type::e5m2x2: return 2;
    case Type::u64:
    case Type::s64:
    case Type::f64: return 8;
    default: return 4;
  }
}

bool is_integer(Type type) { return type >= Type::u8 && type <= Type::s64; }

bool is_signed(Type type) {
  return type == Type::s8 || type == Type::s16 || type == Type::s32 || type == Type::s64;
}

}  // namespace tessera::emulator
