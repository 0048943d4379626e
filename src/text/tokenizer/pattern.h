// What a Split or a Replace looks for: a regular expression, a literal or a class of characters.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "text/tokenizer/tokenizer_file.h"
#include "text/unicode.h"

namespace tessera::tokenizer {

struct Match {
  size_t begin = 0;
  size_t end = 0;
};

// The CPU time that all matching in one text may take: 5 s plus 2 s per MB. That is far more than
// any pattern in use needs and far less than a pattern built to backtrack would take.
class MatchBudget {
 public:
  explicit MatchBudget(size_t text_bytes);
  void charge();  // called once per attempt; throws when the time is spent

 private:
  int64_t limit_ns_;
  int64_t start_ns_;
  uint32_t num_attempts_ = 0;
};

// A pattern compiled by PCRE2, after a translation from Oniguruma's syntax (regex_syntax.h).
// Immutable, so threads may share it; a Scan belongs to one thread.
class Regex {
 public:
  // Refuses what PCRE2 refuses, with its message and the offset. `place` names the pattern's place.
  Regex(std::string_view pattern, std::string_view place);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // The matches in a valid UTF-8 text, from left to right. A match may be empty, but an empty match
  // never touches the one before it.
  class Scan {
   public:
    Scan(const Regex& regex, std::string_view text, MatchBudget& budget);
    ~Scan();
    Scan(const Scan&) = delete;
    Scan& operator=(const Scan&) = delete;
    std::optional<Match> next();

   private:
    std::optional<Match> search();

    struct Scratch;
    const Regex* regex_;
    std::string_view text_;
    MatchBudget* budget_;
    std::unique_ptr<Scratch> scratch_;
    size_t starts_per_call_;  // starting positions one PCRE2 call may try
    size_t pos_ = 0;
    size_t last_end_ = SIZE_MAX;
  };

 private:
  struct Code;
  std::unique_ptr<Code> code_;
  std::string place_;
};

class Pattern {
 public:
  using CharacterClass = bool (*)(char32_t);

  static Pattern read(const FileNode& node);  // {"Regex": ...} or {"String": ...}
  explicit Pattern(Regex regex) : regex_(std::make_unique<Regex>(std::move(regex))) {}
  explicit Pattern(std::string literal) : literal_(std::move(literal)) {}
  explicit Pattern(CharacterClass members) : members_(members) {}

  // Calls on_match for each match in a valid UTF-8 text, from left to right. Each character of the
  // class is a separate match; an empty literal matches nowhere.
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
  // Exactly one of these is set.
  std::unique_ptr<Regex> regex_;
  CharacterClass members_ = nullptr;
  std::string literal_;
};

// Replaces every match of a pattern.
struct Replacement {
  Pattern pattern;
  std::string content;

  static Replacement read(const FileNode& node);  // "pattern" and "content"
  // Refuses a result of more than max_bytes.
  std::string apply(std::string_view text, size_t max_bytes, MatchBudget& budget) const;
};

// The most bytes that all steps together may make of a text, so that steps which multiply it cannot
// exhaust memory.
size_t max_grown_bytes(size_t bytes);
void check_growth(size_t bytes, size_t max_bytes);

}  // namespace tessera::tokenizer
