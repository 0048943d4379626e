// Makes score jobs from questions, and accuracy from scores.
// SPDX-License-Identifier: MIT
#include "apps/eval/accuracy.h"

#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::apps {

ScoreJob continuation_job(const Tokenizer& tokenizer, const std::string& context,
                          const std::string& continuation, int64_t max_tokens) {
  const size_t num_context = tokenizer.encode(context).size();
  const std::vector<int32_t> whole = tokenizer.encode(context + continuation);
  ScoreJob job = {.tokens = tokenizer.prefix()};
  const size_t num_prefix = job.tokens.size();
  // At least one token is scored, and at least one precedes it.
  size_t first = std::min(num_context, whole.empty() ? 0 : whole.size() - 1);
  if (num_prefix == 0) first = std::max<size_t>(first, 1);
  if (first >= whole.size())
    fail(concat("eval: '", shown(continuation), "' has no tokens to score"));
  job.num_scored = static_cast<int64_t>(whole.size() - first);
  const size_t room = static_cast<size_t>(max_tokens) - num_prefix;
  const size_t dropped = whole.size() > room ? whole.size() - room : 0;
  if (dropped >= first && dropped > 0) {
    fail(concat("eval: a choice has ", job.num_scored, " tokens; the context holds ", max_tokens));
  }
  job.tokens.insert(job.tokens.end(), whole.begin() + static_cast<std::ptrdiff_t>(dropped),
                    whole.end());
  return job;
}

Choice choose(const Question& question, std::span<const double> logprobs) {
  expects_equal(static_cast<int64_t>(logprobs.size()),
                static_cast<int64_t>(question.choices.size()), "eval: scores of a question");
  std::vector<double> by_bytes(logprobs.begin(), logprobs.end());
  for (size_t i = 0; i < by_bytes.size(); ++i) {
    by_bytes[i] /= static_cast<double>(std::max<size_t>(1, question.choices[i].size()));
  }
  return {.likeliest = std::ranges::max_element(logprobs) - logprobs.begin(),
          .likeliest_by_bytes = std::ranges::max_element(by_bytes) - by_bytes.begin()};
}

void Accuracy::add(const Question& question, const Choice& choice) {
  ++num_questions;
  num_right += choice.likeliest == question.gold ? 1 : 0;
  num_right_by_bytes += choice.likeliest_by_bytes == question.gold ? 1 : 0;
}

double Accuracy::share() const {
  return num_questions == 0 ? 0
                            : static_cast<double>(num_right) / static_cast<double>(num_questions);
}

double Accuracy::share_by_bytes() const {
  return num_questions == 0
             ? 0
             : static_cast<double>(num_right_by_bytes) / static_cast<double>(num_questions);
}

double Accuracy::standard_error(double share) const {
  return num_questions == 0 ? 0
                            : std::sqrt(share * (1 - share) / static_cast<double>(num_questions));
}

std::vector<ScoreJob> jobs_of(const Tokenizer& tokenizer, const Question& question,
                              int64_t num_shots, int64_t max_tokens) {
  size_t longest = 0;
  for (const std::string& choice : question.choices) longest = std::max(longest, choice.size());
  int64_t shots = std::min(num_shots, static_cast<int64_t>(question.shots.size()));
  const auto fits = [&] {
    // A choice has at most one token per byte.
    const size_t num_tokens = tokenizer.encode(context_of(question, shots)).size() +
                              tokenizer.prefix().size() + longest + 1;
    return num_tokens <= static_cast<size_t>(max_tokens);
  };
  while (shots > 0 && !fits()) --shots;
  const std::string context = context_of(question, shots);
  std::vector<ScoreJob> jobs;
  for (const std::string& choice : question.choices) {
    jobs.push_back(continuation_job(tokenizer, context, " " + choice, max_tokens));
  }
  return jobs;
}

}  // namespace tessera::apps
