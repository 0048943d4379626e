// The alphabet of byte-level BPE: one printable character for each byte.
// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera::tokenizer {

// Bytes that are printable in Latin-1 stand for themselves; the others, in order, for U+0100 on.
// So a space is "Ġ" and a newline "Ċ".
void append_byte_characters(std::string& out, std::string_view bytes);

// The bytes that a token of that alphabet stands for; none where it has another character.
std::optional<std::string> bytes_of_characters(std::string_view token);

}  // namespace tessera::tokenizer
