// Tool calls in streamed text: what comes out, under every split, and that no text is lost.
// SPDX-License-Identifier: MIT
#include "text/tool_calls.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>

namespace tessera::text {
namespace {

// The output joined: content, and name and arguments of each call.
struct Joined {
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;
  bool operator==(const Joined&) const = default;
};

void join(const ToolOutput& out, Joined& all) {
  all.content += out.content;
  for (const ToolDelta& delta : out.deltas) {
    if (!delta.name.empty()) {
      EXPECT_EQ(delta.index, static_cast<int32_t>(all.calls.size()));
      all.calls.emplace_back(delta.name, "");
    }
    ASSERT_LT(static_cast<size_t>(delta.index), all.calls.size());
    all.calls[static_cast<size_t>(delta.index)].second += delta.arguments;
  }
}

template <class NextSize>
Joined parse(ToolFormat format, std::string_view text, NextSize&& next_size) {
  ToolCallParser parser(format);
  Joined all;
  while (!text.empty()) {
    const size_t count = std::min(text.size(), next_size());
    ToolOutput out;
    parser.push(text.substr(0, count), out);
    join(out, all);
    text.remove_prefix(count);
  }
  ToolOutput out;
  parser.finish(out);
  join(out, all);
  return all;
}
Joined parse(ToolFormat format, std::string_view text) {
  return parse(format, text, [&] { return text.size(); });
}

struct Case {
  ToolFormat format;
  const char* text;
  Joined want;
};

std::vector<Case> cases() {
  using enum ToolFormat;
  return {
      {hermes, "Hello <b>you</b>, <tool", {"Hello <b>you</b>, <tool", {}}},
      {hermes,
       "I look.\n<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": "
       "\"}<\\\"\"}}\n</tool_call>",
       {"I look.\n", {{"get", "{\"a\": \"}<\\\"\"}"}}}},
      {hermes,
       "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n"
       "<tool_call>{\"arguments\":{\"x\":[1,{}]},\"name\":\"g\"}</tool_call> done",
       {" done", {{"f", "{}"}, {"g", "{\"x\":[1,{}]}"}}}},
      {hermes, "<tool_call>{\"name\":\"now\"}</tool_call>", {"", {{"now", "{}"}}}},
      {hermes, "<tool_call>not json</tool_call>", {"<tool_call>not json</tool_call>", {}}},
      {hermes, "<tool_call>{\"a\":1}</tool_call>", {"<tool_call>{\"a\":1}</tool_call>", {}}},
      {hermes, "<tool_call>{\"name\":\"f\",\"argu", {"<tool_call>{\"name\":\"f\",\"argu", {}}},
      {hermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":", {"", {{"f", "{\"a\":"}}}},
      {llama3, "{\"name\": \"f\", \"parameters\": {\"q\": 1}}", {"", {{"f", "{\"q\": 1}"}}}},
      {llama3,
       "<|python_tag|>{\"type\":\"function\",\"name\":\"f\",\"parameters\":{}}; "
       "{\"name\":\"g\",\"parameters\":{}}",
       {"", {{"f", "{}"}, {"g", "{}"}}}},
      {llama3, "{\"name\": \"Bob\", \"age\": 3}", {"{\"name\": \"Bob\", \"age\": 3}", {}}},
      {llama3, "It is {\"name\": 1}.", {"It is {\"name\": 1}.", {}}},
      {llama3, "  \n", {"  \n", {}}},
      {mistral,
       "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", "
       "\"arguments\": {}}]",
       {"", {{"f", "{\"a\": 1}"}, {"g", "{}"}}}},
      {mistral,
       "[TOOL_CALLS]f[ARGS]{\"a\": {}}[TOOL_CALLS]g{}",
       {"", {{"f", "{\"a\": {}}"}, {"g", "{}"}}}},
      {mistral, "See [TOOL_CALL] and [1]", {"See [TOOL_CALL] and [1]", {}}},
      {mistral, "[TOOL_CALLS] \n", {"[TOOL_CALLS] \n", {}}},
  };
}

TEST(ToolCalls, AreFoundInEveryFormat) {
  for (const Case& one : cases()) {
    const Joined got = parse(one.format, one.text);
    EXPECT_EQ(got.content, one.want.content) << one.text;
    EXPECT_EQ(got.calls, one.want.calls) << one.text;
  }
}

// Fragments of calls in any order: well formed, cut off or nonsense.
std::string random_text(std::mt19937& random) {
  static const char* const kPieces[] = {"<tool_call>",
                                        "</tool_call>",
                                        "[TOOL_CALLS]",
                                        "[ARGS]",
                                        "<|python_tag|>",
                                        "\n",
                                        " ",
                                        "text",
                                        "{\"name\": \"f\", \"arguments\": {\"x\": \"a\\\"}b\"}}",
                                        "{\"name\":\"g\",\"parameters\":{}}",
                                        "[",
                                        "]",
                                        ",",
                                        ";",
                                        "{",
                                        "}",
                                        "\"",
                                        "\\",
                                        "<",
                                        "[T",
                                        "name",
                                        "{\"name\":",
                                        "é",
                                        ":"};
  std::string text;
  for (int i = 1 + static_cast<int>(random() % 8); i > 0; --i) text += kPieces[random() % 24];
  return text;
}

TEST(ToolCalls, DoNotDependOnTheSplit) {
  std::mt19937 random(1);
  std::vector<std::pair<ToolFormat, std::string>> texts;
  for (const Case& one : cases()) texts.emplace_back(one.format, one.text);
  for (int i = 0; i < 6000; ++i) {
    texts.emplace_back(static_cast<ToolFormat>(random() % 3), random_text(random));
  }
  int64_t num_calls = 0;
  for (const auto& [format, text] : texts) {
    const Joined whole = parse(format, text);
    EXPECT_EQ(parse(format, text, [] { return size_t{1}; }), whole) << text;
    EXPECT_EQ(parse(format, text, [&] { return 1 + random() % 5; }), whole) << text;
    num_calls += std::ssize(whole.calls);
    // Nothing is lost where nothing was found.
    if (whole.calls.empty()) {
      EXPECT_EQ(whole.content, text);
    }
  }
  EXPECT_GT(num_calls, 300);
}

TEST(ToolCalls, FormatIsKnownByTheTemplate) {
  EXPECT_EQ(find_tool_format("a <tool_call> b"), ToolFormat::hermes);
  EXPECT_EQ(find_tool_format("x [TOOL_CALLS] y"), ToolFormat::mistral);
  EXPECT_EQ(find_tool_format("{{ '<|python_tag|>' }}"), ToolFormat::llama3);
  EXPECT_EQ(find_tool_format("{{ messages }}"), std::nullopt);
}

}  // namespace
}  // namespace tessera::text
