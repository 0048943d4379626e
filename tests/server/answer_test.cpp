// Answers as JSON and as events.
// SPDX-License-Identifier: MIT
#include "server/answer.h"

#include <gtest/gtest.h>

#include "server/json_fields.h"
#include "tests/server/bundled.h"

namespace tessera::server {
namespace {

const testing::Bundled& bundled() {
  static const testing::Bundled one;
  return one;
}

Answer answer_to(const std::string& body) {
  return {bundled().model(), read_generation(Api::completions, body, bundled().model()), "cmpl-1",
          1700000000};
}

SequenceOutput piece(std::string text, FinishReason finish = FinishReason::none,
                     int32_t index = 0) {
  SequenceOutput output;
  output.index = index;
  output.tokens = {{.token = 5, .logprob = -0.5f, .top = {{5, -0.5f}, {6, -1.5f}}}};
  output.text = std::move(text);
  output.finish = finish;
  return output;
}

Json event_of(const std::string& text) {
  EXPECT_TRUE(text.starts_with("data: ") && text.ends_with("\n\n")) << text;
  return Json::parse(text.substr(6));
}

TEST(WholeAnswer, JoinsThePieces) {
  Answer answer = answer_to(R"({"prompt": [3, 4, 5]})");
  EXPECT_TRUE(answer.take(0, piece("one ")).empty());
  EXPECT_FALSE(answer.is_done());
  answer.take(0, piece("\"two\"\n", FinishReason::stop));
  ASSERT_TRUE(answer.is_done());
  const Json body = Json::parse(answer.body());
  EXPECT_EQ(body["id"], "cmpl-1");
  EXPECT_EQ(body["choices"][0]["text"], "one \"two\"\n");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["choices"][0]["logprobs"], nullptr);
  EXPECT_EQ(body["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(body["usage"]["completion_tokens"], 2);
}

// Every letter of ASCII, and what is more than that.
TEST(StreamedAnswer, EscapesWhatJsonMust) {
  Answer answer = answer_to(R"({"prompt": [3], "stream": true})");
  std::vector<std::string> texts = {"\xC3\xA9\xF0\x9F\x98\x80", "a\"b\\c", "plain text ~"};
  for (char letter = 0; letter < 127; ++letter) texts.push_back(std::string(1, letter));
  texts.push_back("\x7F");
  for (const std::string& text : texts) {
    const std::string event = answer.take(0, piece(text));
    EXPECT_EQ(event_of(event)["choices"][0]["text"], text);
    EXPECT_EQ(event.find('\n'), event.size() - 2);
  }
}

TEST(StreamedAnswer, IsOneEventForEachPieceWithText) {
  Answer answer =
      answer_to(R"({"prompt": [3], "stream": true, "stream_options": {"include_usage": true}})");
  EXPECT_EQ(event_of(answer.take(0, piece("one")))["choices"][0]["text"], "one");
  EXPECT_TRUE(answer.take(0, piece("")).empty());  // part of a character
  const Json last = event_of(answer.take(0, piece("two", FinishReason::length)));
  EXPECT_EQ(last["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(last["usage"], nullptr);
  const std::string end = answer.end_events();
  ASSERT_TRUE(end.ends_with("data: [DONE]\n\n"));
  const Json usage = event_of(end.substr(0, end.find("\n\n") + 2));
  EXPECT_TRUE(usage["choices"].empty());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 3);
}

TEST(Answers, ToSeveralPromptsAreNumbered) {
  Answer answer = answer_to(R"({"prompt": [[3], [4]], "n": 2})");
  for (const size_t prompt : {0, 1}) {
    for (const int32_t index : {1, 0}) {
      answer.take(prompt,
                  piece(std::to_string(prompt) + std::to_string(index), FinishReason::stop, index));
    }
  }
  ASSERT_TRUE(answer.is_done());
  const Json choices = Json::parse(answer.body())["choices"];
  ASSERT_EQ(choices.size(), 4u);
  EXPECT_EQ(choices[1]["text"], "01");
  EXPECT_EQ(choices[2]["text"], "10");
  EXPECT_EQ(choices[2]["index"], 2);
}

TEST(Answers, OfTheBestOfSeveralComeBestFirst) {
  Answer answer = answer_to(R"({"prompt": [3], "best_of": 3})");
  for (const int32_t index : {0, 1, 2}) {
    SequenceOutput output = piece(std::to_string(index), FinishReason::stop, index);
    output.tokens.front().logprob = index == 1 ? -0.1f : -2.0f;
    answer.take(0, output);
  }
  const Json choices = Json::parse(answer.body())["choices"];
  ASSERT_EQ(choices.size(), 1u);
  EXPECT_EQ(choices[0]["text"], "1");
}

TEST(Logprobs, StandBesideTheirTokens) {
  Answer answer = answer_to(R"({"prompt": [3, 4], "logprobs": 2, "echo": true})");
  SequenceOutput output = piece("x", FinishReason::stop);
  output.num_prompt_tokens = 2;
  output.prompt_logprobs = {-3.0f};
  answer.take(0, output);
  const Json logprobs = Json::parse(answer.body())["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["token_logprobs"], Json::parse("[null, -3.0, -0.5]"));
  EXPECT_EQ(logprobs["top_logprobs"][0], nullptr);
  EXPECT_EQ(logprobs["top_logprobs"][2].size(), 2u);
  EXPECT_EQ(logprobs["text_offset"].size(), 3u);
}

TEST(FinishNames, AreThoseOfTheApi) {
  EXPECT_EQ(finish_name(FinishReason::stop), "stop");
  EXPECT_EQ(finish_name(FinishReason::length), "length");
  EXPECT_EQ(finish_name(FinishReason::cancelled), "abort");
  EXPECT_EQ(finish_name(FinishReason::deadline), "timeout");
}

}  // namespace
}  // namespace tessera::server
