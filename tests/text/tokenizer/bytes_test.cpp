// Input that is not text: bytes that are not UTF-8, and zero bytes.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <random>

#include "tests/text/tokenizer/files.h"

namespace tessera::testing {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

// The bytes of byte-level tokens, without the decoder's U+FFFD.
std::string raw_bytes(const Tokenizer& tokenizer, const Ids& ids) {
  std::string alphabet;
  for (int byte = 0; byte < 256; ++byte) alphabet.push_back(static_cast<char>(byte));
  std::string bytes;
  for (const int32_t id : ids) {
    // A single token may not be valid text, but its characters always name its bytes.
    for (std::string_view text = tokenizer.token_text(id); !text.empty();) {
      const auto first = static_cast<uint8_t>(text[0]);
      const int code = first < 0x80 ? first : (first & 0x1F) << 6 | (text[1] & 0x3F);
      text.remove_prefix(first < 0x80 ? 1 : 2);
      if (code < 0x100) {
        bytes.push_back(static_cast<char>(code));
      } else {
        const int idx = code - 0x100;  // 0-32, 127-160, 173 in order
        bytes.push_back(static_cast<char>(idx < 33 ? idx : idx < 67 ? idx - 33 + 127 : 173));
      }
    }
  }
  return bytes;
}

TEST(Bytes, AnyBytesAreEncodedAsThemselvesByAByteLevelModel) {
  std::mt19937 random(5);
  const Tokenizer gpt2 = Tokenizer::load(data_file("gpt2"));
  for (int round = 0; round < 3000; ++round) {
    std::string text(random() % 40, '\0');
    for (char& byte : text) byte = static_cast<char>(random() % (round % 2 == 0 ? 256 : 0xC8));
    ASSERT_EQ(raw_bytes(gpt2, gpt2.encode(text)), text) << "round " << round;
    ASSERT_EQ(raw_bytes(bundled(), bundled().encode(text)), text) << "round " << round;
  }
}

TEST(Bytes, TextAroundInvalidBytesIsEncodedAsBefore) {
  const Ids left = bundled().encode("The history");
  const Ids right = bundled().encode(" of mathematics");
  Ids both = left;
  both.push_back(bundled().encode("\xFF").at(0));
  both.insert(both.end(), right.begin(), right.end());
  EXPECT_EQ(bundled().encode("The history\xFF of mathematics"), both);
}

TEST(Bytes, ByteFallbackTakesInvalidBytesAndAddsNoSpaceAfterThem) {
  for (const char* name : {"llama2", "metaspace"}) {
    const Tokenizer tokenizer = Tokenizer::load(data_file(name));
    Ids ids = tokenizer.encode("a");
    ids.push_back(*tokenizer.find("<0xFF>"));
    ids.push_back(*tokenizer.find("b"));
    EXPECT_EQ(tokenizer.encode("a\xFF"
                               "b"),
              ids)
        << name;
    EXPECT_EQ(tokenizer.encode("\xE2\x82"),
              (Ids{*tokenizer.find("<0xE2>"), *tokenizer.find("<0x82>")}))
        << name;
  }
}

TEST(Bytes, CharactersOutsideTheVocabularyBecomeBytesOrTheUnknownTokenOrNothing) {
  json file = read_data("llama2");
  const std::string text = "a\u00FEb\u00FE\u00FEa";  // the sample has no such letter
  const auto count = [&](int32_t id) { return std::ranges::count(parse(file).encode(text), id); };
  const int32_t byte = file["model"]["vocab"]["<0xC3>"];
  EXPECT_EQ(count(byte), 3);
  file["model"]["byte_fallback"] = false;
  EXPECT_EQ(count(0), 2) << "unknown ones in a row are one";
  file["model"]["fuse_unk"] = false;
  EXPECT_EQ(count(0), 3);
  EXPECT_EQ(std::ranges::count(parse(file).encode("\xFF\xFF"), 0), 2);
  file["model"]["unk_token"] = nullptr;
  EXPECT_EQ(count(0), 0);
  EXPECT_TRUE(parse(file).encode("\xFF").empty());
}

TEST(Bytes, AZeroByteIsACharacterLikeAnyOther) {
  const std::string text("a\0b\0\0 c", 7);
  EXPECT_EQ(bundled().decode(bundled().encode(text)), text);
  for (const char* name : {"qwen2", "llama2"}) {
    const Tokenizer tokenizer = Tokenizer::load(data_file(name));
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << name;
  }
}

}  // namespace
}  // namespace tessera::testing
