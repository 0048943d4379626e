// Oniguruma syntax to PCRE2 syntax, with the character classes in which the two differ.
// SPDX-License-Identifier: MIT
#include "text/tokenizer/regex_syntax.h"

#include <pcre2.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "core/text.h"
#include "core/utf8.h"
#include "tessera/core/error.h"

namespace tessera::tokenizer {
namespace {

constexpr std::string_view kSpace = R"(\t-\r\x{85}\p{Z})";
constexpr std::string_view kHexDigit = "0-9a-fA-F";
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169})"
    R"(\x{1F170}-\x{1F189})";
// Oniguruma has its own table for Latin-1, in which superscripts and fractions are word characters.
// It uses that table for \w and \b, but not for classes in brackets.
constexpr std::string_view kLatin1Numbers = R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";

struct NamedMembers {
  std::string_view name;
  std::string_view members;
};

constexpr std::string_view kGraph = R"(\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}\p{Co})";

// Members of both [:name:] and \p{name}.
constexpr NamedMembers kPosix[] = {
    {"alnum", R"(\p{Alphabetic}\p{Nd})"},
    {"alpha", R"(\p{Alphabetic})"},
    {"blank", R"(\t\p{Zs})"},
    {"cntrl", R"(\p{Cc})"},
    {"digit", R"(\p{Nd})"},
    {"graph", kGraph},
    {"lower", R"(\p{Lowercase})"},
    {"print", R"(\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}\p{Co}\p{Zs})"},
    {"space", kSpace},
    {"upper", R"(\p{Uppercase})"},
    {"word", kWord},
    {"xdigit", kHexDigit},
};

std::string_view find(std::string_view name) {
  const auto* it = std::ranges::find(kPosix, name, &NamedMembers::name);
  return it == std::end(kPosix) ? std::string_view() : it->members;
}

// Whether PCRE2 has a script of that name under "sc:". From 10.40 on \p{Han} includes characters
// that Han shares with other scripts, and \p{sc:Han} is the script alone. Older versions have no
// "sc:", and their \p{Han} is the script alone.
bool is_script(std::string_view name) {
  const std::string pattern = concat("\\p{sc:", name, "}");
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF, &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

// The functions below return what stands between the brackets of a PCRE2 class; empty if PCRE2 and
// Oniguruma agree.

// 's' for \s and \S.
std::string_view escape_members(char letter) {
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

// \w outside a class, and what \b looks at.
std::string lone_word_members() { return concat(kWord, kLatin1Numbers); }

// "punct" for [:punct:].
std::string_view posix_members(std::string_view name) {
  if (name == "punct") return R"(\p{P}\p{S})";
  return find(name);
}

// "Han" for \p{Han}.
std::string property_members(std::string_view name) {
  std::string plain;  // names are compared without case, spaces, '-' and '_'
  for (const char c : name) {
    const bool is_upper = c >= 'A' && c <= 'Z';
    if (c != ' ' && c != '-' && c != '_') plain += is_upper ? static_cast<char>(c - 'A' + 'a') : c;
  }
  if (plain == "punct") return R"(\p{P})";  // without the symbols that [:punct:] has
  if (plain == "word") return lone_word_members();
  if (plain == "assigned") return R"(\P{Cn})";
  if (const std::string_view members = find(plain); !members.empty()) return std::string(members);
  return is_script(plain) ? concat("\\p{sc:", plain, "}") : std::string();
}

constexpr size_t kNowhere = std::string_view::npos;

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }
bool is_negated(char letter) { return letter >= 'A' && letter <= 'Z'; }

// A character class: members, and sets whose complements are members too.
struct CharacterClass {
  bool is_negated = false;
  std::string members;
  std::vector<std::string> complements;

  void add(std::string_view set, bool is_complement) {
    if (is_complement) {
      complements.emplace_back(set);
    } else {
      members += set;
    }
  }

  // A PCRE2 class can not hold the complement of a set, so complements become alternatives.
  std::string written() const {
    if (complements.empty()) return concat(is_negated ? "[^" : "[", members, "]");
    if (complements.size() == 1 && members.empty()) {
      return concat(is_negated ? "[" : "[^", complements[0], "]");
    }
    std::string any = members.empty() ? "" : concat("[", members, "]");
    for (const std::string& set : complements)
      any += concat(any.empty() ? "" : "|", "[^", set, "]");
    return is_negated ? concat("(?:(?!", any, ")(?s:.))") : concat("(?:", any, ")");
  }
};

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view place) : in_(pattern), place_(place) {}

  std::string run() {
    while (pos_ < in_.size()) {
      const char byte = in_[pos_];
      if (byte == '{' && count_end() != kNowhere) {
        count();
        continue;
      }
      if (byte == '(') {
        open_group();
        continue;
      }
      if (byte == ')') {
        atom_ = groups_.empty() ? out_.size() : groups_.back();
        if (!groups_.empty()) groups_.pop_back();
        copy(1);
        continue;
      }
      if (byte == '?' || byte == '*' || byte == '+') {  // applies to the last atom
        copy(1);
        continue;
      }
      atom_ = out_.size();
      if (byte == '\\') {
        escape();
      } else if (byte == '[') {
        out_ += read_class().written();
      } else {
        copy(character_bytes());
      }
    }
    return std::move(out_);
  }

 private:
  bool next_is(std::string_view text) const { return in_.substr(pos_).starts_with(text); }
  char at(size_t ahead) const { return pos_ + ahead < in_.size() ? in_[pos_ + ahead] : '\0'; }

  size_t character_bytes() const {
    size_t bytes = 1;
    while (unicode::is_continuation(at(bytes))) ++bytes;
    return bytes;
  }

  void copy(size_t bytes) {
    out_.append(in_.substr(pos_, bytes));
    pos_ += bytes;
  }

  // The position of the '}' of a count that begins here ({n}, {n,}, {,m} or {n,m}), or kNowhere.
  size_t count_end() const {
    size_t end = pos_ + 1;
    size_t num_digits = 0;
    size_t num_commas = 0;
    for (; end < in_.size() && (is_digit(in_[end]) || in_[end] == ','); ++end) {
      ++(in_[end] == ',' ? num_commas : num_digits);
    }
    const bool is_count = end < in_.size() && in_[end] == '}' && num_digits > 0 && num_commas < 2;
    return is_count ? end : kNowhere;
  }

  void count() {
    const size_t end = count_end();
    out_ += next_is("{,") ? "{0" : "{";  // PCRE2 reads {,n} as text
    ++pos_;
    copy(end + 1 - pos_);
    // After a count, '+' repeats the repetition in Oniguruma and is possessive in PCRE2.
    if (at(0) == '+') {
      out_.insert(atom_, "(?:");
      out_ += ')';
    }
  }

  // Oniguruma's (?m) lets '.' match a newline, which is (?s) in PCRE2; the rest is the same.
  void open_group() {
    groups_.push_back(out_.size());
    copy(1);
    if (at(0) != '?') return;
    size_t end = 1;
    while (at(end) == 'i' || at(end) == 'm' || at(end) == 'x' || at(end) == '-') ++end;
    if (at(end) != ':' && at(end) != ')') return;
    for (const char letter : in_.substr(pos_, end)) out_ += letter == 'm' ? 's' : letter;
    pos_ += end;
  }

  // The bytes of \p{Name}, or 0.
  size_t property_bytes() const {
    const bool is_property = (at(1) == 'p' || at(1) == 'P') && at(2) == '{';
    const size_t end = is_property ? in_.find('}', pos_) : kNowhere;
    return end == kNowhere ? 0 : end + 1 - pos_;
  }

  // Adds \p{Name}, \P{Name} or \p{^Name} to a class if its members differ in PCRE2.
  bool take_property(CharacterClass& into) {
    const size_t bytes = property_bytes();
    if (bytes == 0) return false;
    std::string_view name = in_.substr(pos_ + 3, bytes - 4);
    const bool has_caret = name.starts_with('^');
    if (has_caret) name.remove_prefix(1);
    const std::string members = property_members(name);
    if (members.empty()) return false;
    into.add(members, (at(1) == 'P') != has_caret);
    pos_ += bytes;
    return true;
  }

  void escape() {
    if (next_is("\\Q")) refuse("\\Q");
    const char letter = at(1);
    CharacterClass alone;
    if (take_property(alone)) {
      out_ += alone.written();
      return;
    }
    if (letter == 'b' || letter == 'B') {
      const std::string word = lone_word_members();
      out_ +=
          letter == 'b'
              ? concat("(?:(?<=[", word, "])(?![", word, "])|(?<![", word, "])(?=[", word, "]))")
              : concat("(?:(?<=[", word, "])(?=[", word, "])|(?<![", word, "])(?![", word, "]))");
      pos_ += 2;
      return;
    }
    if (letter == 'v' || letter == 'V') {  // a vertical tab; the letter V
      out_ += letter == 'v' ? "\\x{B}" : "V";
      pos_ += 2;
      return;
    }
    const bool is_word = letter == 'w' || letter == 'W';
    const std::string set = is_word ? lone_word_members() : std::string(escape_members(letter));
    if (set.empty()) {
      copy(property_bytes() > 0 ? property_bytes() : 2);
      return;
    }
    alone.add(set, is_negated(letter));
    out_ += alone.written();
    pos_ += 2;
  }

  CharacterClass read_class() {
    CharacterClass made;
    const size_t begin = pos_++;
    made.is_negated = at(0) == '^';
    if (made.is_negated) ++pos_;
    for (const size_t first = pos_; pos_ < in_.size();) {
      if (in_[pos_] == ']' && pos_ != first) {  // as the first character, ']' is a member
        ++pos_;
        return made;
      }
      add_member(made);
    }
    fail(concat(place_, ": the pattern is refused at offset ", in_.size(),
                ": missing terminating ] for the class at offset ", begin));
  }

  void add_member(CharacterClass& into) {
    if (next_is("&&")) refuse("&& within a class");
    const size_t begin = pos_;
    if (at(0) == '[') return add_posix(into);
    if (at(0) != '\\') {
      pos_ += character_bytes();
    } else {
      if (next_is("\\Q")) refuse("\\Q");
      if (take_property(into)) return;
      const char letter = at(1);
      if (const std::string_view set = escape_members(letter); !set.empty()) {
        into.add(set, is_negated(letter));
        pos_ += 2;
        return;
      }
      if (letter == 'v' || letter == 'V') {
        into.members += letter == 'v' ? "\\x{B}" : "V";
        pos_ += 2;
        return;
      }
      pos_ += property_bytes() > 0 ? property_bytes() : std::min(in_.size() - pos_, size_t{2});
    }
    into.members += in_.substr(begin, pos_ - begin);
  }

  void add_posix(CharacterClass& into) {
    const size_t end = next_is("[:") ? in_.find(":]", pos_ + 2) : kNowhere;
    if (end == kNowhere) refuse("a class within a class");
    const std::string_view written = in_.substr(pos_, end + 2 - pos_);
    std::string_view name = written.substr(2, written.size() - 4);
    const bool is_complement = name.starts_with('^');
    if (is_complement) name.remove_prefix(1);
    const std::string_view set = posix_members(name);
    into.add(set.empty() ? written : set, is_complement && !set.empty());
    pos_ = end + 2;
  }

  [[noreturn]] void refuse(std::string_view what) const {
    fail(concat(place_, ": ", what, " at offset ", pos_,
                " of the pattern is not supported; write it without"));
  }

  std::string_view in_;
  std::string_view place_;
  std::string out_;
  size_t pos_ = 0;
  size_t atom_ = 0;             // start of the last atom in out_
  std::vector<size_t> groups_;  // starts of the open groups in out_
};

}  // namespace

std::string pcre2_syntax(std::string_view pattern, std::string_view place) {
  return Translator(pattern, place).run();
}

}  // namespace tessera::tokenizer
