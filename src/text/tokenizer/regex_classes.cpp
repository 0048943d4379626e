// Members of the classes, as Oniguruma 6.9 has them for UTF-8.
// SPDX-License-Identifier: MIT
#include "text/tokenizer/regex_classes.h"

#include <pcre2.h>

#include <algorithm>
#include <iterator>

#include "core/text.h"

namespace tessera::tokenizer {
namespace {

constexpr std::string_view kSpace = R"(\t-\r\x{85}\p{Z})";
constexpr std::string_view kHexDigit = "0-9a-fA-F";
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169})"
    R"(\x{1F170}-\x{1F189})";
// Oniguruma has a table of its own for Latin-1, in which superscripts and fractions are word
// characters. It looks there for \w and \b, and not for classes in brackets.
constexpr std::string_view kLatin1Numbers = R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";

struct NamedMembers {
  std::string_view name;
  std::string_view members;
};

constexpr std::string_view kGraph = R"(\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}\p{Co})";

// Both [:name:] and \p{name}; ascii, cntrl and digit agree where PCRE2 has them.
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

// Whether PCRE2 knows a script of that name. From 10.40 on its \p{Han} includes the characters that
// Han shares with other scripts, and \p{sc:Han} is the script alone. Before, sc: is unknown and
// \p{Han} is the script alone.
bool is_script(std::string_view name) {
  const std::string pattern = concat("\\p{sc:", name, "}");
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF, &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

}  // namespace

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

std::string lone_word_members() { return concat(kWord, kLatin1Numbers); }

std::string_view posix_members(std::string_view name) {
  if (name == "punct") return R"(\p{P}\p{S})";
  return find(name);
}

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

}  // namespace tessera::tokenizer
