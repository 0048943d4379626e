// Foreign text as messages show it.
// SPDX-License-Identifier: MIT
#include "core/text.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/core/message_of.h"

namespace tessera {
namespace {

using namespace std::string_literals;
using testing::message_of;

TEST(Shown, LeavesTextAsItIs) {
  for (const std::string text : {"", "model.layers.0.weight", "Grüße, 世界 🎉 …", "C:\\n"}) {
    EXPECT_EQ(shown(text), text);
  }
}

TEST(Shown, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(shown("a\nb\tc\rd"), "a\\nb\\tc\\x0dd");
  EXPECT_EQ(shown("\x1b[31mred\x1b[0m"), "\\x1b[31mred\\x1b[0m");
  EXPECT_EQ(shown("\x1b]0;title\a"), "\\x1b]0;title\\x07");
  EXPECT_EQ(shown("nul\0end"s), "nul\\x00end");
  EXPECT_EQ(shown("\x7f"), "\\x7f");
  EXPECT_EQ(shown("\u009b31m"), "\\u{9b}31m");              // CSI in one character
  EXPECT_EQ(shown("a\u202egpj.exe"), "a\\u{202e}gpj.exe");  // right-to-left override
  EXPECT_EQ(shown("a\u200bb\ufeffc\u2028d"), "a\\u{200b}b\\u{feff}c\\u{2028}d");
}

TEST(Shown, EscapesBytesThatAreNoUtf8) {
  EXPECT_EQ(shown("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(shown("\xc0\xaf"), "\\xc0\\xaf");                    // overlong
  EXPECT_EQ(shown("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // a surrogate
  EXPECT_EQ(shown("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond Unicode
  EXPECT_EQ(shown("a\xe4\xb8"), "a\\xe4\\xb8");                  // cut off
  EXPECT_EQ(shown("\x80z"), "\\x80z");
}

TEST(Shown, CutsTheMiddleOfLongTextAndSaysSo) {
  const std::string text = std::string(500, 'a') + std::string(500, 'z');
  const std::string cut = shown(text);
  EXPECT_EQ(cut, std::string(53, 'a') + "...(1000 bytes)..." + std::string(27, 'z'));
  EXPECT_EQ(shown(std::string(80, 'a')), std::string(80, 'a'));
}

TEST(Shown, CutsNoCharacterInTwo) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "世";
  for (size_t max_bytes = 3; max_bytes < 40; ++max_bytes) {
    const std::string cut = shown(text, max_bytes);
    EXPECT_EQ(cut.find("\\x"), std::string::npos) << cut;
    EXPECT_LE(cut.size(), max_bytes + std::string("...(300 bytes)...").size());
  }
}

TEST(Error, IsOnePrintableLineWhateverItIsMadeOf) {
  EXPECT_EQ(message_of([] { fail("tensor 'a\x1b[2J\n' is missing"); }),
            "tensor 'a\\x1b[2J\\n' is missing");
  EXPECT_LT(message_of([] { fail(std::string(1 << 20, 'x')); }).size(), 5000u);
}

TEST(CheckNoNul, NamesTheByte) {
  check_no_nul("{\"a\": 1}", "config.json");
  EXPECT_EQ(message_of([] { check_no_nul("{}\0{"s, "config.json"); }),
            "config.json: byte 2 is NUL, which no text holds; the file is damaged");
}

}  // namespace
}  // namespace tessera
