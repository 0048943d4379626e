// The alphabet of byte-level BPE: one printable character for each byte.
// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera::tokenizer {

// Bytes that are printable in Latin-1 map to themselves, the others in order to U+0100 and up: a
// space is "Ġ", a newline "Ċ".
void append_byte_characters(std::string& out, std::string_view bytes);

// The bytes of a token in that alphabet; none if it has a character outside it.
std::optional<std::string> bytes_of_characters(std::string_view token);

}  // namespace tessera::tokenizer
