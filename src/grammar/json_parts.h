// The parts of JSON texts as expressions: strings, numbers, and any value.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/rules.h"

namespace tessera::grammar {

// A bound of a number as decimal digits.
struct DecimalBound {
  bool is_negative = false;
  std::string whole = {};     // without leading zeros; "0"
  std::string fraction = {};  // without trailing zeros
  bool is_excluded = false;

  bool is_zero() const { return whole == "0" && fraction.empty(); }
};

class JsonParts {
 public:
  JsonParts(Rules& rules, int32_t max_whitespace);

  Rules& rules() { return rules_; }
  // Punctuation with the whitespace allowed around it.
  ExprId open(std::string_view bracket);
  ExprId close(std::string_view bracket);
  ExprId comma();
  ExprId colon();

  ExprId string();
  ExprId string(int64_t least, std::optional<int64_t> most);  // characters
  ExprId key_except(const std::vector<std::string>& names);   // a string that is none of these
  ExprId quoted(ExprId content);
  ExprId integer(std::optional<int64_t> least, std::optional<int64_t> most);  // both included
  ExprId number();
  ExprId number(const std::optional<DecimalBound>& least, const std::optional<DecimalBound>& most);
  ExprId boolean();
  ExprId null();
  ExprId value();  // any
  ExprId any_object();
  ExprId any_array();
  ExprId array(ExprId item, int64_t least, std::optional<int64_t> most);

  // The largest integer without bounds of its own: 18 digits.
  static constexpr int64_t kMaxInteger = 999'999'999'999'999'999;
  // Digits of a number that survive as a double.
  static constexpr int64_t kMaxDigits = 15;

 private:
  ExprId blank();
  ExprId character();  // of a string
  // A rule of its own, made once.
  template <class Make>
  ExprId shared(const std::string& name, Make&& make) {
    const auto [place, is_new] = shared_.try_emplace(name, -1);
    if (is_new) {
      place->second = rules_.add_rule(name);
      const RuleId rule = place->second;  // `make` may refer to it
      rules_.define(rule, make());
    }
    return rules_.call(place->second);
  }

  Rules& rules_;
  int32_t max_whitespace_;
  std::map<std::string, RuleId> shared_;
};

}  // namespace tessera::grammar
