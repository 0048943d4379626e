// Cuts a template into tokens: text, tags, and what stands within tags.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::chat {

enum class TokenKind : uint8_t {
  data,         // text between tags
  print_begin,  // {{
  print_end,    // }}
  block_begin,  // {%
  block_end,    // %}
  name,
  string,
  integer,
  real,
  symbol,  // "==", "(", ...
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  int line = 1;
  std::string text = {};  // escapes of strings are resolved
  int64_t integer = 0;
  double real = 0.0;

  bool is_name(std::string_view word) const { return kind == TokenKind::name && text == word; }
  bool is_symbol(std::string_view sign) const { return kind == TokenKind::symbol && text == sign; }
};

// Trims whitespace as Hugging Face configures Jinja: trim_blocks, lstrip_blocks, no newline at the
// end of the template. The last token is `end`. Time and memory are linear in the source.
std::vector<Token> tokenize(std::string_view source);

}  // namespace tessera::chat
