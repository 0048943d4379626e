// Unicode for tokenizers and chat templates: runs of UTF-8, character classes and letter case.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/utf8.h"

namespace tessera::unicode {

void append_character(std::string& out, char32_t code);

// `text` must be valid and not empty.
Character last_character(std::string_view text);

// The longest prefix that is valid throughout, or invalid throughout.
struct Utf8Run {
  size_t bytes = 0;
  bool is_valid = true;
};
Utf8Run first_run(std::string_view bytes);

// Moves whole characters from `pending` to `out`, and U+FFFD for each invalid sequence. A truncated
// character stays in `pending`, unless is_end: then it becomes U+FFFD too.
void move_whole_characters(std::string& pending, bool is_end, std::string& out);

// Text as Python's str counts it, where a byte that begins no valid sequence is a character of its
// own: state invalid, one byte, code kNoCode, which belongs to no class and has no case.
inline constexpr char32_t kNoCode = 0xFFFFFFFF;
Character character_at(std::string_view text, size_t position);  // position < text.size()
size_t count_characters(std::string_view text);
// Bytes of whitespace (is_space) at the start and at the end.
size_t count_leading_space(std::string_view text);
size_t count_trailing_space(std::string_view text);

bool is_whitespace(char32_t code);   // the property White_Space
bool is_space(char32_t code);        // Python's str.isspace(): White_Space and U+001C to U+001F
bool is_word(char32_t code);         // letters, marks, digits, connectors, joiners: Rust's \w
bool is_numeric(char32_t code);      // Nd, Nl, No
bool is_punctuation(char32_t code);  // P*, and all ASCII punctuation
bool is_mark(char32_t code);         // Mn, Mc, Me
bool is_cased(char32_t code);        // Lu, Ll, Lt
bool is_printable(char32_t code);    // Python's repr() shows it unescaped

// Mappings of one character to one.
char32_t to_upper(char32_t code);
char32_t to_lower(char32_t code);
char32_t to_title(char32_t code);  // at the start of a word
// The full mapping: U+0130 becomes two characters.
void append_lowercase(std::string& out, char32_t code);

}  // namespace tessera::unicode
