// Foreign text made printable: a decoder of UTF-8 and an escape for everything that is not text.
// SPDX-License-Identifier: MIT
#include "core/text.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "tessera/core/error.h"

namespace tessera {
namespace {

// One character of a text: `size` bytes, or a byte that belongs to no character.
struct Character {
  uint32_t code = 0;
  size_t size = 1;
  bool is_valid = false;
};

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xc0u) == 0x80u; }

Character first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {lead, 1, true};
  const size_t size = lead < 0xc2 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 1;
  if (size == 1 || text.size() < size) return {};
  uint32_t code = lead & (0xffu >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if (!is_continuation(text[i])) return {};
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  if (code < kLeast[size] || is_surrogate || code > 0x10ffff) return {};
  return {code, size, true};
}

// Control characters, and those that are not seen or that move what stands beside them.
bool is_hidden(uint32_t code) {
  struct Range {
    uint32_t first, last;
  };
  constexpr Range kHidden[] = {{0x00, 0x1f},     {0x7f, 0x9f},      {0xad, 0xad},
                               {0x61c, 0x61c},   {0x180e, 0x180e},  {0x200b, 0x200f},
                               {0x2028, 0x202e}, {0x2060, 0x206f},  {0xfeff, 0xfeff},
                               {0xfff0, 0xfffb}, {0xe0000, 0xe0fff}};
  return std::ranges::any_of(
      kHidden, [code](Range range) { return code >= range.first && code <= range.last; });
}

void append_escaped(std::string& out, std::string_view bytes, const Character& character) {
  char text[16];
  if (character.code == '\n' && character.is_valid) {
    out += "\\n";
  } else if (character.code == '\t' && character.is_valid) {
    out += "\\t";
  } else if (character.is_valid && character.size > 1) {
    std::snprintf(text, sizeof text, "\\u{%x}", character.code);
    out += text;
  } else {
    std::snprintf(text, sizeof text, "\\x%02x", static_cast<unsigned char>(bytes[0]));
    out += text;
  }
}

std::string escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Character character = first_character(text);
    if (character.is_valid && !is_hidden(character.code)) {
      out += text.substr(0, character.size);
    } else {
      append_escaped(out, text, character);
    }
    text.remove_prefix(character.size);
  }
  return out;
}

// The first and the last `count` bytes, or up to three fewer, so that no character is cut in two.
std::string_view head(std::string_view text, size_t count) {
  for (int i = 0; i < 3 && count > 0 && is_continuation(text[count]); ++i) --count;
  return text.substr(0, count);
}
std::string_view tail(std::string_view text, size_t count) {
  std::string_view end = text.substr(text.size() - count);
  for (int i = 0; i < 3 && !end.empty() && is_continuation(end[0]); ++i) end.remove_prefix(1);
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
