// Log-probabilities of a row of logits on the host.
// SPDX-License-Identifier: MIT
#include "engine/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::engine {

double log_sum_exp(std::span<const float> logits) {
  expects(!logits.empty(), "log_sum_exp: the row of logits is empty");
  const double largest = *std::ranges::max_element(logits);
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
  const auto logit_of = [&](int32_t id) { return logits[static_cast<size_t>(id)]; };
  const auto logprob_of = [&](int32_t id) {
    constexpr float kNever = -std::numeric_limits<float>::infinity();
    return logit_of(id) == kNever ? kNever : static_cast<float>(double{logit_of(id)} - log_total);
  };
  OutputToken output{.token = token, .logprob = logprob_of(token)};
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto count = std::min<int64_t>(num_top, std::ssize(ids));
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), [&](int32_t a, int32_t b) {
    return logit_of(a) != logit_of(b) ? logit_of(a) > logit_of(b) : a < b;
  });
  for (int64_t i = 0; i < count; ++i) {
    const int32_t id = ids[static_cast<size_t>(i)];
    if (logit_of(id) == -std::numeric_limits<float>::infinity()) break;
    output.top.push_back({id, logprob_of(id)});
  }
  return output;
}

}  // namespace tessera::engine
