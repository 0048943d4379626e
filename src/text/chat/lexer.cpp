// Template source to tokens.
// SPDX-License-Identifier: MIT
#include "text/chat/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

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

// The end of the fraction and exponent that follow the digits ending at `end`; `end` if there are
// none.
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

struct Number {
  size_t size = 0;  // bytes read
  bool is_real = false;
  int64_t integer = 0;
  double real = 0.0;
};

// The number that `text` begins with: 12, 1_000, 0x1f, 1.5, 2e3. Refuses integers beyond 64 bits.
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

// Resolves Python's escapes in the body of one string literal.
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
    } else if (c == '\n') {  // the line continues
    } else if (c == 'x' || c == 'u' || c == 'U') {
      read_code(c == 'x' ? 2 : c == 'u' ? 4 : 8);
    } else if (c >= '0' && c <= '7') {
      int code = c - '0';
      for (int i = 0; i < 2 && at_ < body_.size() && digit_value(body_[at_]) < 8; ++i) {
        code = code * 8 + digit_value(body_[at_++]);
      }
      unicode::append_character(out_, static_cast<char32_t>(code));
    } else if (c == 'N') {
      fail_at(line_,
              "\\N{...} in a string is not supported; write the character itself or \\uXXXX");
    } else {  // Python leaves unknown escapes as they are
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

// \r\n and \r become \n; one newline at the end is dropped.
std::string normalize_newlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

constexpr std::array<std::string_view, 6> kLongSymbols = {"**", "//", "==", "!=", ">=", "<="};
constexpr std::string_view kShortSymbols = "+-/*%~[](){}><=.:|,";

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(normalize_newlines(source)) {}

  std::vector<Token> run() {
    while (position_ < text_.size()) read_root();
    push(TokenKind::end);
    return std::move(tokens_);
  }

 private:
  std::string_view rest(size_t from) const { return std::string_view(text_).substr(from); }
  bool sees(std::string_view word) const { return rest(position_).starts_with(word); }

  void push(TokenKind kind, std::string text = {}) {
    tokens_.push_back({.kind = kind, .line = line_, .text = std::move(text)});
  }
  void advance_to(size_t position) {
    line_ +=
        static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(position_),
                                    text_.begin() + static_cast<std::ptrdiff_t>(position), '\n'));
    position_ = position;
  }
  void advance(size_t bytes) { advance_to(position_ + bytes); }
  void skip_space() { advance(unicode::count_leading_space(rest(position_))); }

  size_t find_tag() const {
    for (size_t at = text_.find('{', position_); at != std::string::npos;
         at = text_.find('{', at + 1)) {
      const char next = at + 1 < text_.size() ? text_[at + 1] : '\0';
      if (next == '%' || next == '{' || next == '#') return at;
    }
    return text_.size();
  }

  // Emits the text up to `tag`, trimmed as the tag's sign asks, then moves past the sign.
  void push_data_before(size_t tag, bool is_print) {
    std::string_view data = rest(position_).substr(0, tag - position_);
    const char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    if (sign == '-') {
      data.remove_suffix(unicode::count_trailing_space(data));
    } else if (sign != '+' && !is_print) {
      const size_t line_start = data.find_last_of('\n') + 1;  // npos + 1 is 0
      const bool begins_line = position_ == 0 || text_[position_ - 1] == '\n';
      const std::string_view indent = data.substr(line_start);
      if ((line_start > 0 || begins_line) &&
          unicode::count_leading_space(indent) == indent.size()) {
        data = data.substr(0, line_start);
      }
    }
    if (!data.empty()) push(TokenKind::data, std::string(data));
    advance_to(tag);
    advance(sign == '-' || sign == '+' ? 3 : 2);
  }

  void read_root() {
    const size_t tag = find_tag();
    if (tag == text_.size()) {
      push(TokenKind::data, text_.substr(position_));
      advance_to(tag);
      return;
    }
    const char kind = text_[tag + 1];
    push_data_before(tag, kind == '{');
    if (kind == '#') return skip_comment();
    if (kind == '%' && skip_raw_begin()) return read_raw();
    push(kind == '{' ? TokenKind::print_begin : TokenKind::block_begin);
    read_tag(kind == '{');
  }

  void skip_comment() {
    const size_t end = text_.find("#}", position_);
    if (end == std::string::npos) fail_at(line_, "a comment is not closed: '#}' is missing");
    const char sign = end > position_ ? text_[end - 1] : '\0';
    advance_to(end);
    advance(2);
    trim_after(sign);
  }

  // Whitespace after a closing tag: '-' removes all of it, '+' none, no sign one newline.
  void trim_after(char sign) {
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && sees("\n")) {
      advance(1);
    }
  }

  // The position after whitespace, `word` and whitespace that begin at `from`; none without `word`.
  std::optional<size_t> match_word(size_t from, std::string_view word) const {
    from += unicode::count_leading_space(rest(from));
    if (!rest(from).starts_with(word)) return {};
    from += word.size();
    return from + unicode::count_leading_space(rest(from));
  }

  bool skip_raw_begin() {
    const std::optional<size_t> end = match_word(position_, "raw");
    if (!end) return false;
    if (rest(*end).starts_with("-%}")) {
      advance_to(*end + 3);
      skip_space();
      return true;
    }
    if (!rest(*end).starts_with("%}")) return false;
    advance_to(*end + 2);
    return true;
  }

  void read_raw() {
    for (size_t tag = text_.find("{%", position_); tag != std::string::npos;
         tag = text_.find("{%", tag + 2)) {
      const bool has_sign =
          tag + 2 < text_.size() && (text_[tag + 2] == '-' || text_[tag + 2] == '+');
      const std::optional<size_t> end = match_word(tag + (has_sign ? 3 : 2), "endraw");
      if (!end) continue;
      const bool has_end_sign = rest(*end).starts_with("-") || rest(*end).starts_with("+");
      const size_t close = *end + (has_end_sign ? 1 : 0);
      if (!rest(close).starts_with("%}")) continue;
      push_data_before(tag, false);
      advance_to(close + 2);
      return trim_after(has_end_sign ? text_[close - 1] : '\0');
    }
    fail_at(line_, "a raw block is not closed: '{% endraw %}' is missing");
  }

  bool read_tag_end(bool is_print) {
    const std::string_view close = is_print ? "}}" : "%}";
    const char sign = sees("-") || (sees("+") && !is_print) ? text_[position_] : '\0';
    if (!rest(position_ + (sign ? 1 : 0)).starts_with(close)) return false;
    push(is_print ? TokenKind::print_end : TokenKind::block_end);
    advance(close.size() + (sign ? 1 : 0));
    if (sign == '-' || !is_print) trim_after(sign);
    return true;
  }

  void read_tag(bool is_print) {
    std::string open;  // open brackets: a tag ends only outside them, as in {{ {'a': {}} }}
    while (true) {
      skip_space();
      if (position_ == text_.size()) fail_at(line_, "a tag is not closed at the template's end");
      if (open.empty() && read_tag_end(is_print)) return;
      const char c = text_[position_];
      if (is_digit(c)) {
        read_number();
      } else if (is_name_start(c)) {
        read_name();
      } else if (c == '\'' || c == '"') {
        read_string(c);
      } else {
        read_symbol(open);
      }
    }
  }

  void read_name() {
    size_t end = position_;
    while (end < text_.size() && (is_name_start(text_[end]) || is_digit(text_[end]))) ++end;
    push(TokenKind::name, text_.substr(position_, end - position_));
    advance_to(end);
  }

  void read_number() {
    // After a dot a number is digits only: x.0.1 is two subscripts.
    const bool is_subscript = !tokens_.empty() && tokens_.back().is_symbol(".");
    const Number number = read_number_literal(rest(position_), is_subscript, line_);
    Token token{.kind = number.is_real ? TokenKind::real : TokenKind::integer, .line = line_};
    token.integer = number.integer;
    token.real = number.real;
    tokens_.push_back(std::move(token));
    advance(number.size);
  }

  void read_string(char quote) {
    size_t end = position_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fail_at(line_, "a string is not closed");
    const std::string_view body = rest(position_ + 1).substr(0, end - position_ - 1);
    push(TokenKind::string, StringDecoder(body, line_).run());
    advance_to(end + 1);
  }

  void read_symbol(std::string& open) {
    const auto is_here = [&](std::string_view symbol) { return sees(symbol); };
    const auto it = std::ranges::find_if(kLongSymbols, is_here);
    if (it != kLongSymbols.end()) {
      push(TokenKind::symbol, std::string(*it));
      return advance(it->size());
    }
    const char c = text_[position_];
    if (kShortSymbols.find(c) == std::string_view::npos) {
      fail_at(line_, concat("unexpected character '", c, "'"));
    }
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : static_cast<char>(c + 2);
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) fail_at(line_, concat("unexpected '", c, "'"));
      open.pop_back();
    }
    push(TokenKind::symbol, std::string(1, c));
    advance(1);
  }

  std::string text_;
  size_t position_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace tessera::chat
