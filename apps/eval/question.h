// A multiple-choice question, as every task becomes one.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
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

}  // namespace tessera::apps
