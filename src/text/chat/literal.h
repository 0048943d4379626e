// Numbers and strings as a template spells them.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::chat {

struct Number {
  size_t size = 0;  // bytes read
  bool is_real = false;
  int64_t integer = 0;
  double real = 0.0;
};

// The number `text` begins with: 12, 1_000, 0x1f, 1.5, 2e3. Refuses integers beyond 64 bits.
Number read_number_literal(std::string_view text, bool only_digits, int line);

// The body of a string with Python's escapes resolved.
std::string decode_string_literal(std::string_view body, int line);

}  // namespace tessera::chat
