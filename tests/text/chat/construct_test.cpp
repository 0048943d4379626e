// Every construct of the template language gives what jinja2 gives: a table of templates and texts.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <ctime>

#include "tests/text/chat/rendering.h"

namespace tessera::testing {
namespace {

class EveryConstruct : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryConstruct, GivesTheTextOfTheReference) {
  const Json table = Json::parse(read_file("constructs.json"));
  const std::vector<ChatMessage> messages = messages_of(table["messages"]);
  const ChatOptions options{
      .bos_token = "<s>", .eos_token = "</s>", .variables_json = table["variables"].dump()};
  const Json& rows = table["groups"].at(GetParam());
  ASSERT_FALSE(rows.empty());
  for (const Json& row : rows) {
    SCOPED_TRACE(row[0].get<std::string>());
    std::string text;
    EXPECT_NO_THROW(
        text = joined(ChatTemplate::parse(row[0].get<std::string>()).render(messages, options)));
    EXPECT_EQ(text, row[1].get<std::string>());
  }
}

std::string test_name(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::erase(name, ' ');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Chat, EveryConstruct,
                         ::testing::Values("filters", "json", "loops", "macros", "methods",
                                           "operators", "scopes", "sequence filters", "slices",
                                           "tests", "values", "whitespace"),
                         test_name);

TEST(Construct, TheGroupsAreAllTested) {
  // A group that is in the file but not in the list above would never run.
  EXPECT_EQ(Json::parse(read_file("constructs.json"))["groups"].size(), 12u);
}

TEST(Construct, StrftimeNowWritesTheLocalDate) {
  const std::time_t before = std::time(nullptr);
  const std::string text = render("{{ strftime_now('%Y-%m-%d %%') }}");
  const std::time_t after = std::time(nullptr);
  const auto expected = [](std::time_t time) {
    std::tm local{};
    localtime_r(&time, &local);
    char buffer[32];
    return std::string(buffer, std::strftime(buffer, sizeof buffer, "%Y-%m-%d %%", &local));
  };
  EXPECT_TRUE(text == expected(before) || text == expected(after)) << text;
}

TEST(Construct, StrftimeNowLeavesOutALeadingZeroWhereAsked) {
  const std::string text = render("{{ strftime_now('%-d') }}");
  EXPECT_EQ(text[0] == '0', false) << text;
}

TEST(Construct, AFieldOfAMessageReplacesItsContent) {
  const std::vector<ChatMessage> messages = {
      {.role = "user", .content = "text", .fields_json = R"({"content": null, "id": 7})"}};
  const ChatTemplate made = ChatTemplate::parse("{{ messages[0].content }} {{ messages[0].id }}");
  EXPECT_EQ(joined(made.render(messages)), "None 7");
}

TEST(Construct, ToolsAndDocumentsAreNoneUnlessGiven) {
  EXPECT_EQ(render("{{ tools is none }} {{ documents is none }}"), "True True");
  EXPECT_EQ(render("{{ tools[0] }}", R"({"tools": ["t"]})"), "t");
}

TEST(Construct, OneTemplateRendersManyTimes) {
  const ChatTemplate made = ChatTemplate::parse(
      "{% set ns = namespace(n=0) %}"
      "{% for m in messages %}{% set ns.n = ns.n + 1 %}"
      "{% endfor %}{{ ns.n }}");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(joined(made.render(two_messages())), "2");
}

TEST(Construct, InvalidUtf8PassesThroughUnchanged) {
  const std::vector<ChatMessage> messages = {{.role = "user", .content = "\xff\xe2\x82 x"}};
  const ChatTemplate made =
      ChatTemplate::parse("{{ messages[0].content|upper }}{{ messages[0].content|length }}");
  EXPECT_EQ(joined(made.render(messages)), "\xff\xe2\x82 X5");
}

}  // namespace
}  // namespace tessera::testing
