// Characters as Python's str has them: code points, whitespace, case, what repr() may show.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::chat {

// One character of UTF-8 text. A byte that begins no valid sequence is a character of its own.
struct Character {
  int32_t code_point = -1;  // -1 for an invalid byte
  size_t size = 1;          // bytes
};

Character character_at(std::string_view text, size_t position);  // position < text.size()
size_t count_characters(std::string_view text);
void append_utf8(std::string& out, int32_t code_point);

bool is_space(int32_t code_point);      // str.isspace()
bool is_letter(int32_t code_point);     // has an upper or lower case
bool is_printable(int32_t code_point);  // repr() shows it as it is
int32_t to_upper(int32_t code_point);   // mappings of one character to one
int32_t to_lower(int32_t code_point);
int32_t to_title(int32_t code_point);  // upper case at the beginning of a word

// Bytes of whitespace at the beginning and at the end.
size_t count_leading_space(std::string_view text);
size_t count_trailing_space(std::string_view text);

}  // namespace tessera::chat
