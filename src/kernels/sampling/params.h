// What the sampling kernels read, how many blocks share a row, and the launchers.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

#include "tessera/ops/sample.h"

namespace tessera::kernels {

// The kernel's parameters, passed by value. Strides are in elements. A setting has one element per
// row; if it is null, every row has the default that SampleArgs states.
struct SampleParams {
  float* logits;             // [num_rows, vocab]; edited during the call, restored at its end
  int32_t* tokens;           // [num_rows]
  const float* temperature;  // not above 0: the largest logit is taken
  const int32_t* top_k;      // not above 0: all
  const float* typical_p;
  const float* top_p;
  const float* min_p;
  const int64_t* seeds;
  const int32_t* sequences;
  const int32_t* positions;
  const int32_t* bias_starts;  // [num_rows + 1]; null: no biases
  const int32_t* bias_tokens;  // [num_biases]
  const float* bias_values;    // [num_biases]
  const int32_t* slots;        // [num_rows]; outside 0 to num_slots - 1: no list. Null: no lists
  int32_t* seen_tokens;        // [num_slots, capacity]
  int32_t* seen_counts;        // [num_slots, capacity]
  int32_t* num_seen;           // [num_slots]
  const float* repetition;
  const float* presence;
  const float* frequency;
  const uint32_t* masks;     // [num_masks, ceil(vocab / 32)]
  const int32_t* mask_rows;  // [num_rows]; outside 0 to num_masks - 1: no mask. Null: no masks
  float* saved_biased;       // [num_biases]: logits before their bias
  float* saved_seen;         // [num_rows, capacity]: logits before their penalty

  int64_t logits_stride;
  int64_t seen_tokens_stride;
  int64_t seen_counts_stride;
  int64_t masks_stride;
  int num_biases;
  int num_slots;
  int num_masks;
  int capacity;
  int vocab;
  int num_parts;  // blocks that share a row: the cluster's size
};
static_assert(std::is_trivially_copyable_v<SampleParams>);

struct TokenLogprobsParams {
  const float* logits;    // [num_rows, vocab]
  const int32_t* tokens;  // [num_rows]
  float* logprobs;        // [num_rows]
  int32_t* top_tokens;    // [num_rows, num_top]
  float* top_logprobs;    // [num_rows, num_top]

  int64_t logits_stride;
  int vocab;
  int num_top;
  int num_parts;
};
static_assert(std::is_trivially_copyable_v<TokenLogprobsParams>);

inline constexpr int kMaxSampleParts = 8;
inline constexpr int kSampleChunk = 1024;  // tokens; a row is split between chunks

// As many blocks per row as there are SMs for: a block's shared memory takes one. The answer does
// not depend on the split, so it may depend on the number of rows.
constexpr int choose_sample_parts(int64_t num_rows, int64_t vocab, int num_sms) {
  int num_parts = kMaxSampleParts;
  const int64_t num_chunks = (vocab + kSampleChunk - 1) / kSampleChunk;
  while (num_parts > 1 && (num_rows * num_parts > num_sms || num_parts * 2 > num_chunks)) {
    num_parts /= 2;
  }
  return num_parts;
}

// Defined in sample.cuh and token_logprobs.cuh.
template <class Arch>
void launch_sample(const SampleArgs& args, const Context& ctx);
template <class Arch>
void launch_token_logprobs(const TokenLogprobsArgs& args, const Context& ctx);

}  // namespace tessera::kernels
