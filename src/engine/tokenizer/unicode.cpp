// UTF-8 by the table of well-formed sequences of the Unicode standard; properties by utf8proc.
// SPDX-License-Identifier: MIT
#include "engine/tokenizer/unicode.h"

#include <utf8proc.h>

#include <array>

namespace tessera::tokenizer {
namespace {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// What may follow a lead byte: how many bytes in all, and the range of the second one. Overlong
// forms, surrogates and codes above U+10FFFF are excluded by that range.
struct Lead {
  size_t bytes;
  uint8_t second_min;
  uint8_t second_max;
};

Lead lead_of(uint8_t byte) {
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

utf8proc_category_t category_of(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

}  // namespace

Character read_character(std::string_view bytes) {
  const auto at = [&](size_t idx) { return static_cast<uint8_t>(bytes[idx]); };
  const Lead lead = lead_of(at(0));
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

Character last_character(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0u) == 0x80u) --begin;
  return read_character(text.substr(begin));
}

void append_character(std::string& out, char32_t code) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const utf8proc_ssize_t count =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes.data());
  out.append(bytes.begin(), bytes.begin() + count);
}

Utf8Run first_run(std::string_view bytes) {
  if (bytes.empty()) return {};
  const bool is_valid = read_character(bytes).state == Utf8::valid;
  size_t pos = 0;
  while (pos < bytes.size()) {
    const Character next = read_character(bytes.substr(pos));
    if ((next.state == Utf8::valid) != is_valid) break;
    pos += next.bytes;
  }
  return {pos, is_valid};
}

void move_whole_characters(std::string& pending, bool is_end, std::string& out) {
  size_t pos = 0;
  while (pos < pending.size()) {
    const Character next = read_character(std::string_view(pending).substr(pos));
    if (next.state == Utf8::truncated && !is_end) break;
    if (next.state == Utf8::valid) {
      out.append(pending, pos, next.bytes);
    } else {
      out.append(kReplacementCharacter);
    }
    pos += next.bytes;
  }
  pending.erase(0, pos);
}

bool is_whitespace(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
  if (code == 0x85) return true;
  const utf8proc_category_t category = category_of(code);
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

bool is_word(char32_t code) {
  const auto is_within = [&](char32_t first, char32_t last) {
    return code >= first && code <= last;
  };
  if (code == 0x200C || code == 0x200D) return true;  // the joiners
  if (is_within(0x24B6, 0x24E9) || is_within(0x1F130, 0x1F149) || is_within(0x1F150, 0x1F169) ||
      is_within(0x1F170, 0x1F189)) {
    return true;  // letters in circles and squares
  }
  switch (category_of(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return false;
  }
}

bool is_numeric(char32_t code) {
  const utf8proc_category_t category = category_of(code);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t code) {
  if (code < 0x80) {
    return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') ||
           (code >= '[' && code <= '`') || (code >= '{' && code <= '~');
  }
  const utf8proc_category_t category = category_of(code);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(char32_t code) {
  const utf8proc_category_t category = category_of(code);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

void append_lowercase(std::string& out, char32_t code) {
  if (code == 0x130) {  // the one character whose lower case is two
    out.append("i\xCC\x87");
    return;
  }
  const utf8proc_int32_t lower = utf8proc_tolower(static_cast<utf8proc_int32_t>(code));
  append_character(out, static_cast<char32_t>(lower));
}

}  // namespace tessera::tokenizer
