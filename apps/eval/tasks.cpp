// The file formats of HellaSwag, ARC and MMLU, and contexts with solved examples.
// SPDX-License-Identifier: MIT
#include "apps/eval/tasks.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/options.h"
#include "apps/text_file.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::apps {

std::string context_of(const Question& question, int64_t num_shots) {
  std::string context = question.header;
  const auto have = static_cast<int64_t>(question.shots.size());
  for (int64_t i = have - std::min(num_shots, have); i < have; ++i) {
    context += question.shots[static_cast<size_t>(i)];
  }
  return context + question.query;
}

std::vector<Question> with_shots(std::vector<Question> questions, int64_t num_shots) {
  const int64_t taken = std::min(num_shots, static_cast<int64_t>(questions.size()));
  std::vector<std::string> shots;
  for (int64_t i = 0; i < taken; ++i) {
    const Question& one = questions[static_cast<size_t>(i)];
    shots.push_back(one.query + " " + one.choices[static_cast<size_t>(one.gold)] + "\n\n");
  }
  questions.erase(questions.begin(), questions.begin() + taken);
  for (Question& question : questions) question.shots = shots;
  return questions;
}

std::vector<std::vector<std::string>> parse_csv(std::string_view text, std::string_view origin) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> row;
  std::string field;
  bool is_quoted = false;
  bool has_field = false;  // the row is not empty
  int64_t line = 1;
  int64_t quote_line = 0;
  const auto end_field = [&] {
    row.push_back(std::exchange(field, {}));
    has_field = true;
  };
  const auto end_row = [&] {
    if (has_field || !field.empty()) {
      end_field();
      rows.push_back(std::exchange(row, {}));
    }
    has_field = false;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (letter == '\n') ++line;
    if (is_quoted) {
      if (letter != '"') {
        field += letter;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        field += text[++i];
      } else {
        is_quoted = false;
      }
    } else if (letter == '"' && field.empty()) {
      is_quoted = true;
      has_field = true;
      quote_line = line;
    } else if (letter == ',') {
      end_field();
    } else if (letter == '\n') {
      end_row();
    } else if (letter != '\r' || i + 1 == text.size() || text[i + 1] != '\n') {
      field += letter;
    }
  }
  if (is_quoted)
    throw Error(concat(origin, ":", quote_line, ": a quote is opened and never closed"));
  end_row();
  return rows;
}

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

namespace {

namespace fs = std::filesystem;

constexpr size_t kColumns = 6;  // question, four choices, answer
const std::vector<std::string> kLetters = {"A", "B", "C", "D"};

// 0 to 3; -1 if it is not an answer, as in a header row.
int64_t parse_answer(const std::string& text) {
  if (text.size() != 1) return -1;
  if (text[0] >= '0' && text[0] <= '3') return text[0] - '0';
  if (text[0] >= 'A' && text[0] <= 'D') return text[0] - 'A';
  return -1;
}

// "abstract_algebra" with spaces.
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
      if (i == 0 && row.size() == kColumns) continue;  // the header row
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

std::vector<Question> load_task(const std::string& task, const std::filesystem::path& data,
                                int64_t num_shots) {
  const int64_t shots = std::max<int64_t>(0, num_shots);
  std::vector<Question> questions;
  if (task == "mmlu") {
    questions = load_mmlu(data, num_shots < 0 ? 5 : num_shots);
  } else if (task == "arc") {
    questions = with_shots(parse_arc(read_text_file(data), shown_path(data.native())), shots);
  } else if (task == "hellaswag") {
    questions = with_shots(parse_hellaswag(read_text_file(data), shown_path(data.native())), shots);
  } else {
    throw UsageError(concat("no task '", task, "'; there are hellaswag, arc and mmlu"));
  }
  if (questions.empty())
    throw Error(concat(shown_path(data.native()), " holds no questions to ask"));
  return questions;
}

}  // namespace tessera::apps
