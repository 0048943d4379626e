// One pass over the pattern that knows escapes and classes, and nothing else.
// SPDX-License-Identifier: MIT
#include "engine/tokenizer/regex_syntax.h"

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::tokenizer {
namespace {

// PCRE2's \s also holds U+180E; its \w has no marks; its \h is horizontal space.
constexpr std::string_view kSpace = R"(\t-\r\x{85}\p{Z})";
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169})"
    R"(\x{1F170}-\x{1F189})";
constexpr std::string_view kHexDigit = "0-9a-fA-F";

// What a letter after a backslash stands for, as the inside of a class.
std::string_view members(char letter) {
  switch (letter) {
    case 's':
    case 'S': return kSpace;
    case 'w':
    case 'W': return kWord;
    case 'h':
    case 'H': return kHexDigit;
    default: return {};
  }
}

bool is_negated(char letter) { return letter >= 'A' && letter <= 'Z'; }

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view place) : in_(pattern), place_(place) {}

  std::string run() {
    while (pos_ < in_.size()) {
      const char byte = in_[pos_];
      if (byte == '\\') {
        escape();
      } else if (is_in_class_) {
        in_class(byte);
      } else {
        if (byte == '[') open_class();
        copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  bool next_is(std::string_view text) const { return in_.substr(pos_).starts_with(text); }

  void copy(size_t bytes) {
    out_.append(in_.substr(pos_, bytes));
    pos_ += bytes;
  }

  void escape() {
    if (next_is("\\Q")) refuse("\\Q");
    const char letter = pos_ + 1 < in_.size() ? in_[pos_ + 1] : '\0';
    const std::string_view set = members(letter);
    // The negated ones within a class stay as PCRE2 has them: a class can not hold a complement.
    if (set.empty() || (is_in_class_ && is_negated(letter))) {
      copy(2);
      return;
    }
    pos_ += 2;
    out_ += is_in_class_ ? std::string(set) : concat(is_negated(letter) ? "[^" : "[", set, "]");
  }

  void open_class() {
    is_in_class_ = true;
    class_begin_ = pos_ + (in_.substr(pos_).starts_with("[^") ? 2 : 1);
  }

  void in_class(char byte) {
    if (next_is("&&")) refuse("&& within a class");
    if (byte == '[') {
      const size_t end = next_is("[:") ? in_.find(":]", pos_ + 2) : std::string_view::npos;
      if (end == std::string_view::npos) refuse("a class within a class");
      copy(end + 2 - pos_);
      return;
    }
    if (byte == ']' && pos_ != class_begin_) is_in_class_ = false;
    copy(1);
  }

  [[noreturn]] void refuse(std::string_view what) const {
    fail(concat(place_, ": ", what, " at offset ", pos_,
                " of the pattern is not supported; write it without"));
  }

  std::string_view in_;
  std::string_view place_;
  std::string out_;
  size_t pos_ = 0;
  bool is_in_class_ = false;
  size_t class_begin_ = 0;  // where its first member is; a ']' there is a member
};

}  // namespace

std::string pcre2_syntax(std::string_view pattern, std::string_view place) {
  return Translator(pattern, place).run();
}

}  // namespace tessera::tokenizer
