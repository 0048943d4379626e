// Numbers and strings as a template spells them, by Python's rules.
// SPDX-License-Identifier: MIT
#include "text/chat/literal.h"

#include <algorithm>
#include <charconv>

#include "core/text.h"
#include "text/chat/render_state.h"
#include "text/unicode.h"

namespace tessera::chat {
namespace {

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

// The end of the digits at `from`; a single '_' may stand between two of them.
size_t skip_digits(std::string_view text, size_t from, int base) {
  const auto is_digit_at = [&](size_t i) { return i < text.size() && digit_value(text[i]) < base; };
  size_t at = from;
  while (is_digit_at(at) ||
         (at > from && at < text.size() && text[at] == '_' && is_digit_at(at + 1)))
    ++at;
  return at;
}

std::string without_underscores(std::string_view text) {
  std::string digits(text);
  std::erase(digits, '_');
  return digits;
}

int base_of(std::string_view text) {
  if (text.size() < 3 || text[0] != '0') return 10;
  const int base = text[1] == 'x' || text[1] == 'X'   ? 16
                   : text[1] == 'o' || text[1] == 'O' ? 8
                   : text[1] == 'b' || text[1] == 'B' ? 2
                                                      : 10;
  return base != 10 && digit_value(text[2]) < base ? base : 10;
}

// Fraction and exponent behind the digits that end at `end`; `end` itself where there are none.
size_t skip_real_part(std::string_view text, size_t end) {
  size_t at = end;
  if (at < text.size() && text[at] == '.') {
    const size_t fraction = skip_digits(text, at + 1, 10);
    if (fraction > at + 1) at = fraction;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    size_t exponent = at + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    const size_t stop = skip_digits(text, exponent, 10);
    if (stop > exponent) at = stop;
  }
  return at;
}

}  // namespace

Number read_number_literal(std::string_view text, bool only_digits, int line) {
  Number number;
  const int base = only_digits ? 10 : base_of(text);
  const size_t prefix = base == 10 ? 0 : 2;
  const size_t end = skip_digits(text, prefix, base);
  const size_t real_end = base == 10 && !only_digits ? skip_real_part(text, end) : end;
  number.size = real_end;
  if (real_end > end) {
    number.is_real = true;
    const std::string digits = without_underscores(text.substr(0, real_end));
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), number.real);
    if (result.ec != std::errc()) fail_at(line, concat("number ", digits, " is out of range"));
    return number;
  }
  const std::string digits = without_underscores(text.substr(prefix, end - prefix));
  const char* last = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), last, number.integer, base);
  if (result.ec != std::errc()) fail_at(line, concat("integer ", digits, " exceeds 64 bits"));
  return number;
}

namespace {

// Reads escapes of one string literal.
class StringDecoder {
 public:
  StringDecoder(std::string_view body, int line) : body_(body), line_(line) {}

  std::string run() {
    while (at_ < body_.size()) {
      const char c = body_[at_++];
      if (c != '\\' || at_ == body_.size()) {
        out_ += c;
      } else {
        read_escape(body_[at_++]);
      }
    }
    return std::move(out_);
  }

 private:
  void read_escape(char c) {
    static constexpr std::string_view kFrom = "ntr\\'\"abfv";
    static constexpr std::string_view kTo = "\n\t\r\\'\"\a\b\f\v";
    if (const size_t i = kFrom.find(c); i != std::string_view::npos) {
      out_ += kTo[i];
    } else if (c == '\n') {  // a line continued
    } else if (c == 'x' || c == 'u' || c == 'U') {
      read_code(c == 'x' ? 2 : c == 'u' ? 4 : 8);
    } else if (c >= '0' && c <= '7') {
      int code = c - '0';
      for (int i = 0; i < 2 && at_ < body_.size() && digit_value(body_[at_]) < 8; ++i) {
        code = code * 8 + digit_value(body_[at_++]);
      }
      unicode::append_character(out_, static_cast<char32_t>(code));
    } else if (c == 'N') {
      fail_at(line_, "an escape in a string names a character; write it as \\uXXXX");
    } else {  // an escape Python does not know stays as it is
      out_ += '\\';
      out_ += c;
    }
  }

  void read_code(int num_digits) {
    int64_t code = 0;
    for (int i = 0; i < num_digits; ++i) {
      if (at_ == body_.size() || digit_value(body_[at_]) >= 16) {
        fail_at(line_, concat("an escape in a string needs ", num_digits, " hexadecimal digits"));
      }
      code = code * 16 + digit_value(body_[at_++]);
    }
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
      fail_at(line_, "an escape in a string is no Unicode character");
    }
    unicode::append_character(out_, static_cast<char32_t>(code));
  }

  std::string_view body_;
  int line_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string decode_string_literal(std::string_view body, int line) {
  return StringDecoder(body, line).run();
}

}  // namespace tessera::chat
