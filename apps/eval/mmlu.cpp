// MMLU: 57 subjects, four choices, five examples of the same subject before each question.
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "apps/eval/tasks.h"
#include "apps/text_file.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::apps {
namespace {

namespace fs = std::filesystem;

constexpr size_t kColumns = 6;  // question, four choices, answer
const std::vector<std::string> kLetters = {"A", "B", "C", "D"};

// 0 to 3; -1 for what is no answer, as in a row of names.
int64_t parse_answer(const std::string& text) {
  if (text.size() != 1) return -1;
  if (text[0] >= '0' && text[0] <= '3') return text[0] - '0';
  if (text[0] >= 'A' && text[0] <= 'D') return text[0] - 'A';
  return -1;
}

// "abstract_algebra" as it is read out.
std::string spoken(std::string subject) {
  std::ranges::replace(subject, '_', ' ');
  return subject;
}

std::string solved(const Question& question) {
  return concat(question.query, " ", question.choices[static_cast<size_t>(question.gold)], "\n\n");
}

}  // namespace

std::vector<Question> parse_mmlu(std::string_view csv, std::string_view origin,
                                 std::string_view subject) {
  std::vector<Question> questions;
  const std::vector<std::vector<std::string>> rows = parse_csv(csv, origin);
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::vector<std::string>& row = rows[i];
    const int64_t gold = row.size() == kColumns ? parse_answer(row.back()) : -1;
    if (gold < 0) {
      if (i == 0 && row.size() == kColumns) continue;  // the names of the columns
      throw Error(concat(origin, ", row ", i + 1, ": a question, four choices and an answer of ",
                         "0-3 or A-D are needed, and there are ", row.size(), " fields"));
    }
    std::string query = row[0];
    for (size_t c = 0; c < kLetters.size(); ++c) {
      query += concat("\n", kLetters[c], ". ", row[c + 1]);
    }
    questions.push_back({.header = concat("The following are multiple choice questions (with ",
                                          "answers) about ", spoken(std::string(subject)), ".\n\n"),
                         .query = query + "\nAnswer:",
                         .choices = kLetters,
                         .gold = gold,
                         .subject = std::string(subject)});
  }
  return questions;
}

std::vector<Question> load_mmlu(const fs::path& folder, int64_t num_shots) {
  std::error_code ignored;
  if (!fs::is_directory(folder / "test", ignored)) {
    throw Error(concat("mmlu: ", shown_path(folder.native()),
                       " has no folder test; give the folder that holds ",
                       "dev/*_dev.csv and test/*_test.csv, unpacked"));
  }
  constexpr std::string_view kSuffix = "_test.csv";
  std::vector<std::string> subjects;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "test")) {
    const std::string file = entry.path().filename().string();
    if (file.ends_with(kSuffix)) subjects.push_back(file.substr(0, file.size() - kSuffix.size()));
  }
  std::ranges::sort(subjects);
  std::vector<Question> questions;
  for (const std::string& subject : subjects) {
    const fs::path test = folder / "test" / (subject + "_test.csv");
    std::vector<Question> part =
        parse_mmlu(read_text_file(test), shown_path(test.native()), subject);
    if (num_shots > 0) {
      const fs::path dev = folder / "dev" / (subject + "_dev.csv");
      std::vector<Question> examples =
          parse_mmlu(read_text_file(dev), shown_path(dev.native()), subject);
      examples.resize(std::min(examples.size(), static_cast<size_t>(num_shots)));
      std::vector<std::string> shots;
      for (const Question& example : examples) shots.push_back(solved(example));
      for (Question& question : part) question.shots = shots;
    }
    std::ranges::move(part, std::back_inserter(questions));
  }
  return questions;
}

}  // namespace tessera::apps
