// Character classes and patterns match as in the Hugging Face library.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "tessera/core/error.h"
#include "tests/text/tokenizer/files.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pattern.h"
#include "text/unicode.h"

namespace tessera::testing {
namespace {

using nlohmann::json;
using tokenizer::MatchBudget;
using tokenizer::Regex;

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  const Regex regex(pattern, "test");
  MatchBudget budget(text.size());
  Regex::Scan scan(regex, text, budget);
  std::vector<std::string> found;
  while (const auto match = scan.next()) {
    if (match->end > match->begin) {
      found.emplace_back(text.substr(match->begin, match->end - match->begin));
    }
  }
  return found;
}

// Run lengths: alternately characters to skip, and characters after the next one to take.
std::vector<bool> decode_ranges(const std::string& written) {
  std::vector<bool> members(0x110000, false);
  std::istringstream in(written);
  std::string gap, more;
  for (size_t at = 0; in >> gap >> more;) {
    at += std::stoul(gap, nullptr, 36);
    for (size_t left = std::stoul(more, nullptr, 36) + 1; left > 0; --left) members.at(at++) = true;
  }
  return members;
}

std::string text_of(const std::vector<bool>& members) {
  std::string text;
  for (char32_t code = 0; code < members.size(); ++code) {
    const bool is_surrogate = code >= 0xD800 && code < 0xE000;
    if (members[code] && !is_surrogate) unicode::append_character(text, code);
  }
  return text;
}

// The characters of `text` that are in a class.
std::set<char32_t> members_in(std::string_view pattern, std::string_view text) {
  std::set<char32_t> members;
  for (const std::string& run : matches("(?:" + std::string(pattern) + ")+", text)) {
    for (std::string_view rest = run; !rest.empty();) {
      const unicode::Character next = unicode::read_character(rest);
      members.insert(next.code);
      rest.remove_prefix(next.bytes);
    }
  }
  return members;
}

std::string listed(const std::set<char32_t>& codes) {
  std::ostringstream out;
  for (const char32_t code : codes) out << " U+" << std::hex << static_cast<uint32_t>(code);
  return out.str();
}

// Every character that both Unicode versions have, except a few thousand private-use ones, which
// are all alike. `changed` lists characters that changed class after Unicode 14, the oldest
// supported version; PCRE2 may have either class.
TEST(Classes, HaveTheMembersOfTheReference) {
  const json file = read_data("classes");
  std::vector<bool> compared = decode_ranges(file["assigned"]);
  for (char32_t code = 0xE100; code <= 0xF8FF; ++code) compared[code] = false;
  for (char32_t code = 0xF0100; code <= 0x10FFFF; ++code) compared[code] = false;
  for (const char32_t code : members_in(R"(\p{Cn})", text_of(compared))) compared[code] = false;
  const std::string text = text_of(compared);
  size_t num_changed = 0;
  for (const auto& [pattern, written] : file["classes"].items()) {
    std::vector<bool> expected = decode_ranges(written);
    std::set<char32_t> found;
    try {
      found = members_in(pattern, text);
    } catch (const Error& error) {
      const auto newer = file["newer"].get<std::set<std::string>>();  // scripts since Unicode 14
      EXPECT_TRUE(newer.contains(pattern)) << pattern << ": " << error.what();
      continue;
    }
    const auto changed = file["changed"].value(pattern, std::set<uint32_t>());
    std::set<char32_t> wrong;
    for (char32_t code = 0; code < compared.size(); ++code) {
      if (!compared[code] || (code >= 0xD800 && code < 0xE000)) continue;
      if (found.contains(code) == expected[code]) continue;
      if (changed.contains(code)) {
        ++num_changed;
      } else {
        wrong.insert(code);
      }
    }
    EXPECT_TRUE(wrong.empty()) << pattern << " differs at" << listed(wrong);
  }
  RecordProperty("reclassified_characters", static_cast<int>(num_changed));
}

TEST(Classes, PatternsMatchWhatTheReferenceMatches) {
  const json file = read_data("patterns");
  for (const json& row : file["patterns"]) {
    for (size_t idx = 0; idx < file["texts"].size(); ++idx) {
      const std::string text = file["texts"][idx];
      SCOPED_TRACE(::testing::Message() << row[0] << " in " << file["texts"][idx]);
      EXPECT_EQ(matches(row[0].get<std::string>(), text),
                row[1][idx].get<std::vector<std::string>>());
    }
  }
}

TEST(NormalForms, OfRandomTextsAreThoseOfTheReference) {
  const json data = read_data("nfc");
  for (const json& row : data["rows"]) {
    SCOPED_TRACE(row[0]);
    EXPECT_EQ(tokenizer::normalize(row[0].get<std::string>(), tokenizer::NormalForm::nfc),
              row[1].get<std::string>());
  }
}

// NFC of a text equals NFC of its NFD, and NFC twice equals NFC once: for each character alone,
// after a letter, before marks in and out of order, and among characters like it.
TEST(NormalForms, AreTheSameFromEitherSideForEveryCharacter) {
  using tokenizer::NormalForm;
  const auto expect_equal_forms = [](const std::string& text) {
    const std::string composed = tokenizer::normalize(text, NormalForm::nfc);
    EXPECT_EQ(composed,
              tokenizer::normalize(tokenizer::normalize(text, NormalForm::nfd), NormalForm::nfc));
    EXPECT_EQ(composed, tokenizer::normalize(composed, NormalForm::nfc));
  };
  std::string run;
  for (char32_t code = 1; code < 0x32000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string own;
    unicode::append_character(own, code);
    run += own;
    if (code % 16 == 0) {
      expect_equal_forms(run);
      run.clear();
    }
    std::string text = own;
    for (const char* around : {"e", "\u1100", "a\u0323", "\u0301\u0316"}) text += around + own;
    expect_equal_forms(text);
    if (HasFailure()) FAIL() << "at U+" << std::hex << static_cast<uint32_t>(code);
  }
}

}  // namespace
}  // namespace tessera::testing
