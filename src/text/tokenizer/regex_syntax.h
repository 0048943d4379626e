// Rewrites patterns from the syntax of Oniguruma, which tokenizer files assume, to that of PCRE2.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace tessera::tokenizer {

// Rewrites what means something else in PCRE2: \w, \b, \v and [:punct:] have other members, \p{Han}
// is the script alone, (?m) lets '.' match a newline, {,n} counts from 0, and {n,m}+ repeats a
// repetition. Refuses nested classes and intersections of classes. Classes follow the Unicode
// version of the PCRE2 in use, so newer characters may be classed differently.
std::string pcre2_syntax(std::string_view pattern, std::string_view place);

}  // namespace tessera::tokenizer
