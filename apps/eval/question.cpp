// Contexts with examples.
// SPDX-License-Identifier: MIT
#include "apps/eval/question.h"

#include <algorithm>

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

}  // namespace tessera::apps
