// Patterns as tokenizer.json writes them, and replacement by them.
// SPDX-License-Identifier: MIT
#include "text/tokenizer/pattern.h"

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::tokenizer {
namespace {

constexpr size_t kMaxGrowth = 32;  // NFKC of one character is 11 times as long at most
constexpr size_t kFreeGrowth = 1024;

}  // namespace

Pattern Pattern::read(const FileNode& node) {
  if (const auto regex = node.find("Regex")) return Pattern(Regex(regex->text(), regex->place()));
  if (const auto literal = node.find("String")) return Pattern(literal->text());
  node.refuse("is neither a Regex nor a String");
}

Replacement Replacement::read(const FileNode& node) {
  return {Pattern::read(node.at("pattern")), node.at("content").text()};
}

std::string Replacement::apply(std::string_view text, size_t max_bytes, MatchBudget& budget) const {
  std::string out;
  size_t done = 0;
  pattern.for_each(text, budget, [&](const Match& match) {
    out.append(text.substr(done, match.begin - done));
    out.append(content);
    check_growth(out.size(), max_bytes);
    done = match.end;
  });
  out.append(text.substr(done));
  check_growth(out.size(), max_bytes);
  return out;
}

size_t max_grown_bytes(size_t bytes) { return kMaxGrowth * bytes + kFreeGrowth; }

void check_growth(size_t bytes, size_t max_bytes) {
  if (bytes <= max_bytes) return;
  fail(concat("tokenizer: the file's Replace or Prepend steps make more than ", max_bytes,
              " bytes, ", kMaxGrowth, " times the text they are given"));
}

}  // namespace tessera::tokenizer
