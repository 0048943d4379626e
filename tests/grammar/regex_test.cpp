// Regular expressions against PCRE2: random patterns, random strings.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <pcre2.h>

#include <memory>
#include <random>
#include <string>

#include "tessera/core/error.h"
#include "tessera/grammar/constraint.h"

namespace tessera {
namespace {

class Reference {
 public:
  explicit Reference(const std::string& pattern) {
    const std::string anchored = "\\A(?:" + pattern + ")\\z";
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(anchored.data()), anchored.size(),
                              PCRE2_UTF, &error, &offset, nullptr));
    data_.reset(pcre2_match_data_create(1, nullptr));
  }
  bool is_valid() const { return code_ != nullptr; }
  bool matches(const std::string& text) const {
    return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0,
                       data_.get(), nullptr) >= 0;
  }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  };
  std::unique_ptr<pcre2_code, Free> code_;
  std::unique_ptr<pcre2_match_data, Free> data_;
};

class PatternMaker {
 public:
  explicit PatternMaker(uint32_t seed) : random_(seed) {}

  std::string pattern(int depth) {
    std::string out = sequence(depth);
    for (int i = pick(3); i > 1; --i) out.append("|").append(sequence(depth));
    return out;
  }
  std::string text() {
    static const char* const kPieces[] = {"a", "b", "c", "0", "7", "_", " ",  "\n", "é",
                                          "ß", "€", "😀", "-", "]", ".", "ab", "\t"};
    std::string out;
    for (int i = pick(8); i > 0; --i) out += kPieces[static_cast<size_t>(pick(17))];
    return out;
  }

 private:
  int pick(int count) { return static_cast<int>(random_() % static_cast<uint32_t>(count)); }

  std::string sequence(int depth) {
    std::string out;
    for (int i = pick(4); i > 0; --i) out += repeated(depth);
    return out;
  }
  std::string repeated(int depth) {
    static const char* const kEnds[] = {"", "", "", "*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"};
    return atom(depth) + kEnds[static_cast<size_t>(pick(10))];
  }
  std::string atom(int depth) {
    static const char* const kAtoms[] = {
        "a",     "b",          "é",    ".",       "\\d",      "\\w",    "\\s",       "\\D",
        "\\W",   "\\S",        "[ab]", "[^a]",    "[a-cé-€]", "[\\d_]", "[^\\s\\w]", "\\.",
        "\\x41", "\\x{1F600}", "[-a]", "[a\\]-]", "\\n",      "0",      "[^€]",      "c"};
    if (depth > 0 && pick(4) == 0) {
      std::string group = pick(2) == 0 ? "(" : "(?:";
      return group.append(pattern(depth - 1)).append(")");
    }
    return kAtoms[static_cast<size_t>(pick(24))];
  }

  std::mt19937 random_;
};

TEST(Regex, AgreesWithPcre2) {
  PatternMaker maker(7);
  int64_t num_compared = 0, num_matched = 0;
  for (int i = 0; i < 600; ++i) {
    const std::string pattern = maker.pattern(3);
    const Reference reference(pattern);
    ASSERT_TRUE(reference.is_valid()) << pattern;
    const auto constraint = Constraint::compile({.kind = ConstraintKind::regex, .text = pattern});
    for (int j = 0; j < 40; ++j) {
      const std::string text = maker.text();
      const bool is_match = reference.matches(text);
      ASSERT_EQ(constraint->matches(text), is_match) << "'" << pattern << "' on '" << text << "'";
      ++num_compared;
      num_matched += is_match ? 1 : 0;
    }
  }
  EXPECT_GT(num_matched, num_compared / 50);
  std::printf("%ld strings compared, %ld of them match\n", static_cast<long>(num_compared),
              static_cast<long>(num_matched));
}

TEST(Regex, AnchorsAtTheEndsAreImplied) {
  const auto constraint = Constraint::compile({.kind = ConstraintKind::regex, .text = "^ab|cd$"});
  EXPECT_TRUE(constraint->matches("ab"));
  EXPECT_TRUE(constraint->matches("cd"));
  EXPECT_FALSE(constraint->matches("abx"));
}

// A class takes whole characters: no text that it matches is broken UTF-8.
TEST(Regex, TakesWholeCharactersOnly) {
  const auto constraint = Constraint::compile({.kind = ConstraintKind::regex, .text = "[^a]"});
  EXPECT_TRUE(constraint->matches("\xf0\x9f\x98\x80"));
  for (const char* broken : {"\x80", "\xc3", "\xed\xa0\x80", "\xc0\x80", "\xf4\x90\x80\x80"}) {
    EXPECT_FALSE(constraint->matches(broken));
  }
}

}  // namespace
}  // namespace tessera
