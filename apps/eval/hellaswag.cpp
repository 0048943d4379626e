// HellaSwag: which ending follows.
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "apps/eval/tasks.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::apps {
namespace {

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

}  // namespace

std::vector<Question> parse_hellaswag(std::string_view text, std::string_view origin) {
  constexpr size_t kLines = 6;
  const std::vector<std::string> lines = split_lines(text);
  if (lines.size() % kLines != 0) {
    throw Error(concat(origin, " has ", lines.size(), " lines; a question takes ", kLines,
                       ": the beginning, the right ending's number, four endings"));
  }
  std::vector<Question> questions;
  for (size_t first = 0; first < lines.size(); first += kLines) {
    const std::string& gold = lines[first + 1];
    if (gold.size() != 1 || gold[0] < '0' || gold[0] > '3') {
      throw Error(concat(origin, ":", first + 2, ": the right ending is '", shown(gold),
                         "'; it must be 0, 1, 2 or 3"));
    }
    const auto at = lines.begin() + static_cast<std::ptrdiff_t>(first);
    questions.push_back({.query = lines[first],
                         .choices = std::vector<std::string>(at + 2, at + kLines),
                         .gold = gold[0] - '0'});
  }
  return questions;
}

}  // namespace tessera::apps
