// Ranges of the parameters, random numbers, adjusted logits, draws and log-probabilities.
// SPDX-License-Identifier: MIT
#include "engine/sampling/sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include "core/philox.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera {
namespace {

constexpr size_t kMostBiases = 1024;

// NaN is outside every range.
bool is_between(double value, double low, double high) { return value >= low && value <= high; }
bool is_share(double value) { return value > 0.0 && value <= 1.0; }

}  // namespace

void check(const SamplingParams& params, int64_t vocab, const FieldNames& names) {
  const SamplingParams& p = params;
  const auto expects_range = [&](bool is_within, std::string_view field, auto value,
                                 std::string_view range) {
    if (!is_within) fail(concat(names(field), " is ", value, "; give ", range));
  };
  expects_range(is_between(p.temperature, 0.0, 10.0), "temperature", p.temperature, "0 to 10");
  expects_range(p.top_k >= 0, "top_k", p.top_k, "a positive number, or 0 for all tokens");
  expects_range(is_share(p.top_p), "top_p", p.top_p, "more than 0, up to 1");
  expects_range(is_between(p.min_p, 0.0, 1.0), "min_p", p.min_p, "0 to 1");
  expects_range(is_share(p.typical_p), "typical_p", p.typical_p, "more than 0, up to 1");
  expects_range(p.repetition_penalty > 0.0f && p.repetition_penalty <= 10.0f, "repetition_penalty",
                p.repetition_penalty, "more than 0, up to 10");
  expects_range(is_between(p.presence_penalty, -2.0, 2.0), "presence_penalty", p.presence_penalty,
                "-2 to 2");
  expects_range(is_between(p.frequency_penalty, -2.0, 2.0), "frequency_penalty",
                p.frequency_penalty, "-2 to 2");
  const std::string bias_name = names("logit_bias");
  if (p.logit_bias.size() > kMostBiases) {
    fail(concat(bias_name, " has ", p.logit_bias.size(), " entries; give at most ", kMostBiases));
  }
  for (const auto& [token, bias] : p.logit_bias) {
    if (token < 0 || token >= vocab) {
      fail(concat(bias_name, " names token ", token, "; give 0 to ", vocab - 1));
    }
    if (!std::isfinite(bias)) {
      fail(concat(bias_name, " of token ", token, " is ", bias, "; give -100 to 100"));
    }
  }
}

namespace engine {
namespace {

PhiloxWords block_of(uint64_t key, uint64_t counter_high, uint64_t counter_low) {
  return philox({{static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                  static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)}},
                key);
}

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr float kMostBias = 100.0f;

float& logit_of(std::span<float> logits, int32_t token) {
  if (token < 0 || static_cast<size_t>(token) >= logits.size()) {
    fail(concat("sample: token ", token, " is outside a row of ", logits.size(), " logits"));
  }
  return logits[static_cast<size_t>(token)];
}

// A logit of -infinity keeps its value; all others stay finite.
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

// Tokens are changed independently, so the order of the maps does not matter.
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

// The row with bias, penalties and bans applied, in `copy`; the row itself if there are none.
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
  return candidates.back().token;  // unreachable: both loops compute the same sums
}

}  // namespace

uint32_t random_bits(uint64_t key, uint64_t counter_high, uint64_t counter_low) {
  return block_of(key, counter_high, counter_low).words[0];
}

double random_uniform(uint64_t seed, int32_t sequence, int64_t position) {
  const PhiloxWords block =
      block_of(seed, static_cast<uint64_t>(sequence), static_cast<uint64_t>(position));
  // 52 random bits plus one half: exact in a double, and never 0 or 1.
  const uint64_t bits = (uint64_t{block.words[0]} << 32 | block.words[1]) >> 12;
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

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
  // select_best orders by token, and a stable sort keeps that order among equal logits.
  std::ranges::stable_sort(best, std::ranges::greater(), &Candidate::logit);
  for (const Candidate& candidate : best) {
    output.top.push_back({candidate.token, logprob_of(candidate.logit)});
  }
  return output;
}

}  // namespace engine
}  // namespace tessera
