// Normalisation by utf8proc, and a quick check that passes over text already in form NFC.
// SPDX-License-Identifier: MIT
#include "text/tokenizer/normal_form.h"

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

// utf8proc orders marks by exchanging neighbours, which is quadratic in a run that an adversary
// writes backwards. Sorted runs cost it one pass.
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

// Appends the normal form of all of a text. `codes` is memory to work in.
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

// What a character means for a text in NFC.
enum class NfcRole : uint8_t {
  boundary,  // stays as it is, and nothing before it changes it: text may be cut in front of it
  mark,      // stays as it is if marks stand in the order of their classes
  unsure,    // changes, or may be composed with what stands before it
};

// The roles of all characters below this; no character from here on is decomposed or a mark, but a
// later Unicode may add some, so they count as unsure.
constexpr char32_t kNumRoles = 0x30000;

// Made from what utf8proc does, since it has no such property. Costs about 2 ms.
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
    // A composite: each of its parts after the first is taken up by what stands before it.
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

// Copies what is normalised; each other stretch, from the boundary before it to the one after, is
// normalised by itself.
std::string to_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  Codes codes;
  size_t done = 0;           // text before this is in `out`
  size_t boundary = 0;       // the last place where the text may be cut
  bool is_changing = false;  // between there and `pos` is a character that may change
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

}  // namespace tessera::tokenizer
