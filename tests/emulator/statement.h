// One statement of PTX, taken apart.
//
//   @!%p3 ld.global.v2.f32 {%f1, %f2}, [%rd7+16];
//
// has the guard %p3, negated; the parts ld, global, v2, f32; and two operands, a list and an
// address.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::emulator {

struct Operand {
  std::vector<std::string> names = {};  // one, or those of a list in braces
  int64_t offset = 0;                   // of an address: [name+offset]
  bool is_list = false;
  bool is_address = false;
  bool is_negated = false;  // !%p1
  bool is_second = false;   // what follows a bar: %p2 of %r1|%p2

  const std::string& name() const { return names.front(); }
  bool is_absent() const { return name() == "_"; }  // a result that nobody wants
};

struct Statement {
  std::string text;
  std::string guard;  // empty: none
  bool is_guard_negated = false;
  std::vector<std::string> parts;
  std::vector<Operand> operands;

  bool has(std::string_view part) const;
  const std::string& part(size_t index) const;
  const Operand& operand(size_t index) const;  // throws std::runtime_error past the end
  // The number that an operand is.
  int64_t number(size_t index) const;
};

// Without the semicolon.
Statement parse_statement(std::string_view text);

std::string_view trim(std::string_view text);
// The pieces between separators, trimmed; empty pieces are left out.
std::vector<std::string_view> split(std::string_view text, char separator);
// The value of an integer or floating-point literal as bits: -1, 0x1F, 0f3F800000,
// 0d3FF0000000000000.
uint64_t parse_literal(std::string_view text);
bool is_literal(std::string_view text);

}  // namespace tessera::emulator
