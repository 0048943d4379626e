// Tables from byte to character and back, made by one rule.
// SPDX-License-Identifier: MIT
#include "text/tokenizer/byte_level.h"

#include <array>
#include <cstdint>

#include "text/unicode.h"

namespace tessera::tokenizer {
namespace {

struct Alphabet {
  std::array<char16_t, 256> character{};
  std::array<int16_t, 512> byte{};  // by character; -1: not in the alphabet
};

constexpr bool is_own_character(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(-1);
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const int character = is_own_character(byte) ? byte : next++;
    alphabet.character[static_cast<size_t>(byte)] = static_cast<char16_t>(character);
    alphabet.byte[static_cast<size_t>(character)] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

void append_byte_characters(std::string& out, std::string_view bytes) {
  for (const char byte : bytes) {
    const unsigned character = kAlphabet.character[static_cast<uint8_t>(byte)];
    if (character < 0x80) {
      out.push_back(static_cast<char>(character));
    } else {  // all are below U+0800, so two bytes of UTF-8
      out.push_back(static_cast<char>(0xC0u | character >> 6));
      out.push_back(static_cast<char>(0x80u | (character & 0x3Fu)));
    }
  }
}

std::optional<std::string> bytes_of_characters(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  while (!token.empty()) {
    const unicode::Character next = unicode::read_character(token);
    if (next.code >= kAlphabet.byte.size() || kAlphabet.byte[next.code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte[next.code]));
    token.remove_prefix(next.bytes);
  }
  return bytes;
}

}  // namespace tessera::tokenizer
