// Sampling on the CPU. Rows are never sorted: cuts are found by selection.
// SPDX-License-Identifier: MIT
#include "cpu/sample.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "core/parallel.h"
#include "core/sampling_math.h"
#include "cpu/sample_weights.h"

namespace tessera::cpu {
namespace {

using namespace sampling;

constexpr float kNever = -std::numeric_limits<float>::infinity();

struct Candidate {
  uint64_t key;  // key_of(logit, token)
  uint64_t weight;
  float y;  // log2(weight / kOne)
};

// Working memory of one thread, kept from row to row.
struct Scratch {
  std::vector<float> edited;
  std::vector<float> y;
  std::vector<uint64_t> weights;
  std::vector<uint64_t> keys;
  std::vector<Candidate> candidates;
  std::vector<Candidate> pool;
};

Scratch& thread_scratch() {
  thread_local Scratch scratch;
  return scratch;
}

template <class T>
T setting(const std::optional<TensorView>& values, int64_t row, T otherwise) {
  return values ? static_cast<const T*>(values->data)[row] : otherwise;
}

std::span<const float> row_of(const TensorView& logits, int64_t row) {
  return {static_cast<const float*>(logits.data) + row * logits.stride(0),
          static_cast<size_t>(logits.size(1))};
}

// Independent lanes, so that the compiler makes vector maxima of it.
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

bool is_broken(std::span<const float> logits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  int num_broken = 0;
  for (const float logit : logits) num_broken |= logit < kInfinity ? 0 : 1;  // NaN is not less
  return num_broken != 0;
}

// A row's list of tokens seen before.
struct Seen {
  int32_t* tokens = nullptr;  // [capacity]
  int32_t* counts = nullptr;  // [capacity]
  int32_t* count = nullptr;   // how many entries there are; null: the row has no list
  int64_t capacity = 0;

  int64_t size() const { return count == nullptr ? 0 : std::clamp<int64_t>(*count, 0, capacity); }
};

Seen seen_of(const SampleArgs& args, int64_t row) {
  if (!args.slots) return {};
  const int64_t slot = setting(args.slots, row, -1);
  if (slot < 0 || slot >= args.num_seen->num_elements()) return {};
  return {static_cast<int32_t*>(args.seen_tokens->data) + slot * args.seen_tokens->stride(0),
          static_cast<int32_t*>(args.seen_counts->data) + slot * args.seen_counts->stride(0),
          static_cast<int32_t*>(args.num_seen->data) + slot, args.seen_tokens->size(1)};
}

// The biases of a row: entries `first` to `last`.
struct Biases {
  int64_t first = 0;
  int64_t last = 0;
};

Biases biases_of(const SampleArgs& args, int64_t row) {
  if (!args.bias_starts) return {};
  const auto* starts = static_cast<const int32_t*>(args.bias_starts->data);
  return {std::max(starts[row], 0),
          std::min<int64_t>(starts[row + 1], args.bias_tokens->num_elements())};
}

void add_biases(const SampleArgs& args, const Biases& biases, std::span<float> logits) {
  for (int64_t i = biases.first; i < biases.last; ++i) {
    const int64_t token = static_cast<const int32_t*>(args.bias_tokens->data)[i];
    if (token < 0 || token >= std::ssize(logits)) continue;
    float& logit = logits[static_cast<size_t>(token)];
    logit = biased(logit, static_cast<const float*>(args.bias_values->data)[i]);
  }
}

// The row with biases and penalties, in `copy`; the row itself if there are none.
std::span<const float> edit(const SampleArgs& args, int64_t row, std::span<const float> logits,
                            const Seen& seen, std::vector<float>& copy) {
  const Penalties penalties{setting(args.repetition, row, 1.0f), setting(args.presence, row, 0.0f),
                            setting(args.frequency, row, 0.0f)};
  const int64_t num_penalised = penalties.any() ? seen.size() : 0;
  const Biases biases = biases_of(args, row);
  if (num_penalised == 0 && biases.first >= biases.last) return logits;
  copy.assign(logits.begin(), logits.end());
  add_biases(args, biases, copy);
  for (int64_t i = 0; i < num_penalised; ++i) {
    const int64_t token = seen.tokens[i];
    if (token < 0 || token >= std::ssize(logits)) continue;
    float& logit = copy[static_cast<size_t>(token)];
    logit = penalties.apply(logit, seen.counts[i]);
  }
  return copy;
}

// The row without the tokens outside its mask, in `copy`; the row itself if it has no mask.
std::span<const float> masked(const SampleArgs& args, int64_t row, std::span<const float> logits,
                              std::vector<float>& copy) {
  const int64_t index = args.masks ? setting(args.mask_rows, row, -1) : -1;
  if (index < 0 || index >= args.masks->size(0)) return logits;
  const auto* mask = static_cast<const uint32_t*>(args.masks->data) + index * args.masks->stride(0);
  if (logits.data() != copy.data()) copy.assign(logits.begin(), logits.end());
  for (size_t i = 0; i < copy.size(); ++i) {
    const uint32_t word = mask[i / 32];
    if (i % 32 == 0 && word == ~uint32_t{0}) {
      i += 31;  // most words are all or nothing
    } else if ((word >> (i % 32) & 1u) == 0) {
      copy[i] = kNever;
    }
  }
  return copy;
}

// Keys of the `count` largest logits above -infinity, the first of equals, in no order. One pass,
// which keeps the best of 2 * count at a time.
void select_best(std::span<const float> logits, int64_t count, std::vector<uint64_t>& best) {
  best.clear();
  const auto num_best = static_cast<size_t>(count);
  const size_t capacity = 2 * num_best + 64;
  const auto keep_best = [&] {
    std::nth_element(best.begin(), best.begin() + (count - 1), best.end(), std::greater<>());
    best.resize(num_best);
  };
  // A later token must beat the worst of the best: an equal one comes after it.
  float worst = kNever;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > worst)) [[likely]]
      continue;
    best.push_back(key_of(logits[i], static_cast<int32_t>(i)));
    if (best.size() < capacity) continue;
    keep_best();
    worst = logit_of(best.back());
  }
  if (best.size() > num_best) keep_best();
}

void weigh(std::span<const float> logits, float largest, float scale, Scratch& scratch) {
  if (scratch.y.size() < logits.size()) {
    scratch.y.resize(logits.size());
    scratch.weights.resize(logits.size());
  }
  static const auto weights = sample_weights_builds().best();
  weights({logits.data(), std::ssize(logits), largest, scale, scratch.y.data(),
           scratch.weights.data()});
}

// The candidates with a weight, after top_k.
void select(std::span<const float> logits, float largest, float scale, int32_t top_k,
            Scratch& scratch) {
  std::vector<Candidate>& candidates = scratch.candidates;
  candidates.clear();
  if (top_k > 0 && top_k < std::ssize(logits)) {
    select_best(logits, top_k, scratch.keys);
    for (const uint64_t key : scratch.keys) {
      const float y = (logit_of(key) - largest) * scale;
      const uint64_t weight = weight_of(y, SampleMath());
      if (weight > 0) candidates.push_back({key, weight, y});
    }
    return;
  }
  weigh(logits, largest, scale, scratch);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (scratch.weights[i] == 0) continue;
    candidates.push_back(
        {key_of(logits[i], static_cast<int32_t>(i)), scratch.weights[i], scratch.y[i]});
  }
}

uint64_t total_of(const std::vector<Candidate>& candidates) {
  uint64_t total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  return total;
}

// The key at which weights, added to `reached` from the largest key down, come to `target`: halves
// are set aside until a few are left to sort. `pool` holds keys in place of `key`.
uint64_t find_cut(std::vector<Candidate>& pool, uint64_t reached, uint64_t target) {
  const auto comes_before = [](const Candidate& a, const Candidate& b) { return a.key > b.key; };
  auto first = pool.begin();
  auto last = pool.end();
  while (last - first > 16) {
    const auto middle = first + (last - first) / 2;
    std::nth_element(first, middle, last, comes_before);
    uint64_t with_half = reached;
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
  return first->key;
}

// Keeps the fewest candidates, largest key first, whose weights add up to `share` of all. Weights
// are gathered in buckets of keys: only the bucket in which the share is reached is looked into.
// `bucket_of` never falls where keys do not rise.
template <class Key, class Bucket>
void keep_fewest(Scratch& scratch, float share, const Key& key, const Bucket& bucket_of) {
  constexpr size_t kBuckets = 512;
  std::vector<Candidate>& candidates = scratch.candidates;
  std::array<uint64_t, kBuckets> weights = {};
  const auto bucket_in = [&](const Candidate& c) {
    return std::min<size_t>(static_cast<size_t>(bucket_of(c)), kBuckets - 1);
  };
  for (const Candidate& candidate : candidates) weights[bucket_in(candidate)] += candidate.weight;
  const uint64_t total = std::accumulate(weights.begin(), weights.end(), uint64_t{0});
  const uint64_t target = share_of(total, share);
  uint64_t reached = 0;
  size_t bucket = 0;
  while (bucket + 1 < kBuckets && reached + weights[bucket] < target) reached += weights[bucket++];
  scratch.pool.clear();
  for (const Candidate& candidate : candidates) {
    if (bucket_in(candidate) != bucket) continue;
    scratch.pool.push_back({key(candidate), candidate.weight, candidate.y});
  }
  const uint64_t cut = find_cut(scratch.pool, reached, target);
  std::erase_if(candidates, [&](const Candidate& c) { return key(c) < cut; });
}

void keep_typical(Scratch& scratch, float share) {
  int64_t total = 0;
  int64_t sum = 0;
  for (const Candidate& candidate : scratch.candidates) {
    total += coarse_weight(candidate.weight);
    sum += coarse_weight(candidate.weight) * surprise_of(candidate.y);
  }
  const int64_t mean = sum / total;
  const auto key = [&](const Candidate& c) {
    return typical_key(surprise_of(c.y), mean, token_of(c.key));
  };
  keep_fewest(scratch, share, key,
              [&](const Candidate& c) { return static_cast<uint32_t>(~(key(c) >> 32)) >> 15; });
}

void keep_top_p(Scratch& scratch, float share) {
  keep_fewest(
      scratch, share, [](const Candidate& c) { return c.key; },
      [](const Candidate& c) { return -8.0f * c.y; });
}

void keep_min_p(std::vector<Candidate>& candidates, float min_p) {
  const uint64_t best = std::ranges::max(candidates, {}, &Candidate::weight).weight;
  const uint64_t least = share_of(best, min_p);
  std::erase_if(candidates, [&](const Candidate& c) { return c.weight < least; });
}

// The first token, in order of token, at which the sum of the weights passes a random share.
int32_t draw(std::vector<Candidate>& candidates, uint64_t random) {
  __extension__ using Wide = unsigned __int128;
  const auto skipped = static_cast<uint64_t>(Wide{random} * total_of(candidates) >> 64);
  std::ranges::sort(candidates, {}, [](const Candidate& c) { return token_of(c.key); });
  uint64_t reached = 0;
  for (const Candidate& candidate : candidates) {
    reached += candidate.weight;
    if (reached > skipped) return token_of(candidate.key);
  }
  return token_of(candidates.back().key);
}

int32_t sample_row(const SampleArgs& args, int64_t row, const Seen& seen, Scratch& scratch) {
  const std::span<const float> raw = row_of(args.logits, row);
  if (is_broken(raw)) return kSampleBroken;
  const std::span<const float> edited = edit(args, row, raw, seen, scratch.edited);
  const std::span<const float> logits = masked(args, row, edited, scratch.edited);
  const float largest = largest_of(logits);
  if (largest == kNever) return kSampleNothing;
  const float temperature = setting(args.temperature, row, 1.0f);
  if (!(temperature > 0.0f)) {
    return static_cast<int32_t>(std::ranges::find(logits, largest) - logits.begin());
  }
  select(logits, largest, log2_scale(temperature), setting(args.top_k, row, 0), scratch);
  const float typical_p = setting(args.typical_p, row, 1.0f);
  const float top_p = setting(args.top_p, row, 1.0f);
  const float min_p = setting(args.min_p, row, 0.0f);
  if (!(typical_p >= 1.0f)) keep_typical(scratch, typical_p);
  if (!(top_p >= 1.0f)) keep_top_p(scratch, top_p);
  if (min_p > 0.0f) keep_min_p(scratch.candidates, min_p);
  const uint64_t random =
      random_bits(static_cast<uint64_t>(setting(args.seeds, row, int64_t{0})),
                  setting(args.sequences, row, 0), setting(args.positions, row, 0));
  return draw(scratch.candidates, random);
}

// One more occurrence of a token that was drawn.
void count(const Seen& seen, int32_t token) {
  if (seen.count == nullptr || token < 0) return;
  const int64_t size = seen.size();
  const int64_t at = std::find(seen.tokens, seen.tokens + size, token) - seen.tokens;
  if (at < size) {
    ++seen.counts[at];
  } else if (size < seen.capacity) {
    seen.tokens[size] = token;
    seen.counts[size] = 1;
    *seen.count = static_cast<int32_t>(size + 1);
  }
}

// log(sum(exp(logit - largest))) of a row.
double log_sum(std::span<const float> logits, float largest, Scratch& scratch) {
  weigh(logits, largest, log2_scale(1.0f), scratch);
  uint64_t total = 0;
  for (size_t i = 0; i < logits.size(); ++i) total += scratch.weights[i];
  return std::log(static_cast<double>(total) / static_cast<double>(kOne));
}

void logprobs_row(const TokenLogprobsArgs& args, int64_t row, Scratch& scratch) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::span<const float> logits = row_of(args.logits, row);
  const int32_t token = static_cast<const int32_t*>(args.tokens.data)[row];
  float& logprob = static_cast<float*>(args.logprobs.data)[row];
  const int64_t count = args.top_tokens ? args.top_tokens->size(1) : 0;
  auto* top_tokens =
      count > 0 ? static_cast<int32_t*>(args.top_tokens->data) + row * count : nullptr;
  auto* top_logprobs =
      count > 0 ? static_cast<float*>(args.top_logprobs->data) + row * count : nullptr;
  std::fill_n(top_tokens, count, -1);
  std::fill_n(top_logprobs, count, kNan);
  logprob = kNan;
  if (is_broken(logits)) return;
  const float largest = largest_of(logits);
  if (largest == kNever) return;
  const double lse = double{largest} + log_sum(logits, largest, scratch);
  const auto at = [&](float logit) { return static_cast<float>(double{logit} - lse); };
  if (token >= 0 && token < std::ssize(logits)) logprob = at(logits[static_cast<size_t>(token)]);
  if (count == 0) return;
  select_best(logits, count, scratch.keys);
  std::ranges::sort(scratch.keys, std::greater<>());
  for (size_t i = 0; i < scratch.keys.size(); ++i) {
    top_tokens[i] = token_of(scratch.keys[i]);
    top_logprobs[i] = at(logit_of(scratch.keys[i]));
  }
}

}  // namespace

void sample(const SampleArgs& args) {
  parallel_for(args.logits.size(0), args.logits.size(1), [&](int64_t row) {
    const Seen seen = seen_of(args, row);
    const int32_t token = sample_row(args, row, seen, thread_scratch());
    static_cast<int32_t*>(args.tokens.data)[row] = token;
    count(seen, token);
  });
}

void token_logprobs(const TokenLogprobsArgs& args) {
  parallel_for(args.logits.size(0), args.logits.size(1),
               [&](int64_t row) { logprobs_row(args, row, thread_scratch()); });
}

}  // namespace tessera::cpu
