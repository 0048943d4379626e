// The character classes of Oniguruma that PCRE2 lacks or fills with other characters.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace tessera::tokenizer {

// All return what stands between the brackets of a class of PCRE2; empty where the two agree.
std::string_view escape_members(char letter);           // 's' for \s and \S
std::string_view posix_members(std::string_view name);  // "punct" for [:punct:]
std::string property_members(std::string_view name);    // "Han" for \p{Han}
// \w by itself and what \b looks at: one more group of characters than \w within a class.
std::string lone_word_members();

}  // namespace tessera::tokenizer
