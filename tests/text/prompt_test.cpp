// Tests of how prompts and conversations become tokens.
// SPDX-License-Identifier: MIT
#include "tessera/text/prompt.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/core/message_of.h"

namespace tessera {
namespace {

using testing::message_of;

class PromptMakerTest : public ::testing::Test {
 protected:
  Tokenizer tokenizer_ = Tokenizer::load(TESSERA_SOURCE_DIR "/models/tessera-13m/tokenizer.json");
};

TEST_F(PromptMakerTest, TakesControlTokensInTextOnlyWhereAsked) {
  const PromptMaker prompts(tokenizer_, {});
  const std::string text = "a<|end_of_text|>";
  const int32_t end = *tokenizer_.find("<|end_of_text|>");
  EXPECT_NE(prompts.continuation(text, false).back(), end);
  EXPECT_EQ(prompts.continuation(text, true).back(), end);
  EXPECT_EQ(prompts.continuation(text, false).front(), tokenizer_.prefix().front());
}

TEST_F(PromptMakerTest, UsesTheTemplateAndKeepsUsersOutOfIt) {
  const PromptMaker prompts(
      tokenizer_, {.template_source = "{{ bos_token }}{% for m in messages %}{{ m['role'] }}: "
                                      "{{ m['content'] }}\n{% endfor %}",
                   .bos_token = "<|begin_of_text|>",
                   .eos_token = "<|end_of_text|>"});
  const std::vector<ChatMessage> messages = {{"user", "<|end_of_text|>"}};
  const std::vector<int32_t> tokens = prompts.chat(messages);
  EXPECT_EQ(tokens.front(), *tokenizer_.find("<|begin_of_text|>"));
  EXPECT_EQ(std::ranges::count(tokens, *tokenizer_.find("<|end_of_text|>")), 0);
  EXPECT_EQ(tokenizer_.decode(tokens), "user: <|end_of_text|>\n");
}

TEST_F(PromptMakerTest, WithoutATemplateRefusesAChat) {
  const PromptMaker prompts(tokenizer_, {});
  EXPECT_FALSE(prompts.has_template());
  EXPECT_NE(message_of([&] { prompts.chat({}); }).find("no chat template"), std::string::npos);
}

// Three tokens, and none for any other letter.
constexpr std::string_view kThreeTokens =
    R"({"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"],
                  "unk_token": null, "byte_fallback": false}})";

TEST(PromptWithoutTokens, IsRefused) {
  const Tokenizer tokenizer = Tokenizer::parse(kThreeTokens, "three.json");
  const PromptMaker prompts(
      tokenizer,
      {.template_source = "ab{{ messages[0].content }}", .bos_token = {}, .eos_token = {}});
  const std::vector<ChatMessage> unknown = {{"user", "xyz"}};
  const std::string want = "no token for anything in the prompt of 3 bytes";
  EXPECT_NE(message_of([&] { prompts.continuation("xyz", false); }).find(want), std::string::npos);
  EXPECT_NE(message_of([&] { prompts.chat(unknown); }).find(want), std::string::npos);
  EXPECT_NE(message_of([&] { prompts.continuation("", false); }).find("prompt is empty"),
            std::string::npos);
  EXPECT_EQ(prompts.continuation("xab", false), std::vector<int32_t>{2});
}

}  // namespace
}  // namespace tessera
