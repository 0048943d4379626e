// Tools of a chat: what clients may ask for, and the calls in an answer.
// SPDX-License-Identifier: MIT
#include "server/tools.h"

#include <gtest/gtest.h>

#include "core/text.h"
#include "server/answer.h"
#include "server/api_error.h"
#include "tests/server/bundled.h"

namespace tessera::server {
namespace {

using text::ToolFormat;

constexpr std::string_view kTools = R"("tools": [
  {"type": "function", "function": {"name": "add", "parameters": {
    "type": "object", "properties": {"a": {"$ref": "#/$defs/small"}}, "required": ["a"],
    "additionalProperties": false, "$defs": {"small": {"type": "integer", "enum": [1, 2]}}}}},
  {"type": "function", "function": {"name": "now"}}])";

std::optional<ToolUse> read(const std::string& body, std::optional<ToolFormat> format) {
  const Json parsed = parse_body(body);
  Fields fields(parsed);
  return read_tools(fields, format);
}

std::optional<ToolUse> read_choice(const std::string& choice) {
  return read(concat("{", kTools, ", \"tool_choice\": ", choice, "}"), ToolFormat::hermes);
}

std::string param_of(const std::string& body, std::optional<ToolFormat> format) {
  try {
    read(body, format);
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 400);
    return error.param();
  }
  return "(accepted)";
}

TEST(ReadTools, KnowsTheChoices) {
  EXPECT_FALSE(read("{}", ToolFormat::hermes));
  EXPECT_FALSE(read_choice("\"none\""));
  const std::optional<ToolUse> free = read_choice("\"auto\"");
  ASSERT_TRUE(free);
  EXPECT_EQ(free->mode, ToolUse::Mode::free);
  EXPECT_FALSE(free->constraint);

  const std::optional<ToolUse> named = read_choice(R"({"function": {"name": "add"}})");
  ASSERT_TRUE(named && named->constraint);
  const auto arguments = Constraint::compile(*named->constraint);
  EXPECT_TRUE(arguments->matches(R"({"a":2})"));
  EXPECT_FALSE(arguments->matches(R"({"a":3})"));

  const std::optional<ToolUse> required = read_choice("\"required\"");
  ASSERT_TRUE(required && required->constraint);
  const auto calls = Constraint::compile(*required->constraint);
  EXPECT_TRUE(calls->matches(R"([{"name":"add","parameters":{"a":1}}])"));
  EXPECT_TRUE(
      calls->matches(R"([{"name":"now","parameters":{}},{"name":"add","parameters":{"a":2}}])"));
  EXPECT_FALSE(calls->matches(R"([{"name":"add","parameters":{"a":3}}])"));
  EXPECT_FALSE(calls->matches("[]"));
  const auto one =
      read(concat("{", kTools, R"(, "tool_choice": "required", "parallel_tool_calls": false})"),
           ToolFormat::llama3);
  EXPECT_FALSE(Constraint::compile(*one->constraint)
                   ->matches(R"([{"name":"now","parameters":{}},{"name":"now","parameters":{}}])"));
}

TEST(ReadTools, NamesWhatIsWrong) {
  const std::string tools(kTools);
  EXPECT_EQ(param_of(concat("{", tools, "}"), std::nullopt), "tools") << "a template without calls";
  const auto with = [](const std::string& body) { return param_of(body, ToolFormat::hermes); };
  EXPECT_EQ(with(R"({"tools": {}})"), "tools");
  EXPECT_EQ(with(R"({"tools": [1]})"), "tools[0]");
  EXPECT_EQ(with(R"({"tools": [{"function": {"name": "a b"}}]})"), "tools[0].function.name");
  EXPECT_EQ(with(R"({"tools": [{"function": {"name": "a", "parameters": 1}}]})"),
            "tools[0].function.parameters");
  EXPECT_EQ(with(R"({"tool_choice": "required"})"), "tool_choice");
  EXPECT_EQ(with(concat("{", tools, R"(, "tool_choice": "often"})")), "tool_choice");
  EXPECT_EQ(with(concat("{", tools, R"(, "tool_choice": {"function": {"name": "sub"}}})")),
            "tool_choice");
  EXPECT_EQ(with(R"({"functions": []})"), "functions");
  EXPECT_EQ(with(R"({"tools": [{"function": {"name": "a", "parameters": {"$ref": "#/x"}}}],
                     "tool_choice": "required"})"),
            "tools[0].function.parameters");
}

struct Spoken {
  ToolFormat format;
  std::string text;
  std::string content;
};

// The same two calls in the words of every model family.
const Spoken kSpoken[] = {
    {ToolFormat::hermes,
     "Well.<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"
     "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
     "Well."},
    {ToolFormat::llama3,
     R"({"name": "add", "parameters": {"a": 1}}; {"name": "now", "parameters": {}})", ""},
    {ToolFormat::mistral,
     R"([TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}, {"name": "now", "arguments": {}}])",
     ""}};

TEST(CallReader, FindsTheCallsOfEveryFormatHoweverTheTextIsCut) {
  for (const Spoken& spoken : kSpoken) {
    for (size_t size = 1; size <= spoken.text.size(); size = size < 8 ? size + 1 : size * 2) {
      CallReader reader({.format = spoken.format}, "seed");
      std::string content, deltas;
      for (size_t i = 0; i < spoken.text.size(); i += size) {
        const bool is_end = i + size >= spoken.text.size();
        const CallReader::News news = reader.take(spoken.text.substr(i, size), is_end);
        content += news.content;
        if (!news.calls.empty()) deltas += concat(deltas.empty() ? "" : ",", news.calls);
      }
      EXPECT_EQ(content, spoken.content);
      const Json whole = Json::parse(concat("[", reader.whole(), "]"));
      ASSERT_EQ(whole.size(), 2u) << spoken.text << " cut into " << size;
      EXPECT_EQ(whole[0]["function"]["name"], "add");
      EXPECT_EQ(Json::parse(whole[0]["function"]["arguments"].get<std::string>()),
                Json::parse(R"({"a": 1})"));
      EXPECT_EQ(whole[1]["function"]["name"], "now");
      EXPECT_NE(whole[0]["id"], whole[1]["id"]);
      EXPECT_EQ(whole[0]["id"].get<std::string>().size(), 9u);

      // What a stream reported, joined as clients join it, is the same.
      std::vector<std::string> names(2), arguments(2);
      for (const Json& delta : Json::parse(concat("[", deltas, "]"))) {
        const auto index = delta["index"].get<size_t>();
        const Json& function = delta["function"];
        EXPECT_EQ(delta.contains("id"), function.contains("name"));
        names.at(index) += function.value("name", "");
        arguments.at(index) += function["arguments"].get<std::string>();
      }
      EXPECT_EQ(names, (std::vector<std::string>{"add", "now"}));
      for (size_t i = 0; i < 2; ++i) EXPECT_EQ(arguments[i], whole[i]["function"]["arguments"]);
    }
  }
}

TEST(CallReader, TakesForcedAnswersAsCalls) {
  CallReader named({.mode = ToolUse::Mode::named, .name = "add"}, "seed");
  EXPECT_EQ(named.take("{\"a\"", false).content, "");
  named.take(":1}", true);
  EXPECT_EQ(Json::parse(named.whole())["function"]["arguments"], "{\"a\":1}");
  CallReader required({.mode = ToolUse::Mode::required}, "seed");
  required.take(R"([{"name":"add","parameters":{"a":1}},{"name":"now","parameters":{}}])", true);
  EXPECT_EQ(required.num_calls(), 2);
}

TEST(CallReader, LeavesTextThatIsNoCallAlone) {
  for (const Spoken& spoken : kSpoken) {
    CallReader reader({.format = spoken.format}, "seed");
    const std::string text = "{\"name\" is a key, and [TOOL or <tool_ca are not marks.";
    EXPECT_EQ(reader.take(text, true).content, text);
    EXPECT_EQ(reader.num_calls(), 0);
  }
}

// A chat with calls, whole and as a stream, from the body of a request to the events.
TEST(Answer, HasToolCalls) {
  const testing::Bundled bundled(
      "{% for t in tools %}{{ t.function.name }} {% endfor %}{% for m in messages %}"
      "{{ m.content }}{% for c in m.tool_calls %}<tool_call>{{ c.function.arguments.a }}"
      "{% endfor %}{% endfor %}");
  const std::string head =
      R"({"messages": [{"role": "assistant", "content": "x", "tool_calls": [
          {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 7}"}}]}],
          "max_tokens": 20, )";
  for (const bool is_streamed : {false, true}) {
    const std::string body = concat(head, kTools, is_streamed ? ", \"stream\": true}" : "}");
    GenerationRequest made = read_generation(Api::chat, body, bundled.model());
    EXPECT_EQ(bundled.tokenizer().decode(made.prompts[0].prompt), "add now x<tool_call>7");
    EXPECT_TRUE(made.prompts[0].keeps_special);
    Answer answer(bundled.model(), std::move(made), "chatcmpl-1", 5);
    SequenceOutput output{.text = kSpoken[0].text, .finish = FinishReason::stop};
    std::string events = answer.take(0, output);
    if (!is_streamed) {
      const Json choice = Json::parse(answer.body())["choices"][0];
      EXPECT_EQ(choice["finish_reason"], "tool_calls");
      EXPECT_EQ(choice["message"]["content"], "Well.");
      EXPECT_EQ(choice["message"]["tool_calls"].size(), 2u);
      continue;
    }
    ASSERT_TRUE(events.starts_with("data: "));
    const Json choice = Json::parse(events.substr(6))["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
    EXPECT_EQ(choice["delta"]["tool_calls"].size(), 2u);
    EXPECT_EQ(choice["delta"]["content"], "Well.");
  }
}

}  // namespace
}  // namespace tessera::server
