// Characters as Python's str has them, by utf8proc's tables.
// SPDX-License-Identifier: MIT
#include "engine/chat/unicode.h"

#include <utf8proc.h>

namespace tessera::chat {

Character character_at(std::string_view text, size_t position) {
  const auto first = static_cast<unsigned char>(text[position]);
  if (first < 0x80) return {first, 1};
  utf8proc_int32_t code_point = -1;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + position;
  const auto left = static_cast<utf8proc_ssize_t>(text.size() - position);
  const utf8proc_ssize_t size = utf8proc_iterate(bytes, left, &code_point);
  if (size <= 0) return {};
  return {code_point, static_cast<size_t>(size)};
}

size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (size_t i = 0; i < text.size(); i += character_at(text, i).size) ++count;
  return count;
}

void append_utf8(std::string& out, int32_t code_point) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t size = utf8proc_encode_char(code_point, bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

bool is_space(int32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_letter(int32_t c) {
  if (c < 0) return false;
  const utf8proc_category_t category = utf8proc_category(c);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT;
}

bool is_printable(int32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7f;
  switch (utf8proc_category(c)) {
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

int32_t to_upper(int32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c;
  return utf8proc_toupper(c);
}

int32_t to_lower(int32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
  return utf8proc_tolower(c);
}

int32_t to_title(int32_t c) { return c < 0x80 ? to_upper(c) : utf8proc_totitle(c); }

size_t count_leading_space(std::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    const Character c = character_at(text, position);
    if (!is_space(c.code_point)) break;
    position += c.size;
  }
  return position;
}

size_t count_trailing_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t start = end - 1;  // steps over at most three continuation bytes
    while (start > 0 && end - start < 4 && (text[start] & '\xc0') == '\x80') --start;
    const Character c = character_at(text, start);
    if (start + c.size != end || !is_space(c.code_point)) break;
    end = start;
  }
  return text.size() - end;
}

}  // namespace tessera::chat
