// Grammars in EBNF: rules of literals, classes, alternatives, repetitions and other rules.
// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

#include "grammar/rules.h"

namespace tessera::grammar {

//   root   ::= "yes" | "no " reason      # a comment, up to the end of the line
//   reason ::= [a-z]+ (" " [a-z]+){0,8}
//
// Literals know the escapes \n \r \t \" \\ \xHH \uHHHH \UHHHHHHHH; so do classes, with \] \^ \-.
// A rule ends where the next one begins. Returns the rule `root`; refuses mistakes with their line.
RuleId parse_ebnf(Rules& rules, std::string_view text);

}  // namespace tessera::grammar
