// The normalizers that Llama, Qwen2, GPT-2 and their kin use.
// SPDX-License-Identifier: MIT
#include "text/tokenizer/normalizer.h"

#include "core/text.h"
#include "text/unicode.h"

namespace tessera::tokenizer {
namespace {

// Calls `append` with the code of every character.
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
