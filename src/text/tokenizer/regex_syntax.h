// Patterns written for Oniguruma, which tokenizer files assume, in the syntax of PCRE2.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace tessera::tokenizer {

// Where PCRE2 would read a pattern in another sense, it is rewritten: classes such as \w, \b, \v
// and
// [:punct:] hold other characters, \p{Han} means the script alone, (?m) lets '.' match a newline,
// {,n} counts from 0 and {n,m}+ repeats a repetition. Classes within classes and intersections are
// refused. The classes follow the Unicode version of the PCRE2 in use; a character that is newer,
// or has changed since, may be classed as it was then.
std::string pcre2_syntax(std::string_view pattern, std::string_view place);

}  // namespace tessera::tokenizer
