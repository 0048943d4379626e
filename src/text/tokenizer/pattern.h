// What a Split or a Replace looks for: a regular expression, a literal, or a class of characters.
// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "text/tokenizer/file_node.h"
#include "text/tokenizer/regex.h"
#include "text/unicode.h"

namespace tessera::tokenizer {

class Pattern {
 public:
  using CharacterClass = bool (*)(char32_t);

  static Pattern read(const FileNode& node);  // {"Regex": ...} or {"String": ...}
  explicit Pattern(Regex regex) : regex_(std::make_unique<Regex>(std::move(regex))) {}
  explicit Pattern(std::string literal) : literal_(std::move(literal)) {}
  explicit Pattern(CharacterClass members) : members_(members) {}

  // Calls on_match for each match in a valid UTF-8 text, from left to right. Each character of a
  // class is a match of its own; an empty literal matches nowhere.
  template <class OnMatch>
  void for_each(std::string_view text, MatchBudget& budget, OnMatch&& on_match) const {
    if (regex_ != nullptr) {
      Regex::Scan scan(*regex_, text, budget);
      while (const std::optional<Match> match = scan.next()) on_match(*match);
    } else if (members_ != nullptr) {
      for (size_t pos = 0; pos < text.size();) {
        const unicode::Character next = unicode::read_character(text.substr(pos));
        if (members_(next.code)) on_match(Match{pos, pos + next.bytes});
        pos += next.bytes;
      }
    } else if (!literal_.empty()) {
      for (size_t pos = text.find(literal_); pos != std::string_view::npos;) {
        on_match(Match{pos, pos + literal_.size()});
        pos = text.find(literal_, pos + literal_.size());
      }
    }
  }

 private:
  // One of the three.
  std::unique_ptr<Regex> regex_;
  CharacterClass members_ = nullptr;
  std::string literal_;
};

// Text with every match of a pattern replaced.
struct Replacement {
  Pattern pattern;
  std::string content;

  static Replacement read(const FileNode& node);  // "pattern" and "content"
  // Refuses to make more than max_bytes.
  std::string apply(std::string_view text, size_t max_bytes, MatchBudget& budget) const;
};

// What all steps together may make of a text: steps that multiply must not fill the memory.
size_t max_grown_bytes(size_t bytes);
void check_growth(size_t bytes, size_t max_bytes);

}  // namespace tessera::tokenizer
