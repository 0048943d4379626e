// One sequence of a call: where its rows begin in q and in k, and how many there are.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/params.h"

namespace tessera::kernels {

struct Sequence {
  int index;    // in the batch
  int q_begin;  // the row of q that holds its first query; 0 where batched
  int q_len;
  int kv_begin;  // 0 where batched or paged
  int kv_len;

  // The key at which query i stands.
  __device__ int position(int i) const { return i + kv_len - q_len; }
};

__device__ inline Sequence sequence_of(const AttentionParams& p, int index) {
  Sequence s{.index = index, .q_begin = 0, .q_len = p.q_len, .kv_begin = 0, .kv_len = p.kv_len};
  if (p.q_starts != nullptr) {
    s.q_begin = p.q_starts[index];
    s.q_len = p.q_starts[index + 1] - s.q_begin;
  }
  if (p.kv_starts != nullptr) {
    s.kv_begin = p.kv_starts[index];
    s.kv_len = p.kv_starts[index + 1] - s.kv_begin;
  }
  if (p.kv_lens != nullptr) s.kv_len = p.kv_lens[index];
  return s;
}

}  // namespace tessera::kernels
