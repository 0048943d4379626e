// What the sampling kernels read, and how many blocks share a row.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

namespace tessera::kernels {

// Settings are arrays with one element a row; null: the default that SampleArgs states. Strides
// count elements.
struct SampleParams {
  const float* logits;       // [num_rows, vocab]
  int32_t* tokens;           // [num_rows]
  const float* temperature;  // 0: the largest logit
  const int32_t* top_k;      // 0: all
  const float* typical_p;
  const float* top_p;
  const float* min_p;
  const int64_t* seeds;
  const int32_t* sequences;
  const int32_t* positions;
  const int32_t* bias_starts;  // [num_rows + 1]
  const int32_t* bias_tokens;
  const float* bias_values;
  int32_t* counts;       // [slots, vocab]
  const int32_t* slots;  // [num_rows]; -1: none
  const float* repetition;
  const float* presence;
  const float* frequency;
  float* adjusted;  // [num_rows, vocab]

  int64_t logits_stride;
  int64_t counts_stride;
  int64_t adjusted_stride;
  int vocab;
  int num_parts;       // blocks that share a row: the cluster's size
  bool is_vectorized;  // rows can be read in aligned vectors of four
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
  bool is_vectorized;
};
static_assert(std::is_trivially_copyable_v<TokenLogprobsParams>);

inline constexpr int kMaxSampleParts = 8;
inline constexpr int kSampleChunk = 1024;  // tokens; a row is split between chunks

// As many blocks for a row as keep every block on an SM of its own, which its shared memory asks
// for. The answer does not depend on the split, so it may follow the number of rows.
constexpr int choose_sample_parts(int64_t num_rows, int vocab, int num_sms) {
  int num_parts = kMaxSampleParts;
  const int num_chunks = (vocab + kSampleChunk - 1) / kSampleChunk;
  while (num_parts > 1 && (num_rows * num_parts > num_sms || num_parts * 2 > num_chunks)) {
    num_parts /= 2;
  }
  return num_parts;
}

}  // namespace tessera::kernels
