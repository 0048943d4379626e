// ARC: science questions with a few answers each.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/eval/tasks.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::apps {
namespace {

Question parse_line(std::string_view line) {
  check_no_nul(line, "the line");
  const nlohmann::json json = nlohmann::json::parse(line);
  Question question = {.query = json.at("query").get<std::string>() + "\nAnswer:",
                       .choices = json.at("choices").get<std::vector<std::string>>(),
                       .gold = json.at("gold").get<int64_t>()};
  if (question.choices.size() < 2) throw Error("fewer than two choices");
  if (question.gold < 0 || question.gold >= static_cast<int64_t>(question.choices.size())) {
    throw Error(concat("gold is ", question.gold, " of ", question.choices.size(), " choices"));
  }
  return question;
}

[[noreturn]] void refuse(std::string_view origin, int64_t line, std::string_view why) {
  throw Error(concat(origin, ":", line, R"(: a line is {"query": "…", "choices": ["…", …], )",
                     R"("gold": 0}; )", why));
}

}  // namespace

std::vector<Question> parse_arc(std::string_view text, std::string_view origin) {
  std::vector<Question> questions;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      questions.push_back(parse_line(line));
    } catch (const nlohmann::json::exception&) {
      refuse(origin, number, "it is not so made");
    } catch (const Error& error) {
      refuse(origin, number, error.what());
    }
  }
  return questions;
}

}  // namespace tessera::apps
