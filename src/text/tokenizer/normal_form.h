// The four normal forms of Unicode.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace tessera::tokenizer {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

// Of valid UTF-8. O(n log n) in the longest run of combining marks, whatever the text. To nfc, only
// the characters around those that are not in that form yet are decomposed and composed again.
std::string normalize(std::string_view text, NormalForm form);

}  // namespace tessera::tokenizer
