// Logits as the request wants them, then the largest or a draw.
// SPDX-License-Identifier: MIT
#include "engine/sampling/sampler.h"

#include <algorithm>
#include <limits>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::engine {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr float kMostBias = 100.0f;

float& logit_of(std::span<float> logits, int32_t token) {
  if (token < 0 || static_cast<size_t>(token) >= logits.size()) {
    fail(concat("sample: token ", token, " is outside a row of ", logits.size(), " logits"));
  }
  return logits[static_cast<size_t>(token)];
}

// Tokens that were impossible stay so; the others stay finite.
void set(float& logit, double value) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  if (logit != kNever) logit = static_cast<float>(std::clamp(value, -kLargest, kLargest));
}

void apply_bias(std::span<float> logits, const SamplingParams& params) {
  for (const auto& [token, bias] : params.logit_bias) {
    float& logit = logit_of(logits, token);
    set(logit, double{logit} + std::clamp(bias, -kMostBias, kMostBias));
  }
}

void apply_repetition(float& logit, double penalty) {
  set(logit, logit > 0.0f ? logit / penalty : logit * penalty);
}

// Each token is changed on its own, so the order in which the maps are walked does not matter.
void apply_penalties(std::span<float> logits, const SamplingParams& params,
                     const TokenCounts& counts) {
  for (const auto& [token, count] : counts.generated) {
    float& logit = logit_of(logits, token);
    apply_repetition(logit, params.repetition_penalty);
    set(logit, logit - params.presence_penalty - double{params.frequency_penalty} * count);
  }
  if (params.repetition_penalty == 1.0f) return;
  for (const auto& [token, count] : counts.prompt) {
    if (counts.generated.contains(token)) continue;
    apply_repetition(logit_of(logits, token), params.repetition_penalty);
  }
}

bool has_penalty(const SamplingParams& params) {
  return params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
         params.frequency_penalty != 0.0f;
}

// The row itself where nothing changes it, a changed copy otherwise.
std::span<const float> adjust(std::span<const float> logits, const SamplingParams& params,
                              const TokenCounts& counts, std::span<const int32_t> banned,
                              std::vector<float>& copy) {
  if (params.logit_bias.empty() && !has_penalty(params) && banned.empty()) return logits;
  copy.assign(logits.begin(), logits.end());
  apply_bias(copy, params);
  if (has_penalty(params)) apply_penalties(copy, params, counts);
  for (const int32_t token : banned) {
    if (token >= 0 && static_cast<size_t>(token) < copy.size()) {
      copy[static_cast<size_t>(token)] = kNever;
    }
  }
  return copy;
}

int32_t draw(std::span<const Candidate> candidates, double uniform) {
  double total = 0.0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  const double target = uniform * total;
  double reached = 0.0;
  for (const Candidate& candidate : candidates) {
    reached += candidate.weight;
    if (reached >= target) return candidate.token;
  }
  return candidates.back().token;  // not reached: the sums are the same
}

}  // namespace

int32_t sample(std::span<const float> logits, const SamplingParams& params,
               const TokenCounts& counts, std::span<const int32_t> banned, uint64_t seed,
               int32_t sequence, int64_t position, SamplerScratch& scratch) {
  expects(!logits.empty(), "sample: the row of logits is empty");
  const std::span<const float> row = adjust(logits, params, counts, banned, scratch.logits);
  const int32_t largest = find_largest(row);
  if (row[static_cast<size_t>(largest)] == kNever) {
    fail(concat("sample: none of ", row.size(), " tokens is left to choose; ", banned.size(),
                " are banned and the others have a logit of -infinity"));
  }
  if (params.is_greedy()) return largest;
  truncate(row, params, scratch.candidates, scratch.pool);
  return draw(scratch.candidates, random_uniform(seed, sequence, position));
}

}  // namespace tessera::engine
