// Regular expressions of tokenizer files, run by PCRE2 so that none can hang.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::tokenizer {

struct Match {
  size_t begin = 0;
  size_t end = 0;
};

// The processor time that all matching for one text may take: far more than any pattern in use
// needs (5 s, and 2 s for each MB), far less than one made to backtrack would take.
class MatchBudget {
 public:
  explicit MatchBudget(size_t text_bytes);
  void charge();  // for one attempt; throws when the time is spent

 private:
  int64_t limit_ns_;
  int64_t start_ns_;
  uint32_t num_attempts_ = 0;
};

// A compiled pattern. Immutable, so that threads may share it; a Scan belongs to one thread.
// Files are written for Oniguruma; what means something else in PCRE2 is rewritten
// (regex_syntax.h).
class Regex {
 public:
  // Refuses what PCRE2 refuses, with its message and the offset; `place` says where it stands.
  Regex(std::string_view pattern, std::string_view place);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // The matches in a valid UTF-8 text, from left to right. A match may be empty, but no empty one
  // touches the match before it.
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
    size_t starts_per_call_;  // places where one call may begin a match
    size_t pos_ = 0;
    size_t last_end_ = SIZE_MAX;
  };

 private:
  struct Code;
  std::unique_ptr<Code> code_;
  std::string place_;
};

}  // namespace tessera::tokenizer
