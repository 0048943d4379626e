// Sampling and log-probabilities: a cluster of blocks for each row of logits.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/launch.h"
#include "kernels/sampling/launch.h"
#include "kernels/sampling/select.cuh"
#include "kernels/with_constant.h"
#include "tessera/core/device.h"

namespace tessera::kernels {

template <class T>
__device__ T setting(const T* values, int64_t row, T otherwise) {
  return values != nullptr ? values[row] : otherwise;
}

// What the first pass over a row finds.
template <int kTops>
struct RowTop {
  uint64_t best;         // key of the largest logit; ~0: the row is broken
  uint32_t tops[kTops];  // as RowTeam::select_best takes them
};

inline constexpr uint64_t kBrokenKey = ~uint64_t{0};  // above the key of every number

template <class Team>
__device__ RowTop<Team::kTops> find_top(Team& team, const float* row, bool is_broken) {
  RowTop<Team::kTops> top;
  uint64_t best = 0;
  TESSERA_UNROLL
  for (int i = 0; i < Team::kTops; ++i) {
    float value = -__builtin_huge_valf();
    int where = -1;
    const int first = team.begin + i * team.quarter();
    team.walk(row, first, min(first + team.quarter(), team.end), [&](float x, int token) {
      is_broken = is_broken || !(x < __builtin_huge_valf());
      if (x > value || where < 0) {
        value = x;
        where = token;
      }
    });
    top.tops[i] = where >= 0 ? sampling::order_of(value) : 0;
    if (where >= 0) best = max(best, sampling::key_of(value, where));
  }
  top.best = team.largest(is_broken ? kBrokenKey : best);
  return top;
}

// This block's part of a row, with biases and penalties, in p.adjusted; the row itself where it has
// none. Says whether the row is broken, which adjustment may hide.
template <class Team>
__device__ const float* adjust(const Team& team, const SampleParams& p, int64_t row,
                               bool& is_broken) {
  const float* logits = p.logits + row * p.logits_stride;
  const sampling::Penalties penalties{setting(p.repetition, row, 1.0f),
                                      setting(p.presence, row, 0.0f),
                                      setting(p.frequency, row, 0.0f)};
  const int slot = p.counts != nullptr ? p.slots[row] : -1;
  const bool is_penalised = slot >= 0 && penalties.any();
  const int first_bias = p.bias_starts != nullptr ? p.bias_starts[row] : 0;
  const int last_bias = p.bias_starts != nullptr ? p.bias_starts[row + 1] : 0;
  if (!is_penalised && first_bias >= last_bias) return logits;
  float* copy = p.adjusted + row * p.adjusted_stride;
  for (int token = team.begin + team.thread(); token < team.end; token += Team::kThreads) {
    const float x = logits[token];
    is_broken = is_broken || !(x < __builtin_huge_valf());
    copy[token] = x;
  }
  __syncthreads();
  for (int i = first_bias + team.thread(); i < last_bias; i += Team::kThreads) {
    const int token = p.bias_tokens[i];
    if (token < team.begin || token >= team.end) continue;
    const float x = copy[token], bias = p.bias_values[i];
    copy[token] =
        bias > -__builtin_huge_valf() ? sampling::adjusted(x, double{x} + double{bias}) : bias;
  }
  __syncthreads();
  if (is_penalised) {
    const int32_t* counts = p.counts + slot * p.counts_stride;
    for (int token = team.begin + team.thread(); token < team.end; token += Team::kThreads) {
      const int count = counts[token];
      if (count != 0) copy[token] = penalties.apply(copy[token], count);
    }
    __syncthreads();
  }
  return copy;
}

// The settings that truncate, and what they need of the row.
struct Truncation {
  float largest;
  float scale;  // log2_scale(temperature)
  int top_k;
  float typical_p;
  float top_p;
  float min_p;

  __device__ uint64_t weight_of(float y) const { return sampling::weight_of(y, &multiply_add); }
  __device__ float y_of(float x) const { return log2_weight(x, largest, scale); }
};

// Draws from the first block's sorted list of `count` keys: the row's best.
template <class Team>
__device__ int draw_from_list(Team& team, const Truncation& t, int count, uint64_t random) {
  auto& list = team.shared.list;
  auto& copy = team.shared.copy;
  constexpr int kThreads = Team::kThreads;
  uint64_t weights = 0;
  for (int i = team.thread(); i < count; i += kThreads) {
    list.weights[i] = t.weight_of(t.y_of(sampling::logit_of(list.keys[i])));
    weights += list.weights[i];
  }
  uint64_t total;
  if (t.typical_p < 1.0f) {
    int64_t coarse = 0, sum = 0;
    for (int i = team.thread(); i < count; i += kThreads) {
      const float y = t.y_of(sampling::logit_of(list.keys[i]));
      if (list.weights[i] == 0) continue;
      coarse += sampling::coarse_weight(list.weights[i]);
      sum += sampling::coarse_weight(list.weights[i]) * sampling::surprise_of(y);
    }
    uint64_t all_coarse, all_sum;
    team.sum_before(static_cast<uint64_t>(coarse), all_coarse);
    team.sum_before(static_cast<uint64_t>(sum), all_sum);
    team.sum_before(weights, total);
    const int64_t mean = static_cast<int64_t>(all_sum) / static_cast<int64_t>(all_coarse);
    const auto key_of = [&](int i) {
      const float y = t.y_of(sampling::logit_of(list.keys[i]));
      return sampling::typical_key(list.weights[i] > 0 ? sampling::surprise_of(y) : 0, mean,
                                   sampling::token_of(list.keys[i]));
    };
    for (int i = team.thread(); i < count; i += kThreads) {
      copy.keys[i] = list.weights[i] > 0 ? key_of(i) : 0;
      copy.weights[i] = list.weights[i];
    }
    team.sort(copy, count);
    const uint64_t target = sampling::share_of(total, t.typical_p);
    const uint64_t cut = copy.keys[team.find(copy.weights, count, 0, target)];
    weights = 0;
    for (int i = team.thread(); i < count; i += kThreads) {
      if (list.weights[i] > 0 && key_of(i) < cut) list.weights[i] = 0;
      weights += list.weights[i];
    }
  }
  __syncthreads();
  if (t.top_p < 1.0f) {
    team.sum_before(weights, total);
    const int last = team.find(list.weights, count, 0, sampling::share_of(total, t.top_p));
    weights = 0;
    for (int i = team.thread(); i < count; i += kThreads) {
      if (i > last) list.weights[i] = 0;
      weights += list.weights[i];
    }
    __syncthreads();
  }
  if (t.min_p > 0.0f) {
    uint64_t best = 0;
    for (int i = team.thread(); i < count; i += kThreads) best = max(best, list.weights[i]);
    best = warp_largest(best);
    if (team.thread() % 32 == 0) team.shared.warp_words[team.thread() / 32] = best;
    __syncthreads();
    for (int i = 0; i < kThreads / 32; ++i) best = max(best, team.shared.warp_words[i]);
    const uint64_t least = sampling::share_of(best, t.min_p);
    weights = 0;
    for (int i = team.thread(); i < count; i += kThreads) {
      if (list.weights[i] < least) list.weights[i] = 0;
      weights += list.weights[i];
    }
    __syncthreads();
  }
  // In order of token: ~token is the low half of a key.
  for (int i = team.thread(); i < count; i += kThreads) {
    copy.keys[i] = list.keys[i] & 0xffffffffu;
    copy.weights[i] = list.weights[i];
  }
  team.sum_before(weights, total);
  team.sort(copy, count);
  const uint64_t skipped = __umul64hi(random, total);
  return sampling::token_of(copy.keys[team.find(copy.weights, count, 0, skipped + 1)]);
}

// Draws from the whole row. Settings that keep everything cost no pass.
template <class Team>
__device__ int draw_from_row(Team& team, const float* row, const Truncation& t, int vocab,
                             uint64_t random) {
  uint64_t least_key = 1, least_typical = 0, least_weight = 1;
  int64_t mean = 0;
  // Half a unit of temperature a bin: 32 bins reach e^-16 of the largest weight.
  const float width = 0.72134752f / t.scale;
  if (t.top_k > 0 && t.top_k < vocab) {
    const auto element = [&](float x, int token, uint64_t& key, uint64_t& weight) {
      key = x > -__builtin_huge_valf() ? sampling::key_of(x, token) : 0;
      weight = 1;
    };
    const auto target = [&](uint64_t count) { return min(count, static_cast<uint64_t>(t.top_k)); };
    least_key = team.find_cut(row, t.largest, width, 1, element, target);
  }
  if (t.typical_p < 1.0f) {
    int64_t coarse = 0, sum = 0;
    team.walk(row, team.begin, team.end, [&](float x, int token) {
      const float y = t.y_of(x);
      const uint64_t weight = t.weight_of(y);
      if (weight == 0 || sampling::key_of(x, token) < least_key) return;
      coarse += sampling::coarse_weight(weight);
      sum += sampling::coarse_weight(weight) * sampling::surprise_of(y);
    });
    const auto all_coarse = static_cast<int64_t>(team.sum(static_cast<uint64_t>(coarse)));
    const auto all_sum = static_cast<int64_t>(team.sum(static_cast<uint64_t>(sum)));
    mean = all_sum / all_coarse;
    const auto element = [&](float x, int token, uint64_t& key, uint64_t& weight) {
      const float y = t.y_of(x);
      weight = t.weight_of(y);
      const bool is_kept = weight > 0 && sampling::key_of(x, token) >= least_key;
      key = is_kept ? sampling::typical_key(sampling::surprise_of(y), mean, token) : 0;
    };
    const auto target = [&](uint64_t sum_of) { return sampling::share_of(sum_of, t.typical_p); };
    const uint64_t farthest = uint64_t{0xff000000u} << 32;  // distances are below 2^24
    least_typical = team.find_cut(row, t.largest, 0.0f, farthest, element, target);
  }
  // The weight, or 0 for what has been dropped so far.
  const auto kept_weight = [&](float x, int token) {
    const float y = t.y_of(x);
    const uint64_t weight = t.weight_of(y);
    bool is_kept = weight >= least_weight && sampling::key_of(x, token) >= least_key;
    if (least_typical > 0) {
      is_kept = is_kept && weight > 0 &&
                sampling::typical_key(sampling::surprise_of(y), mean, token) >= least_typical;
    }
    return is_kept ? weight : 0;
  };
  if (t.top_p < 1.0f) {
    const auto element = [&](float x, int token, uint64_t& key, uint64_t& weight) {
      weight = kept_weight(x, token);
      key = weight > 0 ? sampling::key_of(x, token) : 0;
    };
    const auto target = [&](uint64_t sum) { return sampling::share_of(sum, t.top_p); };
    least_key = team.find_cut(row, t.largest, width, 1, element, target);
  }
  if (t.min_p > 0.0f) {
    uint64_t best = sampling::kOne;
    if (least_typical > 0) {  // the row's largest may be gone
      best = 0;
      team.walk(row, team.begin, team.end,
                [&](float x, int token) { best = max(best, kept_weight(x, token)); });
      best = team.largest(best);
    }
    least_weight = sampling::share_of(best, t.min_p);
  }

  // Sums of chunks lead to the one that holds the token. A warp takes a chunk at a time.
  uint64_t* chunks = team.shared.chunks;
  const int num_chunks = (vocab + kSampleChunk - 1) / kSampleChunk;
  const int first_chunk = team.begin / kSampleChunk;
  const int last_chunk = (team.end + kSampleChunk - 1) / kSampleChunk;
  const int lane = team.thread() % 32;
  __syncthreads();
  for (int chunk = first_chunk + team.thread() / 32; chunk < last_chunk;
       chunk += Team::kThreads / 32) {
    uint64_t sum = 0;
    const int last = min((chunk + 1) * kSampleChunk, vocab);
    team.walk_warp(row, chunk * kSampleChunk, last,
                   [&](float x, int token) { sum += kept_weight(x, token); });
    sum = warp_sum(sum);
    if (lane == 0) store_part(typename Team::Tag{}, &chunks[chunk], 0, sum);
  }
  meet(typename Team::Tag{});
  if (team.rank != 0) return 0;
  uint64_t mine = 0, total;
  for (int i = team.thread(); i < num_chunks; i += Team::kThreads) mine += chunks[i];
  team.sum_before(mine, total);
  const uint64_t skipped = __umul64hi(random, total);
  const int chunk = team.find(chunks, num_chunks, 0, skipped + 1);
  mine = 0;
  for (int i = team.thread(); i < chunk; i += Team::kThreads) mine += chunks[i];
  uint64_t before;
  team.sum_before(mine, before);
  // Two tokens of the chunk for each thread, in order.
  auto& list = team.shared.list;
  const int first = chunk * kSampleChunk, count = min(kSampleChunk, vocab - first);
  for (int i = team.thread(); i < count; i += Team::kThreads) {
    list.weights[i] = kept_weight(row[first + i], first + i);
  }
  __syncthreads();
  return first + team.find(list.weights, count, before, skipped + 1);
}

// One token for each row of logits.
//
//   tokens[row] ~ truncate(softmax(adjust(logits[row]) / temperature))
//
// Work      p.num_parts blocks a row, a cluster, each with its own run of the vocabulary. Weights
//           are integers (core/sampling_math.h): sums are exact, so the token is the CPU's.
// Pipeline  One pass finds the largest logit and each thread's own best. With top_k up to 256 the
//           rest happens in a list of candidates: only threads that hold one of the best read their
//           logits again. Otherwise cuts are found by bins, 32 a pass, in shared memory of the
//           thread's own: no atomics, nothing is sorted but a short list at the end.
// Output    The token, and one more in its count.
// Cost      4 bytes a logit: 33.5 MB for 64 rows of 128,256, 7.2 us at 4.6 TB/s; passes after the
//           first come from the L2 cache. docs/kernels/sampling.md
// Needs     vocab up to 2^20; num_parts 1 but on sm_90.
template <class Arch, bool kIsVectorized>
__global__ void __launch_bounds__(select_tile(Arch{}).num_threads, 1)
    sample_kernel(const __grid_constant__ SampleParams p) {
  using Team = RowTeam<Arch, kIsVectorized>;
  extern __shared__ __align__(16) unsigned char memory[];
  Team team(*reinterpret_cast<typename Team::Shared*>(memory), p.vocab, p.num_parts);
  const int64_t row = static_cast<int64_t>(blockIdx.x) / p.num_parts;
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});

  bool is_broken = false;
  const float* logits = adjust(team, p, row, is_broken);
  const auto top = find_top(team, logits, is_broken);
  const float temperature = setting(p.temperature, row, 1.0f);
  const float largest = sampling::logit_of(top.best);
  int token = sampling::token_of(top.best);
  if (top.best == kBrokenKey) {
    token = sampling::kBrokenLogits;
  } else if (largest == -__builtin_huge_valf()) {
    token = sampling::kNothingLeft;
  } else if (temperature != 0.0f) {
    const Truncation truncation{largest,
                                sampling::log2_scale(temperature),
                                setting(p.top_k, row, 0),
                                setting(p.typical_p, row, 1.0f),
                                setting(p.top_p, row, 1.0f),
                                setting(p.min_p, row, 0.0f)};
    const uint64_t random =
        sampling::random_bits(static_cast<uint64_t>(setting(p.seeds, row, int64_t{0})),
                              setting(p.sequences, row, 0), setting(p.positions, row, 0));
    int count = -1;
    if (truncation.top_k > 0 && truncation.top_k <= Team::kMostBest) {
      count = team.select_best(logits, top.tops, truncation.top_k);
    }
    if (count > 0) {
      if (team.rank != 0) return;
      token = draw_from_list(team, truncation, count, random);
    } else {
      token = draw_from_row(team, logits, truncation, p.vocab, random);
    }
  }
  if (team.rank != 0 || threadIdx.x != 0) return;
  p.tokens[row] = token;
  if (p.counts == nullptr || token < 0) return;
  const int slot = p.slots[row];
  if (slot >= 0) ++p.counts[slot * p.counts_stride + token];
}

// Log-probabilities of given tokens, and of the most probable ones.
//
//   logprobs[row] = logits[row, tokens[row]] - log(sum(exp(logits[row])))
//
// Work      As sample_kernel.
// Pipeline  One pass for the largest and each thread's own best, one for the sum of the weights;
//           the best come from a list of candidates.
// Output    The sum is a whole number, so a row's figures do not depend on the split.
// Cost      Two passes over the logits, the second from the L2 cache. docs/kernels/sampling.md
// Needs     vocab up to 2^20; num_top up to 256; num_parts 1 but on sm_90.
template <class Arch, bool kIsVectorized>
__global__ void __launch_bounds__(select_tile(Arch{}).num_threads, 1)
    token_logprobs_kernel(const __grid_constant__ TokenLogprobsParams p) {
  using Team = RowTeam<Arch, kIsVectorized>;
  extern __shared__ __align__(16) unsigned char memory[];
  Team team(*reinterpret_cast<typename Team::Shared*>(memory), p.vocab, p.num_parts);
  const int64_t row = static_cast<int64_t>(blockIdx.x) / p.num_parts;
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});

  const float* logits = p.logits + row * p.logits_stride;
  const auto top = find_top(team, logits, false);
  const float largest = sampling::logit_of(top.best);
  const bool is_sound = top.best != kBrokenKey && largest > -__builtin_huge_valf();
  double lse = 0;
  int count = 0;
  if (is_sound) {
    const float scale = sampling::log2_scale(1.0f);
    uint64_t sum = 0;
    team.walk(logits, team.begin, team.end, [&](float x, int) {
      sum += sampling::weight_of(log2_weight(x, largest, scale), &multiply_add);
    });
    sum = team.sum(sum);
    lse = double{largest} + log(static_cast<double>(sum) / static_cast<double>(sampling::kOne));
    if (p.num_top > 0) count = team.select_best(logits, top.tops, p.num_top);
    if (count < 0) count = team.select_by_cut(logits, largest, p.num_top);
  }
  if (team.rank != 0) return;
  const float nan = __int_as_float(0x7fffffff);
  for (int i = team.thread(); i < p.num_top; i += Team::kThreads) {
    const uint64_t key = i < count ? team.shared.list.keys[i] : 0;
    const int64_t at = row * p.num_top + i;
    p.top_tokens[at] = i < count ? sampling::token_of(key) : -1;
    p.top_logprobs[at] =
        i < count ? static_cast<float>(double{sampling::logit_of(key)} - lse) : nan;
  }
  if (team.thread() != 0) return;
  const int token = p.tokens[row];
  const bool has_token = is_sound && token >= 0 && token < p.vocab;
  p.logprobs[row] = has_token ? static_cast<float>(double{logits[token]} - lse) : nan;
}

template <class T>
T* data_of(const std::optional<TensorView>& view) {
  return view ? static_cast<T*>(view->data) : nullptr;
}

inline bool is_row_vectorized(const TensorView& rows) {
  const bool is_aligned = reinterpret_cast<uintptr_t>(rows.data) % 16 == 0;
  return is_aligned && rows.size(1) % 4 == 0 && (rows.size(0) <= 1 || rows.stride(0) % 4 == 0);
}

template <class Arch>
LaunchShape sample_shape(const TensorView& logits, int num_parts) {
  using Shared = typename RowTeam<Arch, true>::Shared;
  return {.grid = dim3(static_cast<unsigned>(logits.size(0) * num_parts)),
          .block = dim3(static_cast<unsigned>(select_tile(Arch{}).num_threads)),
          .shared_bytes = sizeof(Shared),
          .cluster = static_cast<unsigned>(num_parts),
          .overlaps_previous = kOverlaps<Arch>};
}

template <class Arch>
int sample_parts(const TensorView& logits) {
  if (Arch::library != Library::sm90) return 1;
  return choose_sample_parts(logits.size(0), static_cast<int>(logits.size(1)),
                             device_info(logits.device).num_sms);
}

template <class Arch>
void launch_sample(const SampleArgs& args, const Context& ctx) {
  if (args.logits.size(0) == 0) return;
  const int num_parts = sample_parts<Arch>(args.logits);
  const SampleParams p{.logits = static_cast<const float*>(args.logits.data),
                       .tokens = static_cast<int32_t*>(args.tokens.data),
                       .temperature = data_of<const float>(args.temperature),
                       .top_k = data_of<const int32_t>(args.top_k),
                       .typical_p = data_of<const float>(args.typical_p),
                       .top_p = data_of<const float>(args.top_p),
                       .min_p = data_of<const float>(args.min_p),
                       .seeds = data_of<const int64_t>(args.seeds),
                       .sequences = data_of<const int32_t>(args.sequences),
                       .positions = data_of<const int32_t>(args.positions),
                       .bias_starts = data_of<const int32_t>(args.bias_starts),
                       .bias_tokens = data_of<const int32_t>(args.bias_tokens),
                       .bias_values = data_of<const float>(args.bias_values),
                       .counts = data_of<int32_t>(args.counts),
                       .slots = data_of<const int32_t>(args.slots),
                       .repetition = data_of<const float>(args.repetition),
                       .presence = data_of<const float>(args.presence),
                       .frequency = data_of<const float>(args.frequency),
                       .adjusted = data_of<float>(args.adjusted),
                       .logits_stride = args.logits.stride(0),
                       .counts_stride = args.counts ? args.counts->stride(0) : 0,
                       .adjusted_stride = args.adjusted ? args.adjusted->stride(0) : 0,
                       .vocab = static_cast<int>(args.logits.size(1)),
                       .num_parts = num_parts,
                       .is_vectorized = is_row_vectorized(args.logits) &&
                                        (!args.adjusted || is_row_vectorized(*args.adjusted))};
  with_constant<true, false>(p.is_vectorized, [&](auto is_vectorized) {
    launch(&sample_kernel<Arch, is_vectorized()>, sample_shape<Arch>(args.logits, num_parts), p,
           ctx);
  });
}

template <class Arch>
void launch_token_logprobs(const TokenLogprobsArgs& args, const Context& ctx) {
  if (args.logits.size(0) == 0) return;
  const int num_parts = sample_parts<Arch>(args.logits);
  const TokenLogprobsParams p{
      .logits = static_cast<const float*>(args.logits.data),
      .tokens = static_cast<const int32_t*>(args.tokens.data),
      .logprobs = static_cast<float*>(args.logprobs.data),
      .top_tokens = data_of<int32_t>(args.top_tokens),
      .top_logprobs = data_of<float>(args.top_logprobs),
      .logits_stride = args.logits.stride(0),
      .vocab = static_cast<int>(args.logits.size(1)),
      .num_top = args.top_tokens ? static_cast<int>(args.top_tokens->size(1)) : 0,
      .num_parts = num_parts,
      .is_vectorized = is_row_vectorized(args.logits)};
  with_constant<true, false>(p.is_vectorized, [&](auto is_vectorized) {
    launch(&token_logprobs_kernel<Arch, is_vectorized()>,
           sample_shape<Arch>(args.logits, num_parts), p, ctx);
  });
}

}  // namespace tessera::kernels
