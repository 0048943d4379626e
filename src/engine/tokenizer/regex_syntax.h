// Patterns written for Oniguruma, which tokenizer files assume, in the syntax of PCRE2.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace tessera::tokenizer {

// The two agree on all but a few points. \s, \w and \h become explicit classes, since PCRE2's hold
// other characters. What PCRE2 would read differently without saying so is refused: classes within
// classes, and their intersections.
std::string pcre2_syntax(std::string_view pattern, std::string_view place);

}  // namespace tessera::tokenizer
