// Log-probabilities of given tokens, and of the most probable ones.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/sampling/select.cuh"
#include "kernels/with_constant.h"

namespace tessera::kernels {

// Puts the `count` largest logits above -infinity into the first block's list, where more than
// kThreads are candidates: rows with many equals. Returns how many there are.
template <class Team>
__device__ int list_exactly(Team& team, const float* row, float largest, int count) {
  team.meet_all();  // all have read the length of the list
  const auto target = [&](uint64_t all) { return min(all, static_cast<uint64_t>(count)); };
  const uint64_t cut = find_cut(team, row, OrderByRank{largest}, 0.5f, target);
  team.clear_list();
  team.meet_all();
  const auto may_be_one = [&](float x) { return x >= sampling::logit_of(cut); };
  team.search(row, may_be_one, [&](float x, int token) {
    const uint64_t key = sampling::key_of(x, token);
    if (key >= cut) team.append(key, 0);
  });
  team.meet_all();
  return team.list_count();
}

// Writes the best of the first block's list, best first. The threads of that block.
template <class Team>
__device__ void write_best(Team& team, const TokenLogprobsParams& p, int64_t row, double log_sum,
                           int count) {
  const typename Team::Pairs pairs(count);
  const uint64_t* keys = team.shared.list.keys;
  const uint64_t key = pairs.has_candidate() ? keys[pairs.index] : 0;
  const auto place = static_cast<int>(pairs.sum([&](int j) { return keys[j] > key ? 1 : 0; }));
  if (pairs.is_first_lane() && place < p.num_top) {
    p.top_tokens[row * p.num_top + place] = sampling::token_of(key);
    p.top_logprobs[row * p.num_top + place] =
        static_cast<float>(double{sampling::logit_of(key)} - log_sum);
  }
  for (int i = count + team.thread(); i < p.num_top; i += Team::kThreads) {
    p.top_tokens[row * p.num_top + i] = -1;
    p.top_logprobs[row * p.num_top + i] = __int_as_float(0x7fffffff);
  }
}

// Log-probabilities of given tokens, and of the most probable ones.
//
//   logprobs[row] = logits[row, tokens[row]] - log(sum(exp(logits[row])))
//
// Work      As sample_kernel: a cluster of blocks per row.
// Pipeline  One pass finds the largest logit, one adds up the weights; the best come from a list of
//           candidates.
// Output    The sum is an integer, so a row's figures do not depend on the split.
// Cost      Two passes over the logits, the second mostly from the L2 cache.
//           docs/kernels/sampling.md
// Needs     vocab up to 2^20; num_top up to 256; num_parts 1 but on sm_90.
template <class Arch, bool kIsVectorized>
__global__ void __launch_bounds__(team_tile(Arch{}).num_threads, 1)
    token_logprobs_kernel(const __grid_constant__ TokenLogprobsParams p) {
  using Team = RowTeam<Arch, kIsVectorized>;
  extern __shared__ __align__(16) unsigned char memory[];
  Team team(*reinterpret_cast<typename Team::Shared*>(memory), p.vocab, p.num_parts);
  const int64_t row = static_cast<int64_t>(blockIdx.x) / p.num_parts;
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});

  const float* logits = p.logits + row * p.logits_stride;
  const RowTop top = find_top(team, logits, false);
  double log_sum = 0;
  int count = 0;
  if (top.is_sound()) {
    const float largest = top.largest(), scale = sampling::log2_scale(1.0f);
    uint64_t sum = 0;
    team.walk(logits, [&](float x, int) {
      sum += sampling::weight_of(log2_weight(x, largest, scale), DeviceMath());
    });
    sum = team.sum(sum);
    log_sum = double{largest} + log(static_cast<double>(sum) / static_cast<double>(sampling::kOne));
    if (p.num_top > 0) count = list_best(team, logits, top, p.num_top);
    if (count > Team::kThreads) count = list_exactly(team, logits, largest, p.num_top);
  }
  if (team.rank == 0) {
    if (p.num_top > 0) write_best(team, p, row, log_sum, count);
    if (team.thread() == 0) {
      const int token = p.tokens[row];
      const bool has_one = top.is_sound() && token >= 0 && token < p.vocab;
      p.logprobs[row] = has_one ? static_cast<float>(double{logits[token]} - log_sum)
                                : __int_as_float(0x7fffffff);
    }
  }
  team.meet_all();  // no block may leave while another reads its memory
}

template <class Arch>
void launch_token_logprobs(const TokenLogprobsArgs& args, const Context& ctx) {
  if (args.logits.size(0) == 0) return;
  const int num_parts = team_parts<Arch>(args.logits);
  const bool has_top = args.top_tokens && args.top_tokens->size(1) > 0;
  const TokenLogprobsParams p{
      .logits = static_cast<const float*>(args.logits.data),
      .tokens = static_cast<const int32_t*>(args.tokens.data),
      .logprobs = static_cast<float*>(args.logprobs.data),
      .top_tokens = has_top ? static_cast<int32_t*>(args.top_tokens->data) : nullptr,
      .top_logprobs = has_top ? static_cast<float*>(args.top_logprobs->data) : nullptr,
      .logits_stride = args.logits.stride(0),
      .vocab = static_cast<int>(args.logits.size(1)),
      .num_top = has_top ? static_cast<int>(args.top_tokens->size(1)) : 0,
      .num_parts = num_parts};
  with_constant<true, false>(is_row_vectorized(args.logits), [&](auto is_vectorized) {
    launch(&token_logprobs_kernel<Arch, is_vectorized()>, team_shape<Arch>(args.logits, num_parts),
           p, ctx);
  });
}

}  // namespace tessera::kernels
