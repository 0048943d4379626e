// Bodies to requests of the engine.
// SPDX-License-Identifier: MIT
#include "server/generation_request.h"

#include <gtest/gtest.h>

#include "server/api_error.h"
#include "tests/server/bundled.h"

namespace tessera::server {
namespace {

const testing::Bundled& base() {
  static const testing::Bundled bundled;
  return bundled;
}

const testing::Bundled& chatty() {
  static const testing::Bundled bundled(
      "{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}");
  return bundled;
}

GenerationRequest read(const std::string& body) {
  return read_generation(Api::completions, body, base().model());
}

std::string param_of(Api api, const std::string& body) {
  try {
    read_generation(api, body, (api == Api::chat ? chatty() : base()).model());
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 400);
    return error.param();
  }
  return "(accepted)";
}

TEST(ReadGeneration, TakesEveryFieldOfTheEngine) {
  const GenerationRequest made = read(R"({
    "prompt": "The city", "temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1,
    "typical_p": 0.8, "repetition_penalty": 1.5, "presence_penalty": 0.5,
    "frequency_penalty": -0.5, "logit_bias": {"3": 200}, "seed": -1, "stop": ["a", "b"],
    "stop_token_ids": [4], "ignore_eos": true, "n": 2, "best_of": 3, "logprobs": 4,
    "max_tokens": 9, "min_tokens": 2, "priority": 5, "cache_salt": "s", "timeout": 60, "echo": true,
    "user": "me", "model": "tessera-13m"})");
  ASSERT_EQ(made.prompts.size(), 1u);
  const Request& one = made.prompts.front();
  EXPECT_EQ(one.prompt, base().model().prompts->continuation("The city", false));
  EXPECT_EQ(one.sampling.temperature, 0.5f);
  EXPECT_EQ(one.sampling.top_p, 0.9f);
  EXPECT_EQ(one.sampling.top_k, 7);
  EXPECT_EQ(one.sampling.min_p, 0.1f);
  EXPECT_EQ(one.sampling.typical_p, 0.8f);
  EXPECT_EQ(one.sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(one.sampling.presence_penalty, 0.5f);
  EXPECT_EQ(one.sampling.frequency_penalty, -0.5f);
  EXPECT_EQ(one.sampling.logit_bias.front(), (std::pair<int32_t, float>{3, 200.0f}));
  EXPECT_EQ(one.sampling.seed, ~uint64_t{0});
  EXPECT_EQ(one.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(one.stop_tokens, std::vector<int32_t>{4});
  EXPECT_TRUE(one.ignores_eos);
  EXPECT_EQ(made.num_choices, 2);
  EXPECT_EQ(one.num_outputs, 3);
  EXPECT_EQ(one.num_logprobs, 4);
  EXPECT_EQ(one.max_new_tokens, 9);
  EXPECT_EQ(one.min_new_tokens, 2);
  EXPECT_EQ(one.priority, 5);
  EXPECT_EQ(one.cache_salt, "s");
  EXPECT_TRUE(one.deadline.has_value());
  EXPECT_TRUE(one.wants_prompt_logprobs);
  EXPECT_EQ(made.echoes.front(), "The city");
  EXPECT_TRUE(made.ignored.empty());
}

TEST(ReadGeneration, HasTheDefaultsOfTheApi) {
  const Request completion = read(R"({"prompt": "The", "top_k": -1})").prompts.front();
  EXPECT_EQ(completion.max_new_tokens, 16);
  EXPECT_EQ(completion.sampling.temperature, 1.0f);
  EXPECT_EQ(completion.sampling.top_k, 0);
  EXPECT_FALSE(completion.sampling.seed);
  const GenerationRequest chat = read_generation(
      Api::chat, R"({"messages": [{"role": "user", "content": "Hi"}]})", chatty().model());
  const Request& one = chat.prompts.front();
  EXPECT_EQ(one.max_new_tokens, 64 - std::ssize(one.prompt));
  EXPECT_EQ(chatty().tokenizer().decode(one.prompt), "user=Hi;");
}

TEST(ReadGeneration, CutsTokensToTheContext) {
  const Request one = read(R"({"prompt": [5, 6], "max_tokens": 1000000000000})").prompts.front();
  EXPECT_EQ(one.max_new_tokens, 62);
  EXPECT_EQ(param_of(Api::completions, R"({"prompt": [5], "max_tokens": 0})"), "max_tokens");
}

TEST(ReadGeneration, NamesTheFieldThatIsWrong) {
  EXPECT_EQ(param_of(Api::completions, R"({})"), "prompt");
  EXPECT_EQ(param_of(Api::chat, R"({})"), "messages");
  EXPECT_EQ(param_of(Api::chat, R"({"messages": [{"role": 1, "content": "a"}]})"),
            "messages[0].role");
  EXPECT_EQ(param_of(Api::chat, R"({"messages": [{"role": "user", "content": "a"}],
                                    "logprobs": true, "top_logprobs": 21})"),
            "top_logprobs");
  EXPECT_EQ(param_of(Api::completions, R"({"prompt": "a", "n": 9})"), "n");
  EXPECT_EQ(param_of(Api::completions, R"({"prompt": "a", "top_p": 2})"), "top_p");
  EXPECT_EQ(param_of(Api::completions, R"({"prompt": "a", "guided_json": 3})"), "guided_json");
}

TEST(ReadGeneration, KeepsUsersOutOfControlTokens) {
  const std::string special(base().tokenizer().token_text(1));
  const GenerationRequest made = read(R"({"prompt": ")" + special + R"("})");
  const std::vector<int32_t>& prompt = made.prompts.front().prompt;
  const auto own = prompt.begin() + std::ssize(base().tokenizer().prefix());
  EXPECT_EQ(std::find(own, prompt.end(), 1), prompt.end());
}

TEST(ReadGeneration, ListsWhatItIgnores) {
  EXPECT_EQ(read(R"({"prompt": "a", "colour": 1})").ignored, std::vector<std::string>{"colour"});
}

}  // namespace
}  // namespace tessera::server
