// Decoding of UTF-8, by the Unicode standard's table of well-formed sequences.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera::unicode {

enum class Utf8 {
  valid,
  truncated,  // the bytes end inside what may become a character
  invalid,
};

// The character at the start of some bytes. If they do not begin with one, `bytes` is the length
// of the longest prefix that could have begun a character (at least 1): one U+FFFD replaces it.
struct Character {
  char32_t code = 0;
  size_t bytes = 0;
  Utf8 state = Utf8::invalid;

  bool is_valid() const { return state == Utf8::valid; }
};

// How many bytes a lead byte announces (0: it leads nothing), and the range of the second byte.
// That range excludes overlong forms, surrogates and codes above U+10FFFF.
struct LeadByte {
  size_t bytes;
  uint8_t second_min;
  uint8_t second_max;
};

inline LeadByte read_lead(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

inline bool is_continuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0u) == 0x80u; }

// `bytes` must not be empty.
inline Character read_character(std::string_view bytes) {
  const auto at = [&](size_t idx) { return static_cast<uint8_t>(bytes[idx]); };
  const LeadByte lead = read_lead(at(0));
  if (lead.bytes == 0) return {0, 1, Utf8::invalid};
  if (lead.bytes == 1) return {at(0), 1, Utf8::valid};
  char32_t code = at(0) & (0xFFu >> (lead.bytes + 1));
  for (size_t idx = 1; idx < lead.bytes; ++idx) {
    if (idx == bytes.size()) return {0, idx, Utf8::truncated};
    const uint8_t low = idx == 1 ? lead.second_min : uint8_t{0x80};
    const uint8_t high = idx == 1 ? lead.second_max : uint8_t{0xBF};
    if (at(idx) < low || at(idx) > high) return {0, idx, Utf8::invalid};
    code = code << 6 | (at(idx) & 0x3Fu);
  }
  return {code, lead.bytes, Utf8::valid};
}

}  // namespace tessera::unicode
