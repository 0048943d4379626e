// One token for each row of logits.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/sampling/select.cuh"
#include "kernels/stream_scratch.h"
#include "kernels/with_constant.h"

namespace tessera::kernels {

template <class T>
__device__ T setting(const T* values, int64_t row, T otherwise) {
  return values != nullptr ? values[row] : otherwise;
}

// The tokens of a row whose logits are edited, and where their old values are kept.
struct RowEdits {
  float* logits;
  const int32_t* bias_tokens;
  const float* bias_values;
  float* saved_biased;
  int num_biases;

  sampling::Penalties penalties;
  int32_t* seen_tokens;
  int32_t* seen_counts;
  float* saved_seen;
  int32_t* num_seen;  // null: the row has no list
  int seen_size;
  int num_penalised;

  __device__ RowEdits(const SampleParams& p, int64_t row)
      : logits(p.logits + row * p.logits_stride),
        penalties{setting(p.repetition, row, 1.0f), setting(p.presence, row, 0.0f),
                  setting(p.frequency, row, 0.0f)} {
    const int first = p.bias_starts != nullptr ? max(p.bias_starts[row], 0) : 0;
    const int last = p.bias_starts != nullptr ? min(p.bias_starts[row + 1], p.num_biases) : 0;
    num_biases = max(last - first, 0);
    bias_tokens = p.bias_tokens + first;
    bias_values = p.bias_values + first;
    saved_biased = p.saved_biased + first;
    const int slot = setting(p.slots, row, -1);
    const bool has_list = slot >= 0 && slot < p.num_slots;
    seen_tokens = p.seen_tokens + slot * p.seen_tokens_stride;
    seen_counts = p.seen_counts + slot * p.seen_counts_stride;
    num_seen = has_list ? p.num_seen + slot : nullptr;
    saved_seen = p.saved_seen + row * p.capacity;
    seen_size = has_list ? min(max(*num_seen, 0), p.capacity) : 0;
    num_penalised = penalties.any() ? seen_size : 0;
  }

  __device__ bool any() const { return num_biases > 0 || num_penalised > 0; }

  // Edits this block's part of the row. Says whether one of the old values is broken, which the
  // new one may hide.
  template <class Team>
  __device__ bool apply(const Team& team) const {
    bool is_broken = false;
    if (!any()) return is_broken;
#pragma unroll 1
    for (int i = team.thread(); i < num_biases; i += Team::kThreads) {
      const int token = bias_tokens[i];
      if (token < team.begin || token >= team.end) continue;
      const float x = logits[token];
      is_broken = is_broken || !(x < __builtin_huge_valf());
      saved_biased[i] = x;
      logits[token] = sampling::biased(x, bias_values[i]);
    }
    __syncthreads();
#pragma unroll 4
    for (int i = team.thread(); i < num_penalised; i += Team::kThreads) {
      const int token = seen_tokens[i];
      if (token < team.begin || token >= team.end) continue;
      const float x = logits[token];
      is_broken = is_broken || !(x < __builtin_huge_valf());
      saved_seen[i] = x;
      logits[token] = penalties.apply(x, seen_counts[i]);
    }
    __syncthreads();
    return is_broken;
  }

  // The reverse, in reverse order: a token may have a bias and a penalty.
  template <class Team>
  __device__ void undo(const Team& team) const {
    if (!any()) return;
#pragma unroll 4
    for (int i = team.thread(); i < num_penalised; i += Team::kThreads) {
      const int token = seen_tokens[i];
      if (token >= team.begin && token < team.end) logits[token] = saved_seen[i];
    }
    __syncthreads();
#pragma unroll 1
    for (int i = team.thread(); i < num_biases; i += Team::kThreads) {
      const int token = bias_tokens[i];
      if (token >= team.begin && token < team.end) logits[token] = saved_biased[i];
    }
  }

  // One more occurrence of a token that was drawn. The threads of one block.
  template <class Team>
  __device__ void count(Team& team, int token, int capacity) const {
    if (num_seen == nullptr || token < 0) return;
    uint64_t place = 0;  // 1 more than the index
    for (int i = team.thread(); i < seen_size; i += Team::kThreads) {
      if (seen_tokens[i] == token) place = static_cast<uint64_t>(i) + 1;
    }
    place = team.block_largest(place);
    if (team.thread() != 0) return;
    if (place > 0) {
      ++seen_counts[place - 1];
    } else if (seen_size < capacity) {
      seen_tokens[seen_size] = token;
      seen_counts[seen_size] = 1;
      *num_seen = seen_size + 1;
    }
  }
};

// The settings of a row, each read when it is needed: registers are short, and the L2 cache is
// near.
struct RowSettings {
  const SampleParams& p;
  int64_t row;

  __device__ float temperature() const { return setting(p.temperature, row, 1.0f); }
  __device__ int top_k() const { return setting(p.top_k, row, 0); }
  __device__ float typical_p() const { return setting(p.typical_p, row, 1.0f); }
  __device__ float top_p() const { return setting(p.top_p, row, 1.0f); }
  __device__ float min_p() const { return setting(p.min_p, row, 0.0f); }
  __device__ uint64_t random() const {
    return sampling::random_bits(static_cast<uint64_t>(setting(p.seeds, row, int64_t{0})),
                                 setting(p.sequences, row, 0), setting(p.positions, row, 0));
  }
};

// Whether a share drops any token; NaN counts as 0.
__device__ inline bool drops(float share) { return !(share >= 1.0f); }

// The tokens that are left, and their weights. kHasTypical: whether typical_p has dropped some.
template <bool kHasTypical>
struct Remaining {
  float largest;
  float scale;                  // log2_scale(temperature)
  float least_logit = kNever;   // below it none is left
  int last_token = 0x7fffffff;  // of those with exactly that logit
  uint64_t least_weight = 1;
  uint64_t least_typical = 0;
  int64_t mean = 0;  // of the surprise

  __device__ float y_of(float x) const { return log2_weight(x, largest, scale); }
  __device__ uint64_t typical_key(float x, int token) const {
    return sampling::typical_key(sampling::surprise_of(y_of(x)), mean, token);
  }
  __device__ void cut_at(uint64_t key) {
    least_logit = sampling::logit_of(key);
    last_token = sampling::token_of(key);
  }
  // 0 for tokens that were dropped.
  __device__ uint64_t weight(float x, int token) const {
    const uint64_t weight = sampling::weight_of(y_of(x), DeviceMath());
    // Not && and ||: they become branches, which cost more than the comparisons.
    bool is_left = (x > least_logit) | ((x == least_logit) & (token <= last_token));
    is_left &= weight >= least_weight;
    if (kHasTypical) is_left &= typical_key(x, token) >= least_typical;
    return is_left ? weight : 0;
  }
};

// Orders of find_cut: by logit, and by the distance of the surprise from its mean.
template <bool kHasTypical>
struct OrderByLogit {
  const Remaining<kHasTypical>& remaining;
  __device__ float distance(float x) const { return remaining.largest - x; }
  __device__ uint64_t weight(float x, int token) const { return remaining.weight(x, token); }
  __device__ uint64_t key(float x, int token) const { return sampling::key_of(x, token); }
};
struct OrderByTypical {
  const Remaining<false>& remaining;
  __device__ float distance(float x) const {  // exact: weights above 0 have a surprise below 2^24
    return static_cast<float>(~static_cast<uint32_t>(remaining.typical_key(x, 0) >> 32));
  }
  __device__ uint64_t weight(float x, int token) const { return remaining.weight(x, token); }
  __device__ uint64_t key(float x, int token) const { return remaining.typical_key(x, token); }
};
inline constexpr float kTypicalWidth = 0x1p17f;  // half a bit

// Draws from `count` candidates in the first block's list, among which the row's best top_k are.
// The threads of that block. Sums over pairs of candidates take the place of sorting.
template <class Team>
__device__ int draw_from_list(Team& team, const RowSettings& s, const Remaining<false>& all,
                              int count) {
  const float typical_p = s.typical_p(), top_p = s.top_p(), min_p = s.min_p();
  const auto top_k = static_cast<uint64_t>(s.top_k());
  const uint64_t random = s.random();
  auto& list = team.shared.list;
  const typename Team::Pairs pairs(count);
  const uint64_t key = pairs.has_candidate() ? list.keys[pairs.index] : 0;
  const int token = sampling::token_of(key);
  const float y = all.y_of(sampling::logit_of(key));
  uint64_t weight = pairs.has_candidate() ? sampling::weight_of(y, DeviceMath()) : 0;
  // Tells the other candidates how much of this one is left; the sum of all that is.
  const auto publish = [&] {
    __syncthreads();
    if (pairs.is_first_lane()) list.weights[pairs.index] = weight;
    return team.block_sum(pairs.is_first_lane() ? weight : 0);
  };
  const auto sum_above = [&](const uint64_t* keys, uint64_t mine) {
    return pairs.sum([&](int j) { return keys[j] > mine ? list.weights[j] : 0; });
  };

  const uint64_t num_above = pairs.sum([&](int j) { return list.keys[j] > key ? 1 : 0; });
  if (num_above >= top_k) weight = 0;
  uint64_t total = publish();
  if (drops(typical_p)) {
    const bool counts = pairs.is_first_lane() && weight > 0;
    const int64_t coarse = counts ? sampling::coarse_weight(weight) : 0;
    const int64_t surprise = weight > 0 ? sampling::surprise_of(y) : 0;
    const auto num = static_cast<int64_t>(team.block_sum(static_cast<uint64_t>(coarse)));
    const auto sum = static_cast<int64_t>(team.block_sum(static_cast<uint64_t>(coarse * surprise)));
    const uint64_t typical =
        weight > 0 ? sampling::typical_key(static_cast<int32_t>(surprise), sum / num, token) : 0;
    if (pairs.is_first_lane()) team.shared.typical_keys[pairs.index] = typical;
    __syncthreads();
    const uint64_t before = sum_above(team.shared.typical_keys, typical);
    if (before >= sampling::share_of(total, typical_p)) weight = 0;
    total = publish();
  }
  if (drops(top_p)) {
    if (sum_above(list.keys, key) >= sampling::share_of(total, top_p)) weight = 0;
    total = publish();
  }
  if (min_p > 0.0f) {
    if (weight < sampling::share_of(team.block_largest(weight), min_p)) weight = 0;
    total = publish();
  }
  const uint64_t skipped = __umul64hi(random, total);
  const uint64_t before = pairs.sum(
      [&](int j) { return sampling::token_of(list.keys[j]) < token ? list.weights[j] : 0; });
  if (pairs.is_first_lane() && before <= skipped && skipped < before + weight) {
    team.shared.found = token;
  }
  __syncthreads();
  return team.shared.found;
}

// Draws from the tokens that are left of a whole row: sums of chunks lead to the one that holds the
// token. The answer is in the first block.
template <class Team, bool kHasTypical>
__device__ int draw_from_row(Team& team, const float* row, const Remaining<kHasTypical>& remaining,
                             int vocab, uint64_t random) {
  auto& chunks = team.shared.chunks;
  const int num_chunks = (vocab + kSampleChunk - 1) / kSampleChunk;
  const int last_chunk = (team.end + kSampleChunk - 1) / kSampleChunk;
  for (int chunk = team.begin / kSampleChunk + team.warp(); chunk < last_chunk;
       chunk += Team::kWarps) {
    uint64_t sum = 0;
    const int first = chunk * kSampleChunk;
    team.walk_warp(row, first, min(first + kSampleChunk, vocab),
                   [&](float x, int token) { sum += remaining.weight(x, token); });
    sum = warp_sum(sum);
    if (team.lane() == 0) store_part(typename Team::Tag{}, &chunks[chunk], 0, sum);
  }
  team.meet_all();
  if (team.rank != 0) return 0;
  uint64_t mine = 0;
  for (int i = team.thread(); i < num_chunks; i += Team::kThreads) mine += chunks[i];
  const uint64_t skipped = __umul64hi(random, team.block_sum(mine));
  const int chunk = team.find(chunks, num_chunks, 0, skipped + 1);
  mine = 0;
  for (int i = team.thread(); i < chunk; i += Team::kThreads) mine += chunks[i];
  const uint64_t before = team.block_sum(mine);
  auto& weights = team.shared.list.weights;
  const int first = chunk * kSampleChunk, count = min(kSampleChunk, vocab - first);
  for (int i = team.thread(); i < count; i += Team::kThreads) {
    weights[i] = remaining.weight(team.masked(row[first + i], first + i), first + i);
  }
  __syncthreads();
  return first + team.find(weights, count, before, skipped + 1);
}

// What typical_p leaves of a whole row.
template <class Team>
__device__ void keep_typical(Team& team, const float* row, float typical_p,
                             Remaining<false>& remaining) {
  int64_t coarse = 0, sum = 0;
  team.walk(row, [&](float x, int token) {
    const uint64_t weight = remaining.weight(x, token);
    coarse += sampling::coarse_weight(weight);
    sum += sampling::coarse_weight(weight) *
           (weight > 0 ? sampling::surprise_of(remaining.y_of(x)) : 0);
  });
  const auto num = static_cast<int64_t>(team.sum(static_cast<uint64_t>(coarse)));
  remaining.mean = static_cast<int64_t>(team.sum(static_cast<uint64_t>(sum))) / num;
  const auto target = [&](uint64_t all) { return sampling::share_of(all, typical_p); };
  remaining.least_typical = find_cut(team, row, OrderByTypical{remaining}, kTypicalWidth, target);
}

// Draws from what top_p and min_p leave. One that keeps everything costs no pass.
template <class Team, bool kHasTypical>
__device__ int draw_from_most_probable(Team& team, const float* row, const RowSettings& s,
                                       int vocab, float width, Remaining<kHasTypical> remaining) {
  if (const float top_p = s.top_p(); drops(top_p)) {
    const auto target = [&](uint64_t all) { return sampling::share_of(all, top_p); };
    const OrderByLogit<kHasTypical> order{remaining};
    remaining.cut_at(find_cut(team, row, order, width, target));
  }
  if (const float min_p = s.min_p(); min_p > 0.0f) {
    uint64_t best = sampling::kOne;
    if (kHasTypical) {  // the row's largest may be gone
      best = 0;
      team.walk(row, [&](float x, int token) { best = max(best, remaining.weight(x, token)); });
      best = team.largest(best);
    }
    remaining.least_weight = sampling::share_of(best, min_p);
  }
  return draw_from_row(team, row, remaining, vocab, s.random());
}

// Truncates a whole row and draws. The answer is in the first block.
template <class Team>
__device__ int truncate_and_draw(Team& team, const float* row, const RowSettings& s, int vocab,
                                 Remaining<false> remaining) {
  // Half a unit of temperature: 32 bins reach e^-16 of the largest weight.
  const float width = 0.72134752f / remaining.scale;
  if (const int top_k = s.top_k(); top_k > 0 && top_k < vocab) {
    const auto target = [&](uint64_t count) { return min(count, static_cast<uint64_t>(top_k)); };
    remaining.cut_at(find_cut(team, row, OrderByRank{remaining.largest}, width, target));
  }
  const float typical_p = s.typical_p();
  if (!drops(typical_p)) return draw_from_most_probable(team, row, s, vocab, width, remaining);
  keep_typical(team, row, typical_p, remaining);
  const Remaining<true> typical{
      remaining.largest,      remaining.scale,         remaining.least_logit, remaining.last_token,
      remaining.least_weight, remaining.least_typical, remaining.mean};
  return draw_from_most_probable(team, row, s, vocab, width, typical);
}

// One token for each row of logits.
//
//   tokens[row] ~ truncate(softmax(edit(logits[row]) / temperature))
//
// Work      p.num_parts blocks per row, a cluster, each with its own run of the vocabulary. Weights
//           are integers (core/sampling_math.h): sums are exact, so the token is the CPU's.
// Pipeline  One pass finds the largest logit, which is the answer at temperature 0. With top_k up
//           to 256 the rest happens in a list of candidates. Otherwise cuts are found by bins, 32
//           in a pass, and sums of chunks lead to the token. Biases and penalties edit the tokens
//           concerned in place, before the first pass; the old values are put back at the end.
//           Masks are applied to logits as they are read, in kernels of their own.
// Output    The token, and its count in the row's list.
// Cost      4 bytes per logit: 32.8 MB for 64 rows of 128,256. Passes after the first find most
//           logits in the L2 cache. docs/kernels/sampling.md
// Needs     vocab up to 2^20; num_parts 1 but on sm_90.
template <class Arch, bool kIsVectorized, bool kHasMasks>
__global__ void __launch_bounds__(team_tile(Arch{}).num_threads, 1)
    sample_kernel(const __grid_constant__ SampleParams p) {
  using Team = RowTeam<Arch, kIsVectorized, kHasMasks>;
  extern __shared__ __align__(16) unsigned char memory[];
  Team team(*reinterpret_cast<typename Team::Shared*>(memory), p.vocab, p.num_parts);
  const int64_t row = static_cast<int64_t>(blockIdx.x) / p.num_parts;
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});

  const RowSettings settings{p, row};
  const float* logits = p.logits + row * p.logits_stride;
  if (kHasMasks) {
    const int index = p.mask_rows[row];
    const bool has_mask = index >= 0 && index < p.num_masks;
    team.mask = has_mask ? p.masks + index * p.masks_stride : nullptr;
  }
  const bool is_broken = RowEdits(p, row).apply(team);
  const RowTop top = find_top(team, logits, is_broken);
  int token = sampling::token_of(top.best);
  if (!top.is_sound()) {
    token = top.best == kBrokenKey ? kSampleBroken : kSampleNothing;
  } else if (const float temperature = settings.temperature(); temperature > 0.0f) {
    const Remaining<false> all{top.largest(), sampling::log2_scale(temperature)};
    const int top_k = settings.top_k();
    const bool has_few = top_k > 0 && top_k <= kMostBest;
    const int count = has_few ? list_best(team, logits, top, top_k) : Team::kThreads + 1;
    if (count <= Team::kThreads) {
      if (team.rank == 0) token = draw_from_list(team, settings, all, count);
    } else {
      if (has_few) team.meet_all();  // all have read the length of the list
      token = truncate_and_draw(team, logits, settings, p.vocab, all);
    }
  }
  if (team.rank == 0 && team.thread() == 0) p.tokens[row] = token;
  const RowEdits edits(p, row);  // read again, not held in registers all the time
  team.meet_all();  // no block may leave, put old values back or count while another reads
  edits.undo(team);
  if (team.rank == 0) edits.count(team, token, p.capacity);
}

template <class T>
T* data_of(const std::optional<TensorView>& view) {
  return view ? static_cast<T*>(view->data) : nullptr;
}

template <class Arch>
void launch_sample(const SampleArgs& args, const Context& ctx) {
  const int64_t num_rows = args.logits.size(0);
  if (num_rows == 0) return;
  const int num_parts = team_parts<Arch>(args.logits);
  const int64_t num_biases = args.bias_tokens ? args.bias_tokens->num_elements() : 0;
  const int64_t capacity = args.slots ? args.seen_tokens->size(1) : 0;
  const StreamScratch scratch(
      args.logits.device, ctx.stream,
      {.num_bytes = static_cast<size_t>(num_biases + num_rows * capacity) * sizeof(float)});
  const SampleParams p{
      .logits = static_cast<float*>(args.logits.data),
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
      .slots = data_of<const int32_t>(args.slots),
      .seen_tokens = data_of<int32_t>(args.seen_tokens),
      .seen_counts = data_of<int32_t>(args.seen_counts),
      .num_seen = data_of<int32_t>(args.num_seen),
      .repetition = data_of<const float>(args.repetition),
      .presence = data_of<const float>(args.presence),
      .frequency = data_of<const float>(args.frequency),
      .masks = data_of<const uint32_t>(args.masks),
      .mask_rows = data_of<const int32_t>(args.mask_rows),
      .saved_biased = static_cast<float*>(scratch.data()),
      .saved_seen = static_cast<float*>(scratch.data()) + num_biases,
      .logits_stride = args.logits.stride(0),
      .seen_tokens_stride = args.slots ? args.seen_tokens->stride(0) : 0,
      .seen_counts_stride = args.slots ? args.seen_counts->stride(0) : 0,
      .masks_stride = args.masks ? args.masks->stride(0) : 0,
      .num_biases = static_cast<int>(num_biases),
      .num_slots = args.slots ? static_cast<int>(args.num_seen->num_elements()) : 0,
      .num_masks = args.masks ? static_cast<int>(args.masks->size(0)) : 0,
      .capacity = static_cast<int>(capacity),
      .vocab = static_cast<int>(args.logits.size(1)),
      .num_parts = num_parts};
  with_constant<true, false>(is_row_vectorized(args.logits), [&](auto is_vectorized) {
    with_constant<true, false>(args.masks.has_value(), [&](auto has_masks) {
      launch(&sample_kernel<Arch, is_vectorized(), has_masks()>,
             team_shape<Arch>(args.logits, num_parts), p, ctx);
    });
  });
}

}  // namespace tessera::kernels
