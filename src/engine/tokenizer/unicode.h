// UTF-8, and the character classes that tokenizers ask for.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::tokenizer {

enum class Utf8 {
  valid,
  truncated,  // the text ends within what may become a character
  invalid,
};

// The character at the start of some bytes. Where they are not one, `bytes` counts the longest
// prefix that could have begun a character (at least 1): it is what one U+FFFD stands for.
struct Character {
  char32_t code = 0;
  size_t bytes = 0;
  Utf8 state = Utf8::invalid;
};

Character read_character(std::string_view bytes);  // of at least one byte
Character last_character(std::string_view text);   // of valid text, at least one byte
void append_character(std::string& out, char32_t code);

// The longest prefix that is valid throughout, or invalid throughout.
struct Utf8Run {
  size_t bytes = 0;
  bool is_valid = true;
};
Utf8Run first_run(std::string_view bytes);

// Moves what is whole from `pending` to `out`, invalid sequences as U+FFFD. A truncated character
// stays, unless is_end: then it too becomes U+FFFD.
void move_whole_characters(std::string& pending, bool is_end, std::string& out);

bool is_whitespace(char32_t code);   // the property White_Space
bool is_word(char32_t code);         // letters, marks, digits, connectors, joiners: Rust's \w
bool is_numeric(char32_t code);      // Nd, Nl, No
bool is_punctuation(char32_t code);  // P*, and all ASCII punctuation
bool is_mark(char32_t code);         // Mn, Mc, Me
void append_lowercase(std::string& out, char32_t code);

}  // namespace tessera::tokenizer
