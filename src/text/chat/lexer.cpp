// Cuts a template into tokens, with Jinja's rules for whitespace.
// SPDX-License-Identifier: MIT
#include "text/chat/lexer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "core/text.h"
#include "text/chat/literal.h"
#include "text/chat/render_state.h"
#include "text/unicode.h"

namespace tessera::chat {
namespace {

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

  // Text up to `tag`, trimmed as the tag's sign asks, then moves behind the sign.
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

  // What follows a closing tag: '-' eats all whitespace, '+' nothing, otherwise one newline.
  void trim_after(char sign) {
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && sees("\n")) {
      advance(1);
    }
  }

  // The position behind `space word space`, counted from `from`.
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
    std::string open;  // brackets: a tag ends only outside them, so that {{ {'a': {}} }} reads well
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
    // After a dot only digits belong to it: x.0.1 is two subscripts.
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
    push(TokenKind::string, decode_string_literal(body, line_));
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
