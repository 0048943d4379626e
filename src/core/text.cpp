// Makes untrusted text printable: decodes UTF-8 and escapes everything that is not visible text.
// SPDX-License-Identifier: MIT
#include "core/text.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "core/utf8.h"
#include "tessera/core/error.h"

namespace tessera {
namespace {

// Control characters, invisible characters, and those that change the direction of writing.
bool is_hidden(char32_t code) {
  struct Range {
    char32_t first, last;
  };
  constexpr Range kHidden[] = {{0x00, 0x1f},     {0x7f, 0x9f},      {0xad, 0xad},
                               {0x61c, 0x61c},   {0x180e, 0x180e},  {0x200b, 0x200f},
                               {0x2028, 0x202e}, {0x2060, 0x206f},  {0xfeff, 0xfeff},
                               {0xfff0, 0xfffb}, {0xe0000, 0xe0fff}};
  return std::ranges::any_of(
      kHidden, [code](Range range) { return code >= range.first && code <= range.last; });
}

// `character` begins `bytes`. Of an invalid sequence only the first byte is escaped.
void append_escaped(std::string& out, std::string_view bytes, const unicode::Character& character) {
  char text[16];
  if (character.is_valid() && character.code == '\n') {
    out += "\\n";
  } else if (character.is_valid() && character.code == '\t') {
    out += "\\t";
  } else if (character.is_valid() && character.bytes > 1) {
    std::snprintf(text, sizeof text, "\\u{%x}", static_cast<unsigned>(character.code));
    out += text;
  } else {
    std::snprintf(text, sizeof text, "\\x%02x", static_cast<unsigned char>(bytes[0]));
    out += text;
  }
}

std::string escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const unicode::Character character = unicode::read_character(text);
    if (character.is_valid() && !is_hidden(character.code)) {
      out += text.substr(0, character.bytes);
    } else {
      append_escaped(out, text, character);
    }
    text.remove_prefix(character.is_valid() ? character.bytes : 1);
  }
  return out;
}

// The first or the last `count` bytes, less up to three so that no character is cut.
std::string_view head(std::string_view text, size_t count) {
  for (int i = 0; i < 3 && count > 0 && unicode::is_continuation(text[count]); ++i) --count;
  return text.substr(0, count);
}
std::string_view tail(std::string_view text, size_t count) {
  std::string_view end = text.substr(text.size() - count);
  for (int i = 0; i < 3 && !end.empty() && unicode::is_continuation(end[0]); ++i)
    end.remove_prefix(1);
  return end;
}

}  // namespace

std::string shown(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return escaped(text);
  const size_t front = max_bytes * 2 / 3;
  return concat(escaped(head(text, front)), "...(", text.size(), " bytes)...",
                escaped(tail(text, max_bytes - front)));
}

std::string in_quotes(std::string_view text) { return concat("'", shown(text), "'"); }

std::string shown_path(std::string_view path) { return shown(path, kShownPathBytes); }

void check_no_nul(std::string_view text, std::string_view origin) {
  const size_t place = text.find('\0');
  if (place == std::string_view::npos) return;
  fail(concat(origin, ": byte ", place, " is NUL, which no text holds; the file is damaged"));
}

}  // namespace tessera
