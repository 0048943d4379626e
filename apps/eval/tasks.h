// Multiple-choice tasks: their questions, and the files they are read from.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::apps {

// The model sees header, shots and query, and is asked how likely " " + choice is after them.
struct Question {
  std::string header = {};              // "The following are multiple choice questions …\n\n"
  std::vector<std::string> shots = {};  // solved examples, each with its end: "…Answer: B\n\n"
  std::string query;
  std::vector<std::string> choices;
  int64_t gold = 0;          // which choice is right
  std::string subject = {};  // MMLU: results are given per subject
};

// header, the last num_shots shots and the query.
std::string context_of(const Question& question, int64_t num_shots);

// The first num_shots questions become examples for all the others, and are not asked.
std::vector<Question> with_shots(std::vector<Question> questions, int64_t num_shots);

// Six lines a question: the beginning, the number of the right ending, four endings.
std::vector<Question> parse_hellaswag(std::string_view text, std::string_view origin);

// One JSON object a line: {"query": "Question: …", "choices": […], "gold": 2}.
std::vector<Question> parse_arc(std::string_view text, std::string_view origin);

// Rows of question, four choices and the answer, as 0-3 or A-D; a first row of names is left out.
// The choices of the questions made are the letters.
std::vector<Question> parse_mmlu(std::string_view csv, std::string_view origin,
                                 std::string_view subject);
// Every <folder>/test/<subject>_test.csv, with num_shots examples of
// <folder>/dev/<subject>_dev.csv.
std::vector<Question> load_mmlu(const std::filesystem::path& folder, int64_t num_shots);

// "hellaswag", "arc" or "mmlu". num_shots < 0: what is usual for the task.
std::vector<Question> load_task(const std::string& task, const std::filesystem::path& data,
                                int64_t num_shots);

// Fields of comma-separated text; quotes may enclose commas, line ends and doubled quotes. Refuses
// a quote that is never closed.
std::vector<std::vector<std::string>> parse_csv(std::string_view text, std::string_view origin);

}  // namespace tessera::apps
