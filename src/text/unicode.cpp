// Character properties and case mappings come from utf8proc's tables.
// SPDX-License-Identifier: MIT
#include "text/unicode.h"

#include <utf8proc.h>

#include <array>

namespace tessera::unicode {
namespace {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

utf8proc_category_t category_of(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

}  // namespace

void append_character(std::string& out, char32_t code) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const utf8proc_ssize_t count =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes.data());
  out.append(bytes.begin(), bytes.begin() + count);
}

Character last_character(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && is_continuation(text[begin])) --begin;
  return read_character(text.substr(begin));
}

Utf8Run first_run(std::string_view bytes) {
  if (bytes.empty()) return {};
  const bool is_valid = read_character(bytes).is_valid();
  size_t pos = 0;
  while (pos < bytes.size()) {
    const Character next = read_character(bytes.substr(pos));
    if (next.is_valid() != is_valid) break;
    pos += next.bytes;
  }
  return {pos, is_valid};
}

void move_whole_characters(std::string& pending, bool is_end, std::string& out) {
  size_t pos = 0;
  while (pos < pending.size()) {
    const Character next = read_character(std::string_view(pending).substr(pos));
    if (next.state == Utf8::truncated && !is_end) break;
    if (next.is_valid()) {
      out.append(pending, pos, next.bytes);
    } else {
      out.append(kReplacementCharacter);
    }
    pos += next.bytes;
  }
  pending.erase(0, pos);
}

Character character_at(std::string_view text, size_t position) {
  const Character read = read_character(text.substr(position));
  return read.is_valid() ? read : Character{kNoCode, 1, Utf8::invalid};
}

size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (size_t i = 0; i < text.size(); i += character_at(text, i).bytes) ++count;
  return count;
}

size_t count_leading_space(std::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    const Character c = character_at(text, position);
    if (!is_space(c.code)) break;
    position += c.bytes;
  }
  return position;
}

size_t count_trailing_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t start = end - 1;  // steps over at most three continuation bytes
    while (start > 0 && end - start < 4 && is_continuation(text[start])) --start;
    const Character c = character_at(text, start);
    if (start + c.bytes != end || !is_space(c.code)) break;
    end = start;
  }
  return text.size() - end;
}

bool is_whitespace(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
  if (code == 0x85) return true;
  const utf8proc_category_t category = category_of(code);
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

bool is_space(char32_t code) { return is_whitespace(code) || (code >= 0x1C && code <= 0x1F); }

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

bool is_cased(char32_t code) {
  const utf8proc_category_t category = category_of(code);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT;
}

bool is_printable(char32_t code) {
  if (code < 0x80) return code >= 0x20 && code < 0x7F;
  switch (category_of(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

char32_t to_upper(char32_t code) {
  if (code < 0x80) return code >= 'a' && code <= 'z' ? code - 'a' + 'A' : code;
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code)));
}

char32_t to_lower(char32_t code) {
  if (code < 0x80) return code >= 'A' && code <= 'Z' ? code - 'A' + 'a' : code;
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

char32_t to_title(char32_t code) {
  if (code < 0x80) return to_upper(code);
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code)));
}

void append_lowercase(std::string& out, char32_t code) {
  if (code == 0x130) {  // the only character whose lower case is two characters
    out.append("i\xCC\x87");
    return;
  }
  append_character(out, to_lower(code));
}

}  // namespace tessera::unicode
