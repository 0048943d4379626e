// Which keys the rows of a tile may meet, in which order, and which row sees which.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/decode_portable/params.h"

namespace tessera::kernels {

// One row of a tile: a query in one head.
struct DecodeRow {
  int query;
  int head;
  int position;   // of the query; below any key for a row that is not there
  uint32_t tree;  // which of the newest tokens it sees, where there is a tree
  float slope;    // of ALiBi; 0: none
};

// The keys of one tile of rows. Without lists the n-th is key n; with lists it is the n-th that is
// listed, or none.
class DecodeKeys {
 public:
  // The queries of the tile are `first` to `last`; where keys are listed they are one.
  __device__ DecodeKeys(const DecodeParams& p, int sequence, int first, int last)
      : p_(p),
        sequence_(sequence),
        first_query_(first),
        last_query_(last),
        length_(max(0, min(p.seq_lens[sequence], p.capacity))) {
    if (p.has_keys && length_ > 0) {
      const int count = p.num_keys[sequence * p.rows.q_len + first];
      num_keys_ = max(0, min(count, p.max_keys));
      keys_ = p.keys + sequence * p.key_batch + first * p.key_row;
    }
    if (p.has_blocks && length_ > 0) {
      // Each block is listed once.
      const int all = (length_ - 1) / p.page_size + 1;
      num_blocks_ = max(0, min(min(p.num_blocks[sequence], p.max_blocks), all));
      blocks_ = p.blocks + sequence * p.block_stride;
    }
  }

  __device__ int length() const { return length_; }
  // The first of the newest tokens.
  __device__ int first_new() const { return length_ - p_.rows.q_len; }
  __device__ int position(int query) const { return first_new() + query; }

  __device__ DecodeKeyCut cut() const {
    const int most = p_.rows.most_pieces();
    if (p_.has_keys) return cut_keys(0, num_keys_, most);
    if (p_.has_blocks) return cut_keys(0, num_blocks_ * p_.page_size, most);
    const int begin = max(0, position(first_query_) - p_.window + 1);
    return cut_keys(begin, p_.tree != nullptr ? length_ : position(last_query_) + 1, most);
  }

  // Key n, or -1 where there is none.
  __device__ int at(int n) const {
    int key = n;
    if (p_.has_keys) {
      key = keys_[n];
    } else if (p_.has_blocks) {
      const int block = n / p_.page_size;
      key = blocks_[block] * p_.page_size + (n - block * p_.page_size);
    }
    if (key < 0 || key >= length_) return -1;
    return p_.has_keys && p_.has_blocks && !has_block(key / p_.page_size) ? -1 : key;
  }

  __device__ bool sees(const DecodeRow& row, int key) const {
    if (key <= row.position - p_.window) return false;
    if (p_.tree == nullptr || key < first_new()) return key <= row.position;
    return (row.tree >> (key - first_new()) & 1u) != 0;
  }

  // Whether keys are read from their tail: those of the newest token's group.
  __device__ bool is_in_tail(int key) const {
    constexpr int kGroup = static_cast<int>(kKvGroup);
    return p_.tails != nullptr && key / kGroup == (length_ - 1) / kGroup;
  }

 private:
  __device__ bool has_block(int block) const {
    for (int i = 0; i < num_blocks_; ++i) {
      if (blocks_[i] == block) return true;
    }
    return false;
  }

  const DecodeParams& p_;
  int sequence_;
  int first_query_;
  int last_query_;
  int length_;
  int num_keys_ = 0;
  int num_blocks_ = 0;
  const int32_t* keys_ = nullptr;
  const int32_t* blocks_ = nullptr;
};

}  // namespace tessera::kernels
