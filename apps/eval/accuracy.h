// Which choice a model finds likeliest, and how often that is the right one.
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

// The tokens of context and continuation as one text, the continuation's to be scored. Where a
// token spans both it counts as the context's. At most max_tokens, by dropping the oldest of the
// context behind the tokenizer's prefix.
ScoreJob continuation_job(const Tokenizer& tokenizer, const std::string& context,
                          const std::string& continuation, int64_t max_tokens);

// The choice with the largest score, the first of equals; by bytes: of score over the choice's
// length, so that long choices are not at a loss.
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

// One job a choice, of question after question, with as many shots as fit.
std::vector<ScoreJob> jobs_of(const Tokenizer& tokenizer, const Question& question,
                              int64_t num_shots, int64_t max_tokens);

}  // namespace tessera::apps
