// Lengths, patterns, formats and bounds.
// SPDX-License-Identifier: MIT
#include "grammar/schema_values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "core/text.h"
#include "grammar/regex.h"
#include "tessera/core/error.h"

namespace tessera::grammar {
namespace {

struct Format {
  std::string_view name;
  std::string_view pattern;
};

#define TESSERA_DATE                                                                  \
  "[0-9]{3}[1-9]-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12]" \
  "[0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
#define TESSERA_TIME                                                                    \
  "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+\\-]([01][0-9]|2[0-3])" \
  ":[0-5][0-9])"
// 29 February and leap seconds are left out.
constexpr std::array<Format, 6> kFormats{{
    {"date", "^" TESSERA_DATE "$"},
    {"time", "^" TESSERA_TIME "$"},
    {"date-time", "^" TESSERA_DATE "T" TESSERA_TIME "$"},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
    {"email",
     "^[a-z0-9_+\\-]{1,32}(\\.[a-z0-9_+\\-]{1,32}){0,3}@([a-z0-9]([a-z0-9\\-]{0,30}[a-z0-9])?\\."
     "){1,4}[a-z]{2,10}$"},
    {"ipv4",
     "^(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(\\.(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
     "){3}$"},
}};
#undef TESSERA_DATE
#undef TESSERA_TIME

std::string_view pattern_of_format(const Json& format, const std::string& path) {
  if (format.is_string()) {
    const auto& name = format.get_ref<const std::string&>();
    const auto found = std::ranges::find(kFormats, std::string_view(name), &Format::name);
    if (found != kFormats.end()) return found->pattern;
  }
  std::string known;
  for (const Format& one : kFormats) known += concat(known.empty() ? "" : ", ", one.name);
  refuse_schema(path,
                concat("format ", shown(format.dump()), " is not supported; supported: ", known));
}

void check_number(const Json& value, const char* keyword, const std::string& path) {
  if (value.is_number()) return;
  refuse_schema(path, concat(keyword, " is ", shown(value.dump()), "; give a number"));
}

// The nearest integer within a bound; an excluded one is left out.
std::optional<int64_t> integer_bound(const Json& schema, const char* keyword, int step,
                                     bool is_excluded, const std::string& path) {
  if (!schema.contains(keyword)) return std::nullopt;
  const Json& value = schema[keyword];
  check_number(value, keyword, path);
  constexpr int64_t kMost = JsonParts::kMaxInteger + 1;
  if (value.is_number_integer()) {
    if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{kMost}) return kMost;
    const int64_t whole = std::clamp(value.get<int64_t>(), -kMost, kMost);
    return is_excluded ? whole + step : whole;
  }
  const double bound = std::clamp(value.get<double>(), -1e18, 1e18);
  const double whole = step > 0 ? std::ceil(bound) : std::floor(bound);
  const bool is_whole = whole == bound;
  return static_cast<int64_t>(whole) + (is_excluded && is_whole ? step : 0);
}

DecimalBound decimal_bound(const Json& value, const char* keyword, bool is_excluded,
                           const std::string& path) {
  check_number(value, keyword, path);
  std::array<char, 512> buffer{};
  std::string text = value.dump();
  if (value.is_number_float()) {
    const auto written = std::to_chars(buffer.data(), buffer.data() + buffer.size(),
                                       value.get<double>(), std::chars_format::fixed);
    text.assign(buffer.data(), written.ptr);
  }
  DecimalBound bound{.is_excluded = is_excluded};
  if (text.starts_with("-")) {
    bound.is_negative = true;
    text.erase(0, 1);
  }
  const size_t point = std::min(text.find('.'), text.size());
  bound.whole = text.substr(0, point);
  if (point < text.size()) bound.fraction = text.substr(point + 1);
  while (bound.fraction.ends_with("0")) bound.fraction.pop_back();
  if (bound.is_zero()) bound.is_negative = false;
  const auto num_digits =
      std::ssize(bound.fraction) + (bound.whole == "0" ? 0 : std::ssize(bound.whole));
  if (num_digits > JsonParts::kMaxDigits) {
    refuse_schema(path, concat(keyword, " is ", shown(value.dump()), "; give at most ",
                               JsonParts::kMaxDigits, " digits"));
  }
  return bound;
}

// -1, 0, 1: by value, whatever is excluded.
int compare(const DecimalBound& a, const DecimalBound& b) {
  if (a.is_negative != b.is_negative) return a.is_negative ? -1 : 1;
  int order = 0;
  if (a.whole.size() != b.whole.size()) {
    order = a.whole.size() < b.whole.size() ? -1 : 1;
  } else if (a.whole != b.whole) {
    order = a.whole < b.whole ? -1 : 1;
  } else if (a.fraction != b.fraction) {
    order = a.fraction < b.fraction ? -1 : 1;
  }
  return a.is_negative ? -order : order;
}

// The stricter of an included and an excluded bound.
std::optional<DecimalBound> number_bound(const Json& schema, const char* included,
                                         const char* excluded, int direction,
                                         const std::string& path) {
  std::optional<DecimalBound> bound;
  if (schema.contains(included)) bound = decimal_bound(schema[included], included, false, path);
  if (schema.contains(excluded)) {
    const DecimalBound other = decimal_bound(schema[excluded], excluded, true, path);
    if (!bound || compare(other, *bound) * direction >= 0) bound = other;
  }
  return bound;
}

}  // namespace

std::optional<int64_t> schema_count(const Budget& budget, const Json& schema, const char* keyword,
                                    const std::string& path) {
  if (!schema.contains(keyword)) return std::nullopt;
  const Json& value = schema[keyword];
  if (!value.is_number_integer() || value < 0) {
    refuse_schema(path, concat(keyword, " is ", shown(value.dump()), "; give a whole number"));
  }
  const uint64_t count = value.get<uint64_t>();
  budget.check_repetition(static_cast<int64_t>(std::min<uint64_t>(count, INT64_MAX)), keyword);
  return static_cast<int64_t>(count);
}

ExprId schema_string(JsonParts& parts, const Json& schema, const std::string& path) {
  Rules& rules = parts.rules();
  const std::optional<int64_t> least = schema_count(rules.budget(), schema, "minLength", path);
  const std::optional<int64_t> most = schema_count(rules.budget(), schema, "maxLength", path);
  const bool has_pattern = schema.contains("pattern"), has_format = schema.contains("format");
  const int num_ways = (least || most ? 1 : 0) + (has_pattern ? 1 : 0) + (has_format ? 1 : 0);
  if (num_ways > 1) {
    refuse_schema(path, "of length, pattern and format only one is supported at a time");
  }
  if (has_pattern && !schema["pattern"].is_string()) refuse_schema(path, "pattern is not a string");
  if (has_pattern || has_format) {
    const std::string_view pattern =
        has_pattern ? std::string_view(schema["pattern"].get_ref<const std::string&>())
                    : pattern_of_format(schema["format"], path);
    return parts.quoted(parse_regex(rules, pattern, RegexUse::json_string));
  }
  if (most && *most < least.value_or(0)) {
    refuse_schema(path, concat("minLength is ", *least, ", maxLength ", *most));
  }
  return parts.string(least.value_or(0), most);
}

ExprId schema_integer(JsonParts& parts, const Json& schema, const std::string& path) {
  const auto stricter = [](std::optional<int64_t> a, std::optional<int64_t> b, bool wants_larger) {
    if (!a || !b) return a ? a : b;
    return std::optional(wants_larger ? std::max(*a, *b) : std::min(*a, *b));
  };
  const auto least = stricter(integer_bound(schema, "minimum", 1, false, path),
                              integer_bound(schema, "exclusiveMinimum", 1, true, path), true);
  const auto most = stricter(integer_bound(schema, "maximum", -1, false, path),
                             integer_bound(schema, "exclusiveMaximum", -1, true, path), false);
  constexpr int64_t kMost = JsonParts::kMaxInteger;
  if (least.value_or(-kMost) > most.value_or(kMost) || least.value_or(0) > kMost ||
      most.value_or(0) < -kMost) {
    refuse_schema(path, concat("no integer of at most 18 digits is from ", least.value_or(-kMost),
                               " to ", most.value_or(kMost)));
  }
  return parts.integer(least, most);
}

ExprId schema_number(JsonParts& parts, const Json& schema, const std::string& path) {
  const auto least = number_bound(schema, "minimum", "exclusiveMinimum", 1, path);
  const auto most = number_bound(schema, "maximum", "exclusiveMaximum", -1, path);
  if (least && most && compare(*least, *most) > 0) {
    refuse_schema(path, "minimum is above maximum");
  }
  return parts.number(least, most);
}

}  // namespace tessera::grammar
