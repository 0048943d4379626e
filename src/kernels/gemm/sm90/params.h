// What the Hopper kernel reads.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "kernels/gemm/epilogue_params.h"
#include "kernels/gemm/sm90/tile.h"

namespace tessera::kernels {

// Plain data. What the producer looks at before its first copy comes first and shares few lines of
// the constant cache.
struct Sm90Params {
  Sm90Layout layout;
  int num_k_blocks;  // at least 1
  int num_m_tiles;   // of a cluster's tiles, where it has two blocks
  int num_n_tiles;
  int num_tiles;    // of all batches
  int group;        // tiles of m walked before the next tile of n: what is in L2 is used again
  int a_rows;       // in a slot of A
  int num_early;    // blocks of k of B to load before the kernel in front has finished; 0: none
  int num_by_hand;  // of these, blocks whose A the consumers load themselves
  int num_slabs;    // of k
  int cluster;      // blocks that share a tile, or B
  bool shares_b;    // each block of a cluster of two loads half of it for both
  bool is_b_batched;
  CUtensorMap b;    // [batch, n, k]
  CUtensorMap a;    // [batch, m, k]
  CUtensorMap out;  // [batch, m, columns of out]; read only where layout.store_bytes > 0
  // A once more, for who loads it by hand.
  const char* a_data;
  int64_t a_row_bytes;
  int64_t a_batch_bytes;
  EpilogueParams epilogue;
};
static_assert(std::is_trivially_copyable_v<Sm90Params>);

}  // namespace tessera::kernels
