// Which choice the model finds most likely, and how often it is right.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "apps/eval/tasks.h"
#include "apps/score.h"
#include "tessera/text/tokenizer.h"

namespace tessera::apps {

// Tokens of context and continuation as one text; those of the continuation are scored. A token
// that spans both counts as context. To keep within max_tokens, the oldest context tokens after the
// tokenizer's prefix are dropped.
ScoreJob continuation_job(const Tokenizer& tokenizer, const std::string& context,
                          const std::string& continuation, int64_t max_tokens);

// The choice with the highest score, the first of equals; by_bytes: score divided by the length of
// the choice, so that long choices are not at a disadvantage.
struct Choice {
  int64_t likeliest = 0;
  int64_t likeliest_by_bytes = 0;
};
Choice choose(const Question& question, std::span<const double> logprobs);

struct Accuracy {
  int64_t num_questions = 0;
  int64_t num_right = 0;
  int64_t num_right_by_bytes = 0;

  void add(const Question& question, const Choice& choice);
  double share() const;           // acc
  double share_by_bytes() const;  // acc_norm
  // Standard error of a share of this many questions.
  double standard_error(double share) const;
};

// One job per choice of the question, with as many shots as fit.
std::vector<ScoreJob> jobs_of(const Tokenizer& tokenizer, const Question& question,
                              int64_t num_shots, int64_t max_tokens);

}  // namespace tessera::apps
