// Selection without sorting: the best k, and the fewest that reach a given share of the
// probability.
// SPDX-License-Identifier: MIT
#include "engine/sampling/candidates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

namespace tessera::engine {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Independent lanes let the compiler use vector instructions for the maximum.
float largest_of(std::span<const float> logits) {
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> lanes;
  lanes.fill(kNever);
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float logit = logits[i + lane];
      lanes[lane] = logit > lanes[lane] ? logit : lanes[lane];
    }
  }
  for (; i < logits.size(); ++i) lanes[0] = std::max(lanes[0], logits[i]);
  return *std::ranges::max_element(lanes);
}

bool is_better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// The natural log of a token's probability, up to a constant.
struct Score {
  double largest;
  double temperature;
  double operator()(float logit) const { return (double{logit} - largest) / temperature; }
};

Score score_of(const std::vector<Candidate>& candidates, double temperature) {
  return {std::ranges::max(candidates, {}, &Candidate::logit).logit, temperature};
}

// Weights relative to the best candidate, whose weight is exactly 1. Sums over equal candidates are
// then whole numbers, so that a share such as one half is met exactly.
void set_weights(std::vector<Candidate>& candidates, double temperature) {
  const Score score = score_of(candidates, temperature);
  for (Candidate& candidate : candidates) candidate.weight = std::exp(score(candidate.logit));
}

void select_all(std::span<const float> logits, std::vector<Candidate>& candidates) {
  candidates.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > kNever) candidates.push_back({0.0, logits[i], static_cast<int32_t>(i)});
  }
}

// The candidate of `pool` at which the weights, added to `reached` in order, reach `target`. Halves
// are discarded by selection until few enough are left to sort.
template <class Order>
Candidate find_cut(std::vector<Candidate>& pool, double reached, double target,
                   const Order& comes_before) {
  auto first = pool.begin();
  auto last = pool.end();
  while (last - first > 16) {
    const auto middle = first + (last - first) / 2;
    std::nth_element(first, middle, last, comes_before);
    double with_half = reached;
    for (auto it = first; it != middle; ++it) with_half += it->weight;
    if (with_half >= target) {
      last = middle;
    } else {
      first = middle;
      reached = with_half;
    }
  }
  std::sort(first, last, comes_before);
  for (reached += first->weight; reached < target && first + 1 != last;) {
    reached += (++first)->weight;
  }
  return *first;
}

// Keeps the fewest candidates, smallest key first and ties by token, whose weights add up to
// `share` of the total. A histogram of weights by key, in buckets of `width`, finds the bucket in
// which the share is reached; only its candidates are ordered.
template <class Key>
void keep_fewest(std::vector<Candidate>& candidates, std::vector<Candidate>& pool, double share,
                 double width, const Key& key) {
  constexpr size_t kBuckets = 512;
  double least = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates) least = std::min(least, key(candidate));
  const auto bucket_of = [&](const Candidate& candidate) {
    return static_cast<size_t>(std::min((key(candidate) - least) / width, kBuckets - 1.0));
  };
  std::array<double, kBuckets> weights = {};
  for (const Candidate& candidate : candidates) weights[bucket_of(candidate)] += candidate.weight;
  const double target = share * std::accumulate(weights.begin(), weights.end(), 0.0);
  double reached = 0.0;
  size_t bucket = 0;
  while (bucket + 1 < kBuckets && reached + weights[bucket] < target) reached += weights[bucket++];

  pool.clear();
  for (const Candidate& candidate : candidates) {
    if (bucket_of(candidate) == bucket) pool.push_back(candidate);
  }
  const auto comes_before = [&key](const Candidate& a, const Candidate& b) {
    const double key_a = key(a), key_b = key(b);
    return key_a != key_b ? key_a < key_b : a.token < b.token;
  };
  const Candidate cut = find_cut(pool, reached, target, comes_before);
  std::erase_if(candidates, [&](const Candidate& c) { return comes_before(cut, c); });
}

void keep_typical(std::vector<Candidate>& candidates, std::vector<Candidate>& pool, double share,
                  double temperature) {
  const Score score = score_of(candidates, temperature);
  double total = 0.0;
  double sum = 0.0;
  for (const Candidate& candidate : candidates) {
    total += candidate.weight;
    sum += candidate.weight * score(candidate.logit);
  }
  // -log p minus the entropy equals the mean score minus the score: the constant cancels.
  const double mean = sum / total;
  keep_fewest(candidates, pool, share, 0.125,
              [&](const Candidate& candidate) { return std::fabs(score(candidate.logit) - mean); });
  set_weights(candidates, temperature);  // the best candidate may have been removed
}

// The best candidate's weight is 1.
void keep_min_p(std::vector<Candidate>& candidates, double min_p) {
  std::erase_if(candidates, [&](const Candidate& c) { return c.weight < min_p; });
}

}  // namespace

int32_t find_largest(std::span<const float> logits) {
  constexpr size_t kBlock = 4096;
  size_t best_first = 0;
  float best = kNever;
  for (size_t first = 0; first < logits.size(); first += kBlock) {
    const float largest =
        largest_of(logits.subspan(first, std::min(kBlock, logits.size() - first)));
    if (largest > best) {
      best = largest;
      best_first = first;
    }
  }
  const auto it =
      std::find(logits.begin() + static_cast<std::ptrdiff_t>(best_first), logits.end(), best);
  return static_cast<int32_t>(it - logits.begin());
}

void select_best(std::span<const float> logits, int64_t count, std::vector<Candidate>& best) {
  best.clear();
  if (count <= 0) return;
  if (count >= static_cast<int64_t>(logits.size())) return select_all(logits, best);
  const auto num_best = static_cast<size_t>(count);
  const size_t capacity = 2 * num_best + 64;
  const auto keep_best = [&] {
    std::nth_element(best.begin(), best.begin() + (count - 1), best.end(), is_better);
    best.resize(num_best);
  };
  // A token must beat the worst one kept: of equals the earlier token wins.
  float worst = kNever;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > worst)) [[likely]]
      continue;
    best.push_back({0.0, logits[i], static_cast<int32_t>(i)});
    if (best.size() < capacity) continue;
    keep_best();
    worst = best.back().logit;
  }
  if (best.size() > num_best) keep_best();
  std::ranges::sort(best, {}, &Candidate::token);
}

void truncate(std::span<const float> logits, const SamplingParams& params,
              std::vector<Candidate>& candidates, std::vector<Candidate>& pool) {
  if (params.top_k > 0) {
    select_best(logits, params.top_k, candidates);
  } else {
    select_all(logits, candidates);
  }
  const double temperature = params.temperature;
  set_weights(candidates, temperature);
  std::erase_if(candidates, [](const Candidate& c) { return c.weight == 0.0; });
  if (params.typical_p < 1.0f) keep_typical(candidates, pool, params.typical_p, temperature);
  if (params.top_p < 1.0f) {
    keep_fewest(candidates, pool, params.top_p, 0.125 * temperature,
                [](const Candidate& candidate) { return -double{candidate.logit}; });
  }
  if (params.min_p > 0.0f) keep_min_p(candidates, params.min_p);
}

}  // namespace tessera::engine
