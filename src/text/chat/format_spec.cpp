// Python's format specifications: [[fill]align][sign][#][0][width][grouping][.precision][type].
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "core/text.h"
#include "text/chat/operators.h"
#include "text/chat/print.h"
#include "text/chat/text_ops.h"
#include "text/unicode.h"

namespace tessera::chat {
namespace {

constexpr size_t kMaxPrecision = 400;  // digits of a float; a double has 17 significant ones

struct Spec {
  std::string_view fill = " ";  // one character
  char align = '\0';            // '<', '>', '^' or '='; none: the default of the value's type
  char sign = '-';
  bool has_sign = false;
  bool is_alternate = false;
  size_t width = 0;
  char grouping = '\0';  // ',' or '_'
  std::optional<size_t> precision = {};
  char type = '\0';
};

bool is_align(std::string_view text, size_t at) {
  return at < text.size() && std::string_view("<>=^").find(text[at]) != std::string_view::npos;
}

class SpecReader {
 public:
  SpecReader(RenderState& state, std::string_view text) : state_(state), text_(text) {}

  Spec read() {
    Spec spec;
    const size_t fill_size = unicode::character_at(text_, 0).bytes;
    const bool has_fill = is_align(text_, fill_size);
    if (has_fill) {
      spec.fill = text_.substr(0, fill_size);
      spec.align = text_[fill_size];
      pos_ = fill_size + 1;
    } else if (is_align(text_, 0)) {
      spec.align = text_[pos_++];
    }
    if (const char sign = take("+- ")) {
      spec.sign = sign;
      spec.has_sign = true;
    }
    spec.is_alternate = take("#") != '\0';
    if (!has_fill && take("0") != '\0') spec.fill = "0";
    if (const auto width = number()) spec.width = *width;
    spec.grouping = take(",_");
    if (take(".") != '\0') {
      spec.precision = number();
      if (!spec.precision) fail("needs digits after '.'");
    }
    if (pos_ < text_.size()) spec.type = text_[pos_++];
    if (pos_ < text_.size()) fail("is not understood");
    state_.check_text_size(spec.width);
    return spec;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    state_.fail(concat("'format': the specification '", text_.substr(0, 60), "' ", what));
  }

  char peek() const { return pos_ < text_.size() ? text_[pos_] : '\0'; }

  char take(std::string_view any) {
    const char c = peek();
    if (c == '\0' || any.find(c) == std::string_view::npos) return '\0';
    ++pos_;
    return c;
  }

  std::optional<size_t> number() {
    size_t value = 0;
    const auto read = std::from_chars(text_.data() + pos_, text_.data() + text_.size(), value);
    if (read.ec == std::errc::invalid_argument) return {};
    if (read.ec != std::errc()) fail("has a number beyond 64 bits");
    pos_ = static_cast<size_t>(read.ptr - text_.data());
    return value;
  }

  RenderState& state_;
  std::string_view text_;
  size_t pos_ = 0;
};

// A formatted number before padding.
struct Digits {
  std::string sign;
  std::string prefix = {};  // 0x, 0o or 0b
  std::string whole = {};
  std::string rest = {};  // the point, the exponent, the '%' and what follows
  size_t group = 3;
};

// `digits` with separators between groups, and padded with zeros to at least `least` bytes.
std::string group_digits(std::string_view digits, char separator, size_t group, size_t least) {
  size_t count = std::max(digits.size(), least - least / (group + 1) + 1);
  while (count > digits.size() && count - 1 + (count - 2) / group >= least) --count;
  std::string grouped;
  for (size_t left = count; left > 0; --left) {
    if (left < count && left % group == 0) grouped += separator;
    grouped += left > digits.size() ? '0' : digits[digits.size() - left];
  }
  return grouped;
}

class Writer {
 public:
  Writer(TextBuilder& out, RenderState& state, const Value& value, const Spec& spec)
      : out_(out), state_(state), value_(value), spec_(spec) {}

  void write() {
    if (const Text* text = value_.text()) return write_text(*text);
    constexpr std::string_view kOfReals = "eEfFgG%";
    const bool is_real = value_.is<double>() || (spec_.type != '\0' && kOfReals.find(spec_.type) !=
                                                                           std::string_view::npos);
    if (!real_of(value_)) {
      state_.fail(concat("'format': ", describe(value_), " takes no specification"));
    }
    write_number(is_real ? real_digits(*real_of(value_)) : integer_digits(*integer_of(value_)));
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    state_.fail(concat("'format': ", describe(value_), " can not be written with ", what));
  }
  [[noreturn]] void fail_type() const { fail(concat("type '", std::string(1, spec_.type), "'")); }

  template <class Body>
  void pad(size_t size, char align, Body&& body) {
    const size_t padding = spec_.width > size ? spec_.width - size : 0;
    const size_t left = align == '>' || align == '=' ? padding : align == '^' ? padding / 2 : 0;
    for (size_t i = 0; i < left; ++i) out_.append(spec_.fill, false);
    body();
    for (size_t i = left; i < padding; ++i) out_.append(spec_.fill, false);
  }

  void write_text(const Text& text) {
    if (spec_.type != '\0' && spec_.type != 's') fail_type();
    if (spec_.has_sign) fail("a sign");
    if (spec_.is_alternate) fail("'#'");
    if (spec_.grouping != '\0') fail("grouping");
    if (spec_.align == '=') fail("alignment '='");
    const std::vector<size_t> offsets = character_offsets(state_, text);
    const size_t size = std::min(offsets.size() - 1, spec_.precision.value_or(SIZE_MAX));
    pad(size, spec_.align == '\0' ? '<' : spec_.align,
        [&] { out_.append(text, 0, offsets[size]); });
  }

  std::string sign_of(bool is_negative) const {
    const char sign = is_negative ? '-' : spec_.sign;
    return std::string(is_negative || sign != '-' ? 1 : 0, sign);
  }

  Digits integer_digits(int64_t number) const {
    if (spec_.precision) fail("a precision");
    Digits digits{.sign = sign_of(number < 0)};
    int base = 10;
    switch (spec_.type) {
      case '\0':
      case 'd':
      case 'n': break;
      case 'b': base = 2; break;
      case 'o': base = 8; break;
      case 'x':
      case 'X': base = 16; break;
      case 'c': {
        if (number < 0 || number > 0x10FFFF) fail("type 'c': it is no character");
        unicode::append_character(digits.whole, static_cast<char32_t>(number));
        return digits;
      }
      default: fail_type();
    }
    if (spec_.grouping == ',' && base != 10) fail("',' in this base");
    const uint64_t size =
        number < 0 ? uint64_t{0} - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
    char buffer[72];
    const auto written = std::to_chars(buffer, buffer + sizeof buffer, size, base);
    digits.whole.assign(buffer, written.ptr);
    if (base != 10) digits.group = 4;
    if (spec_.is_alternate && base != 10) digits.prefix = {'0', spec_.type};
    if (spec_.type == 'X') {
      for (char& c : digits.whole)
        c = static_cast<char>(unicode::to_upper(static_cast<char32_t>(c)));
    }
    return digits;
  }

  // The digits of a magnitude in the format of the type.
  std::string real_text(double size) const {
    if (std::isnan(size) || std::isinf(size)) return format_real(size);
    const bool is_plain = spec_.type == '\0';
    if (is_plain && !spec_.precision) return format_real(size);
    const int precision = static_cast<int>(spec_.precision.value_or(6));
    char buffer[1024];
    const auto write = [&](double number, std::chars_format format, int digits) {
      const auto written = std::to_chars(buffer, buffer + sizeof buffer, number, format, digits);
      return std::string(buffer, written.ptr);
    };
    switch (spec_.type) {
      case 'e':
      case 'E': return write(size, std::chars_format::scientific, precision);
      case 'f':
      case 'F': return write(size, std::chars_format::fixed, precision);
      case '%': return concat(write(size * 100, std::chars_format::fixed, precision), "%");
      default: break;
    }
    const int significant = std::max(precision, 1);
    if (!is_plain) return write(size, std::chars_format::general, significant);
    return plain_text(size, significant,
                      write(size, std::chars_format::scientific, significant - 1));
  }

  // Without a type: as 'g', but always with a digit after the point, and so with an exponent one
  // digit earlier.
  static std::string plain_text(double size, int significant, const std::string& scientific) {
    const int exponent = std::stoi(scientific.substr(scientific.find('e') + 1));
    char buffer[1024];
    const bool has_exponent = exponent < -4 || exponent >= significant - 1;
    if (has_exponent) {
      std::string mantissa = scientific.substr(0, scientific.find('e'));
      if (mantissa.find('.') != std::string::npos) {
        mantissa.erase(mantissa.find_last_not_of('0') + 1);
        if (mantissa.back() == '.') mantissa.pop_back();
      }
      return mantissa + scientific.substr(scientific.find('e'));
    }
    const auto written = std::to_chars(buffer, buffer + sizeof buffer, size,
                                       std::chars_format::general, significant);
    std::string text(buffer, written.ptr);
    return text.find('.') == std::string::npos ? concat(text, ".0") : text;
  }

  Digits real_digits(double number) const {
    constexpr std::string_view kTypes = "eEfFgGn%";
    if (spec_.type != '\0' && kTypes.find(spec_.type) == std::string_view::npos) fail_type();
    if (spec_.is_alternate) fail("'#'");
    if (spec_.precision.value_or(0) > kMaxPrecision) {
      fail(concat("more than ", kMaxPrecision, " digits"));
    }
    std::string text = real_text(std::fabs(number));
    if (spec_.type == 'E' || spec_.type == 'F' || spec_.type == 'G') {
      for (char& c : text) c = static_cast<char>(unicode::to_upper(static_cast<char32_t>(c)));
    }
    const size_t whole = std::min(text.find_first_not_of("0123456789"), text.size());
    return {.sign = sign_of(std::signbit(number) && !std::isnan(number)),
            .whole = text.substr(0, whole),
            .rest = text.substr(whole)};
  }

  void write_number(Digits digits) {
    const bool is_character = spec_.type == 'c';
    const size_t around = digits.sign.size() + digits.prefix.size() + digits.rest.size();
    const char standard = spec_.fill == "0" ? '=' : '>';
    const char align = spec_.align == '\0' ? standard : spec_.align;
    const bool pads_zeros = align == '=' && spec_.fill == "0";
    if (spec_.grouping != '\0' && !digits.whole.empty() && !is_character) {
      const size_t least = pads_zeros && spec_.width > around ? spec_.width - around : 0;
      digits.whole = group_digits(digits.whole, spec_.grouping, digits.group, least);
    }
    const std::string head = digits.sign + digits.prefix;
    const std::string body = digits.whole + digits.rest;
    const size_t size = head.size() + unicode::count_characters(body);
    if (align == '=') out_.append(head, true);  // padding goes after the sign
    pad(size, align, [&] {
      if (align != '=') out_.append(head, true);
      out_.append(body, !is_character);
    });
  }

  TextBuilder& out_;
  RenderState& state_;
  const Value& value_;
  const Spec& spec_;
};

}  // namespace

void format_value(TextBuilder& out, RenderState& state, const Value& value, std::string_view spec) {
  if (spec.empty()) return print(out, state, value);
  const Spec read = SpecReader(state, spec).read();
  Writer(out, state, value, read).write();
}

}  // namespace tessera::chat
