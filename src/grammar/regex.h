// Regular expressions: the subset that describes regular languages.
// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

#include "grammar/rules.h"

namespace tessera::grammar {

enum class RegexUse : uint8_t {
  whole_text,   // the whole text matches; characters stand for themselves
  json_string,  // "pattern" of a schema: matches somewhere in a string, whose characters are
                // written as JSON does; \S, \W and \D are ASCII only
};

// Refuses, by name and place, what is malformed or not supported: backreferences, lookaround, word
// boundaries, possessive quantifiers, and anchors but at the ends of a whole alternative.
ExprId parse_regex(Rules& rules, std::string_view pattern, RegexUse use);

// Some of `set`, as it is written within the quotes of a JSON string.
ExprId json_character(Rules& rules, const CodeSet& set);

}  // namespace tessera::grammar
