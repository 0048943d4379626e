// Masks of tokens: exact against trying every token, bounded in memory, and cheap.
// SPDX-License-Identifier: MIT
#include "grammar/token_masks.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "tests/grammar/walk.h"

namespace tessera::grammar {
namespace {

using testing::bundled_tries;

std::vector<ConstraintSpec> constraints() {
  return {{.kind = ConstraintKind::json_object},
          {.kind = ConstraintKind::json_object, .max_whitespace = 3},
          {.kind = ConstraintKind::regex, .text = "(\\w+ ){2,5}[^a-z]*"},
          {.kind = ConstraintKind::choice, .choices = {"one", "once", "on", "two"}},
          {.kind = ConstraintKind::grammar,
           .text = "root ::= expr\nexpr ::= term (\" + \" term)*\n"
                   "term ::= [0-9]{1,3} | \"(\" expr \")\""},
          {.text = R"({"type":"object","properties":{"name":{"type":"string","maxLength":8},
                       "tags":{"type":"array","items":{"type":"string"}},
                       "n":{"type":"integer","minimum":0,"maximum":150}},"required":["name"]})"}};
}

bool has(const std::vector<uint32_t>& bits, int32_t id) {
  return (bits[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
}

// The two-level masks equal the answer for each token on its own.
TEST(TokenMasks, AreExact) {
  std::mt19937 random(1);
  for (const ConstraintSpec& spec : constraints()) {
    TokenMasks masks(Constraint::compile(spec), bundled_tries());
    const TokenTrie& trie = bundled_tries()->rest;
    std::vector<uint32_t> bits(static_cast<size_t>(trie.num_ids() + 31) / 32 + 2, ~0u);
    Progress progress = masks.start();
    for (int step = 0; step < 25; ++step) {
      masks.fill(progress, bits);
      std::vector<int32_t> allowed;
      for (int32_t id = 0; id < trie.num_ids(); ++id) {
        Progress next = progress;
        const bool is_taken = masks.advance(next, id);
        ASSERT_EQ(has(bits, id), is_taken) << name(spec.kind) << ", token " << trie.text(id);
        if (is_taken) allowed.push_back(id);
      }
      EXPECT_EQ(bits.back(), 0u);
      if (allowed.empty()) {
        EXPECT_TRUE(masks.is_final(progress)) << name(spec.kind);
        break;
      }
      EXPECT_FALSE(masks.is_final(progress));
      ASSERT_TRUE(masks.advance(progress, allowed[random() % allowed.size()]));
    }
  }
}

// Close to the limit of depth, and with a limit so small that every mask is.
TEST(TokenMasks, AreExactAtTheLimitOfDepth) {
  std::mt19937 random(2);
  for (const int64_t depth : {4, 24}) {
    TokenMasks masks(Constraint::compile({.kind = ConstraintKind::json_object}, {.depth = depth}),
                     bundled_tries());
    const TokenTrie& trie = bundled_tries()->rest;
    std::vector<uint32_t> bits(static_cast<size_t>(trie.num_ids() + 31) / 32);
    for (int i = 0; i < 5; ++i) {
      Progress progress = masks.start();
      for (int step = 0; step < 60; ++step) {
        masks.fill(progress, bits);
        std::vector<int32_t> allowed, deeper;
        for (int32_t id = 0; id < trie.num_ids(); ++id) {
          if (!has(bits, id)) continue;
          allowed.push_back(id);
          if (trie.text(id).find_first_of("[{") != std::string_view::npos) deeper.push_back(id);
        }
        if (allowed.empty()) break;
        const auto& from = deeper.empty() ? allowed : deeper;
        ASSERT_TRUE(masks.advance(progress, from[random() % from.size()]));
      }
      // Even from the deepest place the text can be ended.
      ASSERT_FALSE(progress.place.stacks.empty());
      for (const Stack& stack : progress.place.stacks) {
        EXPECT_LE(std::ssize(stack) - 1, depth);
      }
    }
  }
}

TEST(TokenMasks, MemoryIsBounded) {
  constexpr int64_t kBytes = 8 << 10;
  TokenMasks masks(Constraint::compile({.kind = ConstraintKind::json_object}), bundled_tries(),
                   kBytes);
  TokenMasks roomy(Constraint::compile({.kind = ConstraintKind::json_object}), bundled_tries());
  std::mt19937 first(3), second(3);
  for (int i = 0; i < 10; ++i) {
    // What is forgotten is found again.
    EXPECT_EQ(testing::random_walk(masks, first).text, testing::random_walk(roomy, second).text);
    EXPECT_LE(masks.cache_bytes(), kBytes);
  }
  EXPECT_GT(masks.num_walks(), roomy.num_walks());
}

TEST(TokenMasks, SpecialTokensAreNeverAllowed) {
  TokenMasks masks(Constraint::compile({.kind = ConstraintKind::regex, .text = "[\\s\\S]*"}),
                   bundled_tries());
  std::vector<uint32_t> bits(static_cast<size_t>(bundled_tries()->rest.num_ids() + 31) / 32);
  const Progress start = masks.start();
  masks.fill(start, bits);
  const Tokenizer& tokenizer = testing::bundled_tokenizer();
  for (int32_t id = 0; id < tokenizer.num_ids(); ++id) {
    EXPECT_FALSE(tokenizer.is_special(id) && has(bits, id)) << tokenizer.token_text(id);
  }
  EXPECT_TRUE(masks.is_complete(start));
}

// The cost of a mask beside the first of its kind: what a step of the engine pays for each
// sequence. Printed; the bound only guards against a mask that walks the vocabulary every time.
TEST(TokenMasks, AreCheapOnceKnown) {
  for (const ConstraintSpec& spec : constraints()) {
    TokenMasks masks(Constraint::compile(spec), bundled_tries());
    std::mt19937 random(4);
    for (int i = 0; i < 20; ++i) testing::random_walk(masks, random);
    std::vector<uint32_t> bits(static_cast<size_t>(bundled_tries()->rest.num_ids() + 31) / 32);
    Progress progress = masks.start();
    const auto start = std::chrono::steady_clock::now();
    constexpr int kRounds = 1000;
    for (int i = 0; i < kRounds; ++i) masks.fill(progress, bits);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    std::printf("%-12s %.2f us a mask, %ld walks, %ld bytes\n",
                std::string(name(spec.kind)).c_str(), took.count() / kRounds,
                static_cast<long>(masks.num_walks()), static_cast<long>(masks.cache_bytes()));
    EXPECT_LT(took.count() / kRounds, 100.0);
  }
}

// The bytes of tokens, joined, are the text that they decode to.
TEST(TokenTrie, TextsJoinToTheDecodedText) {
  const Tokenizer& tokenizer = testing::bundled_tokenizer();
  const std::string text =
      "Der Zug fährt um 7:05 ab. \xe2\x82\xac 3,50 \xf0\x9f\x98\x80\n\tEnde  \"ok\"";
  std::string joined;
  for (const int32_t id : tokenizer.encode(text)) {
    joined += bundled_tries()->of(joined.empty()).text(id);
  }
  EXPECT_EQ(joined, text);
  EXPECT_EQ(joined, tokenizer.decode(tokenizer.encode(text)));
}

// Tokens as SentencePiece writes them: U+2581 for a space, and byte tokens. The first token of a
// text loses its space.
TEST(TokenMasks, KnowTheFirstTokenOfATextWithoutItsSpace) {
  const Tokenizer tokenizer = Tokenizer::parse(
      R"({"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":null,
          "post_processor":null,
          "decoder":{"type":"Sequence","decoders":[
            {"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},
            {"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},
          "model":{"type":"BPE","byte_fallback":true,"unk_token":null,"merges":[],
            "vocab":{"<0xC3>":0,"<0xA9>":1,"▁a":2,"a":3,"▁":4}}})",
      "test");
  TokenMasks masks(Constraint::compile({.kind = ConstraintKind::regex, .text = "a a(é| a)"}),
                   std::make_shared<const VocabularyTries>(tokenizer));
  std::vector<uint32_t> bits(1);
  Progress progress = masks.start();
  masks.fill(progress, bits);
  EXPECT_EQ(bits[0], 0b01100u);  // "▁a" is "a" here
  ASSERT_TRUE(masks.advance(progress, 2));
  masks.fill(progress, bits);
  EXPECT_EQ(bits[0], 0b10100u);
  ASSERT_TRUE(masks.advance(progress, 2));
  masks.fill(progress, bits);
  EXPECT_EQ(bits[0], 0b10101u);
  ASSERT_TRUE(masks.advance(progress, 0));
  masks.fill(progress, bits);
  EXPECT_EQ(bits[0], 0b00010u);
  ASSERT_TRUE(masks.advance(progress, 1));
  EXPECT_TRUE(masks.is_final(progress));
}

}  // namespace
}  // namespace tessera::grammar
