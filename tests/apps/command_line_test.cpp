// Tests of messages for wrong command lines, and of the size of help pages.
// SPDX-License-Identifier: MIT
#include "apps/command_line.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/apps/idle_command_line.h"
#include "tests/apps/scoped_env.h"

namespace tessera::apps {
namespace {

// The line printed for arguments that do not parse; empty if they do.
std::string explained(const std::string& arguments) {
  IdleCommandLine line;
  try {
    line.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return explain(*line.app, error);
  }
  return {};
}

struct PageSize {
  int num_rows = 0;
  size_t num_columns = 0;
};

PageSize size_of(const std::string& page) {
  PageSize size;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line); ++size.num_rows) {
    size.num_columns = std::max(size.num_columns, line.size());
  }
  return size;
}

void expect_pages_fit(const CLI::App& app, int max_rows) {
  const PageSize size = size_of(HelpFormatter().make_help(&app, "", CLI::AppFormatMode::Normal));
  EXPECT_LE(size.num_rows, max_rows) << full_name(app);
  EXPECT_LE(size.num_columns, 80u) << full_name(app);
  for (const CLI::App* verb : app.get_subcommands(nullptr)) expect_pages_fit(*verb, 40);
}

TEST(WrongFlag, IsNamedWithTheOneThatWasMeant) {
  const std::string line = explained("run --temprature 0.5");
  EXPECT_EQ(line, "no flag --temprature; did you mean --temperature? (tessera run -h lists them)");
  EXPECT_EQ(explained("run --quantum"), "no flag --quantum; tessera run -h lists them");
}

TEST(WrongFlag, IsLookedUpAmongThoseOfTheInnermostVerb) {
  EXPECT_NE(explained("bench e2e --bacth 2").find("did you mean --batch?"), std::string::npos);
}

TEST(WrongFlag, WithAValueIsNamedWithoutIt) {
  EXPECT_NE(explained("run --sede=5").find("no flag --sede; did you mean --seed?"),
            std::string::npos);
}

TEST(WrongVerb, IsNamedWithTheOneThatWasMeant) {
  EXPECT_NE(explained("rnu").find("no verb 'rnu'; did you mean run?"), std::string::npos);
  EXPECT_NE(explained("perplex").find("did you mean perplexity?"), std::string::npos);
}

TEST(OneWordTooMany, SaysHowToQuote) {
  EXPECT_NE(explained("run model The city of").find("quote a prompt"), std::string::npos);
}

TEST(WrongValue, ShowsTheFlagAndTheValue) {
  const std::string line = explained("run --dtype fp7");
  EXPECT_NE(line.find("--dtype"), std::string::npos) << line;
  EXPECT_NE(line.find("'fp7' is not one of f32|bf16|f16"), std::string::npos) << line;
  EXPECT_NE(explained("run --context many").find("32K"), std::string::npos);
}

TEST(WrongValue, FromTheEnvironmentShowsTheVariable) {
  const ScopedEnv set("TESSERA_RUN_TOP_K", "lots");
  const std::string line = explained("run");
  EXPECT_NE(line.find("(TESSERA_RUN_TOP_K is 'lots')"), std::string::npos) << line;
}

std::string typed(const std::string& arguments, const std::string& message) {
  IdleCommandLine line;
  line.parse(arguments);
  std::istringstream stream(arguments);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return as_typed(*line.app, message, words);
}

TEST(Messages, NameFlagsAsTheyWereTyped) {
  const std::string message = "--max-tokens is 0; give at least 1";
  EXPECT_EQ(typed("run -n 0", message), "-n is 0; give at least 1");
  EXPECT_EQ(typed("run -n0", message), "-n is 0; give at least 1");
  EXPECT_EQ(typed("run --max-tokens 0", message), message);
  EXPECT_EQ(typed("run --max-tokens=0", message), message);
  EXPECT_EQ(typed("run", message), message);
  EXPECT_EQ(typed("run -t 1", "--temperature-x and --temperature"), "--temperature-x and -t");
}

TEST(Messages, NameTheVariableAValueCameFrom) {
  const ScopedEnv set("TESSERA_RUN_MAX_TOKENS", "0");
  const std::string message = "--max-tokens is 0";
  EXPECT_EQ(typed("run", message), message + " (TESSERA_RUN_MAX_TOKENS is '0')");
  EXPECT_EQ(typed("run --max-tokens 0", message), message);
  EXPECT_EQ(typed("run -n 0", message), "-n is 0");
}

TEST(Help, FitsAScreen) {
  int exit_status = 0;
  const std::unique_ptr<CLI::App> app = make_command_line(exit_status);
  expect_pages_fit(*app, 24);
}

TEST(Help, ShowsAdvancedFlagsAndVariablesOnlyWhenAllIsAsked) {
  int exit_status = 0;
  const std::unique_ptr<CLI::App> app = make_command_line(exit_status);
  const CLI::App* run = app->get_subcommand("run");
  const std::string brief = HelpFormatter().make_help(run, "", CLI::AppFormatMode::Normal);
  const std::string all = HelpFormatter().make_help(run, "", CLI::AppFormatMode::All);
  EXPECT_EQ(brief.find("--typical-p"), std::string::npos);
  EXPECT_NE(all.find("--typical-p"), std::string::npos);
  EXPECT_NE(all.find("TESSERA_RUN_TYPICAL_P"), std::string::npos);
  EXPECT_NE(brief.find("--help-all"), std::string::npos);
  EXPECT_LE(size_of(all).num_columns, 80u);
}

}  // namespace
}  // namespace tessera::apps
