// Unicode normal forms, and the other steps of a normalizer.
// SPDX-License-Identifier: MIT
#include "text/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/text.h"
#include "tessera/core/error.h"
#include "text/unicode.h"

namespace tessera::tokenizer {
namespace {

using Codes = std::vector<utf8proc_int32_t>;

utf8proc_propval_t combining_class(utf8proc_int32_t code) {
  return utf8proc_get_property(code)->combining_class;
}

// utf8proc sorts marks by swapping neighbours, which is quadratic for a long run in reverse order.
// Runs that are sorted already cost it one pass.
void order_marks(Codes& codes) {
  auto begin = codes.begin();
  while (begin != codes.end()) {
    if (combining_class(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, codes.end(),
                                  [](utf8proc_int32_t code) { return combining_class(code) == 0; });
    std::stable_sort(begin, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
    begin = end;
  }
}

void append_decomposed(Codes& codes, char32_t code, bool is_compatible) {
  std::array<utf8proc_int32_t, 32> parts{};  // the longest decomposition has 18 characters
  const int options = UTF8PROC_DECOMPOSE | (is_compatible ? UTF8PROC_COMPAT : 0);
  int last_boundary_class = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(code), parts.data(), utf8proc_ssize_t{parts.size()},
      static_cast<utf8proc_option_t>(options), &last_boundary_class);
  if (count < 0 || count > utf8proc_ssize_t{parts.size()}) {
    fail(concat("tokenizer: U+", std::hex, static_cast<uint32_t>(code),
                " can not be decomposed by this utf8proc"));
  }
  codes.insert(codes.end(), parts.begin(), parts.begin() + count);
}

void compose(Codes& codes) {
  constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()), kOptions);
  codes.resize(static_cast<size_t>(std::max<utf8proc_ssize_t>(count, 0)));
}

// Appends the normal form of a whole text. `codes` is scratch memory.
void append_normalized(std::string& out, std::string_view text, NormalForm form, Codes& codes) {
  const bool is_compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  codes.clear();
  while (!text.empty()) {
    const unicode::Character next = unicode::read_character(text);
    append_decomposed(codes, next.code, is_compatible);
    text.remove_prefix(next.bytes);
  }
  order_marks(codes);
  if (form == NormalForm::nfc || form == NormalForm::nfkc) compose(codes);
  for (const utf8proc_int32_t code : codes)
    unicode::append_character(out, static_cast<char32_t>(code));
}

// What a character does to the NFC form of a text.
enum class NfcRole : uint8_t {
  boundary,  // unchanged, and nothing before it changes it: text may be cut before it
  mark,      // unchanged if marks are in the order of their classes
  unsure,    // changes, or may be composed with what precedes it
};

// The table of roles ends here. No character above it is decomposed or a mark today, but a later
// Unicode version may add some, so they count as unsure.
constexpr char32_t kNumRoles = 0x30000;

// Derived from what utf8proc does, which has no such property. Takes about 2 ms.
std::vector<NfcRole> make_nfc_roles() {
  std::vector<NfcRole> roles(kNumRoles, NfcRole::boundary);
  Codes parts;
  for (char32_t code = 0; code < kNumRoles; ++code) {
    const auto own = static_cast<utf8proc_int32_t>(code);
    if (combining_class(own) != 0) roles[code] = std::max(roles[code], NfcRole::mark);
    parts.clear();
    append_decomposed(parts, code, false);
    if (parts.size() == 1 && parts[0] == own) continue;
    const Codes decomposed = parts;
    compose(parts);
    if (parts.size() != 1 || parts[0] != own) {
      roles[code] = NfcRole::unsure;
      continue;
    }
    // A composite: each of its parts after the first can be composed with what precedes it.
    for (size_t idx = 1; idx < decomposed.size(); ++idx) {
      roles.at(static_cast<size_t>(decomposed[idx])) = NfcRole::unsure;
    }
  }
  return roles;
}

NfcRole nfc_role(char32_t code) {
  static const std::vector<NfcRole> roles = make_nfc_roles();
  return code < kNumRoles ? roles[code] : NfcRole::unsure;
}

bool is_ascii(char byte) { return static_cast<uint8_t>(byte) < 0x80; }

// Copies what is normalised already. Any other stretch is normalised by itself, from the boundary
// before it to the one after it.
std::string to_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  Codes codes;
  size_t done = 0;           // text before this is in `out`
  size_t boundary = 0;       // the last position where the text may be cut
  bool is_changing = false;  // a character between `boundary` and `pos` may change
  utf8proc_propval_t last_class = 0;
  for (size_t pos = 0; pos < text.size();) {
    const unicode::Character next =
        is_ascii(text[pos])
            ? unicode::Character{static_cast<uint8_t>(text[pos]), 1, unicode::Utf8::valid}
            : unicode::read_character(text.substr(pos));
    const NfcRole role = next.bytes == 1 ? NfcRole::boundary : nfc_role(next.code);
    if (role == NfcRole::boundary) {
      if (is_changing) {
        out.append(text, done, boundary - done);
        append_normalized(out, text.substr(boundary, pos - boundary), NormalForm::nfc, codes);
        done = pos;
        is_changing = false;
      }
      boundary = pos;
      last_class = 0;
    } else {
      const auto own_class = combining_class(static_cast<utf8proc_int32_t>(next.code));
      is_changing |= role == NfcRole::unsure || own_class < last_class;
      last_class = own_class;
    }
    pos += next.bytes;
  }
  if (!is_changing) boundary = text.size();
  out.append(text, done, boundary - done);
  append_normalized(out, text.substr(boundary), NormalForm::nfc, codes);
  return out;
}

}  // namespace

std::string normalize(std::string_view text, NormalForm form) {
  if (form == NormalForm::nfc) return to_nfc(text);
  if (std::ranges::all_of(text, is_ascii)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  Codes codes;
  append_normalized(out, text, form, codes);
  return out;
}

namespace {

// Calls `append` for every character of `text`.
template <class Append>
std::string by_character(std::string_view text, Append&& append) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const unicode::Character next = unicode::read_character(text);
    append(out, next.code);
    text.remove_prefix(next.bytes);
  }
  return out;
}

std::string strip(std::string_view text, bool is_left, bool is_right) {
  while (is_left && !text.empty()) {
    const unicode::Character first = unicode::read_character(text);
    if (!unicode::is_whitespace(first.code)) break;
    text.remove_prefix(first.bytes);
  }
  while (is_right && !text.empty()) {
    const unicode::Character last = unicode::last_character(text);
    if (!unicode::is_whitespace(last.code)) break;
    text.remove_suffix(last.bytes);
  }
  return std::string(text);
}

std::string lowercase(std::string_view text) {
  return by_character(text, unicode::append_lowercase);
}

std::string strip_accents(std::string_view text) {
  return by_character(text, [](std::string& out, char32_t code) {
    if (!unicode::is_mark(code)) unicode::append_character(out, code);
  });
}

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

}  // namespace

Normalizer::Normalizer(const FileNode& node) {
  for (const FileNode& step : sequence_of(node, "normalizers")) steps_.push_back(read_step(step));
}

Normalizer::Step Normalizer::read_step(const FileNode& node) {
  const std::string type = node.type();
  if (type == "NFC") return NormalForm::nfc;
  if (type == "NFD") return NormalForm::nfd;
  if (type == "NFKC") return NormalForm::nfkc;
  if (type == "NFKD") return NormalForm::nfkd;
  if (type == "Prepend") return Prepend{node.at("prepend").text()};
  if (type == "Replace") return Replacement::read(node);
  if (type == "Lowercase") return Lowercase{};
  if (type == "StripAccents") return StripAccents{};
  if (type == "Strip") {
    return Strip{node.flag("strip_left", true), node.flag("strip_right", true)};
  }
  node.refuse(concat("normalizer ", in_quotes(type),
                     " is not supported; supported: Sequence, NFC, NFD, NFKC, NFKD, Prepend, "
                     "Replace, Lowercase, Strip, StripAccents"));
}

std::string Normalizer::apply(std::string_view text, bool continues, MatchBudget& budget) const {
  const size_t max_bytes = max_grown_bytes(text.size());
  std::string out(text);
  for (const Step& step : steps_) {
    std::visit(Overloaded{
                   [&](NormalForm form) { out = normalize(out, form); },
                   [&](const Prepend& prepend) {
                     if (!out.empty() && !continues) out.insert(0, prepend.text);
                   },
                   [&](const Strip& s) { out = strip(out, s.is_left, s.is_right); },
                   [&](Lowercase) { out = lowercase(out); },
                   [&](StripAccents) { out = strip_accents(out); },
                   [&](const Replacement& r) { out = r.apply(out, max_bytes, budget); },
               },
               step);
    check_growth(out.size(), max_bytes);
  }
  return out;
}

}  // namespace tessera::tokenizer
