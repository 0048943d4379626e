// Patterns of layer names, as lists of ignored and of quantised layers write them.
// SPDX-License-Identifier: MIT
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::model {

// Either whole components of a name ("lm_head", "layers.3.mlp"), or, after "re:", a regular
// expression that matches from the start of the name. Expressions have literals, ., classes,
// groups, |, *, +, ?, ^ and $; anything else is refused by name. Matching takes time proportional
// to the name, whatever the expression is.
class NamePattern {
 public:
  // `origin` begins the refusals.
  NamePattern(std::string_view text, std::string_view origin);

  bool matches(std::string_view name) const;

 private:
  friend class ExpressionParser;
  enum class Kind : uint8_t { byte, split, begin, end, accept };
  struct Instruction {
    Kind kind = Kind::accept;
    int next = 0;                 // a split goes on here,
    int other = 0;                // and here
    std::bitset<256> bytes = {};  // those that `byte` accepts
  };

  std::string components_;  // empty: an expression
  std::vector<Instruction> program_;
  int start_ = 0;
};

}  // namespace tessera::model
