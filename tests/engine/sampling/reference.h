// Sampling by brute force in double: everything is sorted and nothing is clever.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "tessera/engine/sampling.h"

namespace tessera::engine::testing {

struct Choice {
  int32_t token = 0;
  float logit = 0.0f;
  double probability = 0.0;
};

// Only ratios matter until the end. The largest weight is exactly 1, so sums of equal weights are
// integers, and comparing them with a share involves no rounding.
inline void set_weights(std::vector<Choice>& choices, double temperature) {
  float largest = choices.front().logit;
  for (const Choice& choice : choices) largest = std::max(largest, choice.logit);
  for (Choice& choice : choices) {
    const double difference = double{choice.logit} - largest;
    choice.probability = std::exp(difference / temperature);
  }
}

// Summed in long double and rounded once, so that many tiny weights after a large one still count.
inline double total_of(std::span<const Choice> choices) {
  long double total = 0.0L;
  for (const Choice& choice : choices) total += choice.probability;
  return static_cast<double>(total);
}

// The fewest from the front that reach `share`; at least one.
inline void cut_at(std::vector<Choice>& choices, double share) {
  const double target = share * total_of(choices);
  double reached = 0.0;
  size_t count = 0;
  while (count < choices.size() && (count == 0 || reached < target)) {
    reached += choices[count++].probability;
  }
  choices.resize(count);
}

inline void sort_best_first(std::vector<Choice>& choices) {
  std::sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  });
}

inline void cut_typical(std::vector<Choice>& choices, double share) {
  const double total = total_of(choices);
  const auto information = [total](const Choice& choice) {
    return std::log(total) - std::log(choice.probability);
  };
  double entropy = 0.0;
  for (const Choice& choice : choices) {
    entropy += choice.probability / total * information(choice);
  }
  const auto surprise = [&](const Choice& choice) {
    return std::fabs(information(choice) - entropy);
  };
  // Equal logits are equally surprising, whatever the rounding.
  std::sort(choices.begin(), choices.end(), [&](const Choice& a, const Choice& b) {
    if (a.logit == b.logit) return a.token < b.token;
    return surprise(a) < surprise(b);
  });
  cut_at(choices, share);
}

// What may be drawn, in order of token. Probabilities that vanish in double are left out.
inline std::vector<Choice> reference_choices(std::span<const float> logits,
                                             const SamplingParams& params) {
  std::vector<Choice> choices;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isfinite(logits[i])) choices.push_back({static_cast<int32_t>(i), logits[i]});
  }
  sort_best_first(choices);
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < choices.size()) {
    choices.resize(static_cast<size_t>(params.top_k));
  }
  set_weights(choices, params.temperature);
  std::erase_if(choices, [](const Choice& choice) { return choice.probability == 0.0; });
  if (params.typical_p < 1.0f) cut_typical(choices, params.typical_p);
  set_weights(choices, params.temperature);
  sort_best_first(choices);
  if (params.top_p < 1.0f) cut_at(choices, params.top_p);
  std::erase_if(choices, [&](const Choice& choice) { return choice.probability < params.min_p; });
  const double total = total_of(choices);
  for (Choice& choice : choices) choice.probability /= total;
  std::sort(choices.begin(), choices.end(),
            [](const Choice& a, const Choice& b) { return a.token < b.token; });
  return choices;
}

inline int32_t reference_draw(std::span<const Choice> choices, double uniform) {
  double reached = 0.0;
  for (const Choice& choice : choices) {
    reached += choice.probability;
    if (reached >= uniform) return choice.token;
  }
  return choices.back().token;
}

// Rows of several kinds: smooth, with many ties, with impossible tokens, nearly one-sided.
inline std::vector<float> random_logits(std::mt19937& random, size_t vocab) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  const float scale = std::pow(10.0f, static_cast<float>(random() % 4) - 1.0f);
  const bool is_coarse = random() % 3 == 0;
  const bool has_holes = random() % 3 == 0;
  std::vector<float> logits;
  for (size_t i = 0; i < vocab; ++i) {
    float logit = scale * normal(random);
    if (is_coarse) logit = std::round(logit);
    if (has_holes && random() % 2 == 0) logit = -std::numeric_limits<float>::infinity();
    logits.push_back(logit);
  }
  logits[random() % vocab] = 1.0f;
  return logits;
}

inline SamplingParams random_params(std::mt19937& random, size_t vocab) {
  std::uniform_real_distribution<float> share(0.0f, 1.0f);
  SamplingParams params;
  params.temperature = std::pow(10.0f, 3.0f * share(random) - 2.0f);
  if (random() % 2 == 0)
    params.top_k = 1 + static_cast<int32_t>(random() % (vocab + vocab / 4 + 1));
  if (random() % 2 == 0) params.top_p = random() % 4 == 0 ? 0.5f : share(random);
  if (random() % 3 == 0) params.min_p = random() % 4 == 0 ? 1.0f : share(random) * share(random);
  if (random() % 3 == 0) params.typical_p = random() % 4 == 0 ? 0.5f : share(random);
  return params;
}

}  // namespace tessera::engine::testing
