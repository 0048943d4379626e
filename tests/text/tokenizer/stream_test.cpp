// Decoding one id at a time gives the same text as decoding all at once, in whole characters.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <random>

#include "tests/text/tokenizer/files.h"
#include "text/unicode.h"

namespace tessera::testing {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

bool is_utf8(std::string_view text) {
  const unicode::Utf8Run run = unicode::first_run(text);
  return run.is_valid && run.bytes == text.size();
}

// The streamed text; each piece must be whole characters.
std::string streamed(const Tokenizer& tokenizer, const Ids& ids, bool keep_special) {
  StreamDecoder decoder(tokenizer, keep_special);
  std::string text;
  for (const int32_t id : ids) {
    const std::string part = decoder.push(id);
    EXPECT_TRUE(is_utf8(part)) << "id " << id;
    text += part;
  }
  const std::string rest = decoder.finish();
  EXPECT_TRUE(is_utf8(rest));
  EXPECT_EQ(decoder.finish(), "");
  return text + rest;
}

// The samples, and decoders that strip at both ends.
std::vector<std::pair<std::string, Tokenizer>> tokenizers() {
  std::vector<std::pair<std::string, Tokenizer>> all;
  for (const char* name : {"gpt2", "qwen2", "llama2", "metaspace"}) {
    all.emplace_back(name, Tokenizer::load(data_file(name)));
  }
  json file = read_data("llama2");
  file["decoder"]["decoders"][3] = {{"type", "Strip"}, {"content", " "}, {"start", 2}, {"stop", 3}};
  all.emplace_back("llama2, stripped at both ends", parse(file));
  file = byte_level_file();
  file["decoder"] = nullptr;
  all.emplace_back("no decoder", parse(file));
  return all;
}

TEST(Stream, RandomIdsDecodeAlikeBothWays) {
  std::mt19937 random(11);
  for (const auto& [name, tokenizer] : tokenizers()) {
    std::uniform_int_distribution<int32_t> any_id(-2, tokenizer.num_ids() + 2);
    for (int round = 0; round < 2000; ++round) {
      Ids ids(random() % 24);
      for (int32_t& id : ids) id = any_id(random);
      const bool keep_special = round % 2 == 0;
      const std::string whole = tokenizer.decode(ids, keep_special);
      EXPECT_TRUE(is_utf8(whole)) << name;
      ASSERT_EQ(streamed(tokenizer, ids, keep_special), whole) << name << ", round " << round;
    }
  }
}

TEST(Stream, TextDecodesAlikeBothWays) {
  const json families = read_data("vectors");
  for (const auto& [name, tokenizer] : tokenizers()) {
    for (const json& vector : families[0]["vectors"]) {
      const Ids ids = tokenizer.encode(vector["text"].get<std::string>());
      EXPECT_EQ(streamed(tokenizer, ids, true), tokenizer.decode(ids, true)) << name;
    }
  }
}

TEST(Stream, ACharacterComesOutWithItsLastByte) {
  const Tokenizer llama2 = Tokenizer::load(data_file("llama2"));
  const auto byte = [&](const char* token) { return *llama2.find(token); };
  StreamDecoder decoder(llama2);
  EXPECT_EQ(decoder.push(byte("<0xF0>")), "");
  EXPECT_EQ(decoder.push(byte("<0x9F>")), "");
  EXPECT_EQ(decoder.push(byte("<0x99>")), "");
  EXPECT_EQ(decoder.push(byte("<0x82>")), "\xF0\x9F\x99\x82");
  EXPECT_EQ(decoder.push(byte("<0xE2>")), "");
  EXPECT_EQ(decoder.push(*llama2.find("a")),
            "\uFFFD"
            "a");
  EXPECT_EQ(decoder.push(byte("<0xE2>")), "");
  EXPECT_EQ(decoder.push(byte("<0x82>")), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
}

TEST(Stream, OneLeadingSpaceIsTakenAndNoOther) {
  const Tokenizer llama2 = Tokenizer::load(data_file("llama2"));
  const int32_t space = *llama2.find("▁");
  StreamDecoder decoder(llama2);
  EXPECT_EQ(decoder.push(1), "");  // <s>
  EXPECT_EQ(decoder.push(space), "");
  EXPECT_EQ(decoder.push(space), " ");
  EXPECT_EQ(decoder.push(*llama2.find("a")), "a");
  EXPECT_EQ(decoder.push(space), " ");
  EXPECT_EQ(decoder.finish(), "");
  // finish() resets the decoder.
  EXPECT_EQ(decoder.push(space), "");
}

TEST(Stream, EachInvalidSequenceBecomesOneReplacement) {
  const Tokenizer llama2 = Tokenizer::load(data_file("llama2"));
  struct Case {
    std::vector<const char*> bytes;
    const char* text;
  };
  const std::vector<Case> cases = {
      {{"<0xFF>", "<0xFE>"}, "\uFFFD\uFFFD"},
      {{"<0xC0>", "<0x80>"}, "\uFFFD\uFFFD"},  // overlong
      {{"<0xE2>", "<0x82>", "<0x41>"},
       "\uFFFD"
       "A"},                                                   // cut short
      {{"<0xED>", "<0xA0>", "<0x80>"}, "\uFFFD\uFFFD\uFFFD"},  // a surrogate
      {{"<0xF4>", "<0x90>", "<0x80>"}, "\uFFFD\uFFFD\uFFFD"},  // above U+10FFFF
      {{"<0xF0>", "<0x9F>", "<0xC3>", "<0xA9>"}, "\uFFFD\u00E9"},
      {{"<0x00>", "<0x41>"}, nullptr},  // NUL is a character
  };
  for (const Case& c : cases) {
    Ids ids;
    for (const char* token : c.bytes) ids.push_back(*llama2.find(token));
    const std::string text = c.text != nullptr ? c.text : std::string("\0A", 2);
    EXPECT_EQ(llama2.decode(ids), text);
    EXPECT_EQ(streamed(llama2, ids, false), text);
  }
}

}  // namespace
}  // namespace tessera::testing
