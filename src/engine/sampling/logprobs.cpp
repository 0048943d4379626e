// What the model itself thought of a row: its tokens' log-probabilities, and whether it is sound.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/text.h"
#include "engine/sampling/sampler.h"
#include "tessera/core/error.h"

namespace tessera::engine {

bool is_broken(std::span<const float> logits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  int num_broken = 0;
  for (const float logit : logits) num_broken |= logit < kInfinity ? 0 : 1;  // NaN is not less
  return num_broken != 0;
}

double log_sum_exp(std::span<const float> logits) {
  expects(!logits.empty(), "log_sum_exp: the row of logits is empty");
  const double largest = logits[static_cast<size_t>(find_largest(logits))];
  if (largest == -std::numeric_limits<double>::infinity()) return largest;
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(double{logit} - largest);
  return largest + std::log(sum);
}

OutputToken logprobs_of(std::span<const float> logits, int32_t token, int32_t num_top) {
  if (token < 0 || static_cast<size_t>(token) >= logits.size()) {
    fail(concat("logprobs_of: token ", token, " is outside a row of ", logits.size(), " logits"));
  }
  const double log_total = log_sum_exp(logits);
  const auto logprob_of = [log_total](float logit) {
    if (logit == -std::numeric_limits<float>::infinity()) return logit;
    return static_cast<float>(double{logit} - log_total);
  };
  OutputToken output{.token = token, .logprob = logprob_of(logits[static_cast<size_t>(token)])};
  std::vector<Candidate> best;
  select_best(logits, num_top, best);
  // They come in order of token, which a stable sort keeps among equals.
  std::ranges::stable_sort(best, std::ranges::greater(), &Candidate::logit);
  for (const Candidate& candidate : best) {
    output.top.push_back({candidate.token, logprob_of(candidate.logit)});
  }
  return output;
}

}  // namespace tessera::engine
