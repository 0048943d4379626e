// Multiple-choice tasks: their questions, and the files they are read from.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::apps {

// The model sees header, shots and query; the score of a choice is the likelihood of " " + choice.
struct Question {
  std::string header = {};              // "The following are multiple choice questions …\n\n"
  std::vector<std::string> shots = {};  // solved examples: "…Answer: B\n\n"
  std::string query;
  std::vector<std::string> choices;
  int64_t gold = 0;          // index of the right choice
  std::string subject = {};  // MMLU reports results per subject
};

// header, the last num_shots shots and the query.
std::string context_of(const Question& question, int64_t num_shots);

// Turns the first num_shots questions into examples for all others.
std::vector<Question> with_shots(std::vector<Question> questions, int64_t num_shots);

// Six lines per question: the beginning, the number of the right ending, four endings.
std::vector<Question> parse_hellaswag(std::string_view text, std::string_view origin);

// One JSON object per line: {"query": "Question: …", "choices": […], "gold": 2}.
std::vector<Question> parse_arc(std::string_view text, std::string_view origin);

// Rows of a question, four choices and the answer as 0-3 or A-D; a header row is skipped. The
// choices of the resulting questions are the letters.
std::vector<Question> parse_mmlu(std::string_view csv, std::string_view origin,
                                 std::string_view subject);
// Every <folder>/test/<subject>_test.csv, with num_shots examples of
// <folder>/dev/<subject>_dev.csv.
std::vector<Question> load_mmlu(const std::filesystem::path& folder, int64_t num_shots);

// "hellaswag", "arc" or "mmlu". num_shots < 0: the usual number for the task.
std::vector<Question> load_task(const std::string& task, const std::filesystem::path& data,
                                int64_t num_shots);

// The fields of comma-separated text. Quoted fields may contain commas, newlines and doubled
// quotes. Refuses a quote that is never closed.
std::vector<std::vector<std::string>> parse_csv(std::string_view text, std::string_view origin);

}  // namespace tessera::apps
