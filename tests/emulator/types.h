// The types of PTX's instructions.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera::emulator {

// Untyped bits (.b32) are unsigned integers here: every instruction on them treats them so.
enum class Type : uint8_t {
  pred,
  u8,
  s8,
  u16,
  s16,
  u32,
  s32,
  u64,
  s64,
  f16,
  bf16,
  f32,
  f64,
  tf32,
  e4m3,
  e5m2,
  f16x2,
  bf16x2,
  e4m3x2,
  e5m2x2,
  u16x2,
  s16x2,
};

// The type that a part of an opcode or a declaration names, without its dot.
std::optional<Type> parse_type(std::string_view name);
int bytes_of(Type type);
bool is_integer(Type type);
bool is_signed(Type type);

}  // namespace tessera::emulator
