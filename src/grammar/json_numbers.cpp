// Numbers of JSON within bounds, digit by digit.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <utility>

#include "core/text.h"
#include "grammar/json_parts.h"
#include "tessera/core/error.h"

namespace tessera::grammar {
namespace {

ExprId digit(Rules& rules, char first, char last) {
  return rules.character({{static_cast<char32_t>(first), static_cast<char32_t>(last)}});
}

ExprId digits(Rules& rules, int64_t least, int64_t most) {
  return rules.repeat(digit(rules, '0', '9'), least, most);
}

// Digit strings from `low` to `high`, all of their length.
ExprId same_length(Rules& rules, std::string_view low, std::string_view high) {
  const auto num_digits = std::ssize(low);
  if (num_digits == 0) return rules.text("");
  const std::string nines(static_cast<size_t>(num_digits - 1), '9');
  const std::string zeros(static_cast<size_t>(num_digits - 1), '0');
  const bool is_loose = low.substr(1) == zeros && high.substr(1) == nines;
  if (is_loose) {
    return rules.sequence(
        {digit(rules, low[0], high[0]), digits(rules, num_digits - 1, num_digits - 1)});
  }
  if (low[0] == high[0]) {
    return rules.sequence(
        {rules.text(low.substr(0, 1)), same_length(rules, low.substr(1), high.substr(1))});
  }
  std::vector<ExprId> parts{
      rules.sequence({rules.text(low.substr(0, 1)), same_length(rules, low.substr(1), nines)}),
      rules.sequence({rules.text(high.substr(0, 1)), same_length(rules, zeros, high.substr(1))})};
  if (high[0] - low[0] > 1) {
    const auto first = static_cast<char>(low[0] + 1), last = static_cast<char>(high[0] - 1);
    parts.push_back(
        rules.sequence({digit(rules, first, last), digits(rules, num_digits - 1, num_digits - 1)}));
  }
  return rules.any_of(std::move(parts));
}

// Whole numbers of `count` digits within bounds.
struct Span {
  std::string low;
  std::string high;
};

bool is_less(std::string_view a, std::string_view b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

std::vector<Span> by_length(const std::string& low, const std::string& high) {
  std::vector<Span> spans;
  for (size_t count = low.size(); count <= high.size(); ++count) {
    Span span{std::string(count, '0'), std::string(count, '9')};
    if (count > 1) span.low[0] = '1';
    if (count == low.size()) span.low = low;
    if (count == high.size()) span.high = high;
    if (!is_less(span.high, span.low)) spans.push_back(std::move(span));
  }
  return spans;
}

// Whole numbers from `low` to `high`, neither negative nor with leading zeros.
ExprId whole_range(Rules& rules, const std::string& low, const std::string& high) {
  std::vector<ExprId> parts;
  for (const Span& span : by_length(low, high)) {
    parts.push_back(same_length(rules, span.low, span.high));
  }
  return rules.any_of(std::move(parts));
}

std::string plus(std::string whole, int step) {  // step is 1 or -1; the result is not negative
  return std::to_string(std::stoll(whole) + step);
}

// The digits after the point, between those of two bounds. A bound is tight while the digits so far
// are its own.
class Fraction {
 public:
  Fraction(Rules& rules, const DecimalBound* low, const DecimalBound* high, int64_t most)
      : rules_(rules), low_(low), high_(high), most_(most) {}

  ExprId make() const {
    std::vector<ExprId> parts;
    if (may_end(0, low_ != nullptr, high_ != nullptr)) parts.push_back(rules_.text(""));
    if (most_ > 0) {
      parts.push_back(
          rules_.sequence({rules_.text("."), next(0, low_ != nullptr, high_ != nullptr)}));
    }
    return rules_.any_of(std::move(parts));
  }

 private:
  static char digit_at(const DecimalBound& bound, int64_t i) {
    return i < std::ssize(bound.fraction) ? bound.fraction[static_cast<size_t>(i)] : '0';
  }
  static bool is_over(const DecimalBound& bound, int64_t i) {
    return i >= std::ssize(bound.fraction);
  }
  bool may_end(int64_t i, bool is_low_tight, bool is_high_tight) const {
    if (is_low_tight && (!is_over(*low_, i) || low_->is_excluded)) return false;
    return !(is_high_tight && is_over(*high_, i) && high_->is_excluded);
  }

  ExprId rest(int64_t i, bool is_low_tight, bool is_high_tight) const {
    if (!is_low_tight && !is_high_tight) return digits(rules_, 0, most_ - i);
    std::vector<ExprId> parts;
    if (may_end(i, is_low_tight, is_high_tight)) parts.push_back(rules_.text(""));
    if (i < most_) parts.push_back(next(i, is_low_tight, is_high_tight));
    return rules_.any_of(std::move(parts));
  }

  // At least one more digit.
  ExprId next(int64_t i, bool is_low_tight, bool is_high_tight) const {
    const char low = is_low_tight ? digit_at(*low_, i) : '0';
    const char high = is_high_tight ? digit_at(*high_, i) : '9';
    std::vector<ExprId> parts;
    for (char c = low; c <= high;) {
      const bool stays_low = is_low_tight && c == low, stays_high = is_high_tight && c == high;
      char last = c;  // digits that loosen both bounds go together
      if (!stays_low && !stays_high) last = is_high_tight ? static_cast<char>(high - 1) : high;
      parts.push_back(
          rules_.sequence({digit(rules_, c, last), rest(i + 1, stays_low, stays_high)}));
      c = static_cast<char>(last + 1);
    }
    return rules_.any_of(std::move(parts));
  }

  Rules& rules_;
  const DecimalBound* low_;
  const DecimalBound* high_;
  int64_t most_;
};

int64_t fraction_room(std::string_view whole) {
  return JsonParts::kMaxDigits - (whole == "0" ? 0 : std::ssize(whole));
}

// Numbers from `low` to `high`, not negative.
ExprId magnitude(Rules& rules, const DecimalBound& low, const DecimalBound& high) {
  std::vector<ExprId> parts;
  const auto add = [&](ExprId whole, std::string_view digits_of, const DecimalBound* tight_low,
                       const DecimalBound* tight_high) {
    const Fraction fraction(rules, tight_low, tight_high, fraction_room(digits_of));
    parts.push_back(rules.sequence({whole, fraction.make()}));
  };
  if (low.whole == high.whole) {
    add(rules.text(low.whole), low.whole, &low, &high);
    return rules.any_of(std::move(parts));
  }
  if (is_less(high.whole, low.whole)) return rules.any_of({});
  add(rules.text(low.whole), low.whole, &low, nullptr);
  add(rules.text(high.whole), high.whole, nullptr, &high);
  const std::string first = plus(low.whole, 1), last = plus(high.whole, -1);
  if (!is_less(last, first)) {
    for (const Span& span : by_length(first, last)) {
      add(same_length(rules, span.low, span.high), span.low, nullptr, nullptr);
    }
  }
  return rules.any_of(std::move(parts));
}

}  // namespace

ExprId JsonParts::integer(std::optional<int64_t> least, std::optional<int64_t> most) {
  const int64_t low = std::max(least.value_or(-kMaxInteger), -kMaxInteger);
  const int64_t high = std::min(most.value_or(kMaxInteger), kMaxInteger);
  std::vector<ExprId> parts;
  if (high >= 0 && low <= high) {
    parts.push_back(
        whole_range(rules_, std::to_string(std::max<int64_t>(0, low)), std::to_string(high)));
  }
  if (low < 0 && low <= high) {
    const int64_t nearest = std::max<int64_t>(1, -high);
    parts.push_back(rules_.sequence(
        {rules_.text("-"), whole_range(rules_, std::to_string(nearest), std::to_string(-low))}));
  }
  return rules_.any_of(std::move(parts));
}

ExprId JsonParts::number() {
  return shared("number", [&] {
    const ExprId whole = rules_.any_of(
        {rules_.text("0"), rules_.sequence({digit(rules_, '1', '9'), digits(rules_, 0, 14)})});
    const ExprId fraction = rules_.sequence({rules_.text("."), digits(rules_, 1, kMaxDigits)});
    const ExprId sign = rules_.any_of({rules_.text("+"), rules_.text("-"), rules_.text("")});
    const ExprId exponent = rules_.sequence(
        {rules_.any_of({rules_.text("e"), rules_.text("E")}), sign, digits(rules_, 1, 2)});
    return rules_.sequence({rules_.optional(rules_.text("-")), whole, rules_.optional(fraction),
                            rules_.optional(exponent)});
  });
}

ExprId JsonParts::number(const std::optional<DecimalBound>& least,
                         const std::optional<DecimalBound>& most) {
  if (!least && !most) return number();
  const DecimalBound zero{.whole = "0"};
  const DecimalBound limit{.whole = std::string(kMaxDigits, '9')};
  const auto without_sign = [](DecimalBound bound) {
    bound.is_negative = false;
    return bound;
  };
  std::vector<ExprId> parts;
  if (!most || !most->is_negative) {
    const bool is_from_least = least && !least->is_negative;
    parts.push_back(magnitude(rules_, is_from_least ? *least : zero, most ? *most : limit));
  }
  if (!least || least->is_negative) {
    // -0 is left out: zero is among the numbers above, if it is allowed.
    DecimalBound nearest{.whole = "0", .fraction = "", .is_excluded = true};
    if (most && most->is_negative) nearest = without_sign(*most);
    const DecimalBound farthest = least ? without_sign(*least) : limit;
    parts.push_back(rules_.sequence({rules_.text("-"), magnitude(rules_, nearest, farthest)}));
  }
  return rules_.any_of(std::move(parts));
}

}  // namespace tessera::grammar
