// What the Hopper prefill kernel reads beside the common parameters.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda.h>

#include "kernels/attention/params.h"

namespace tessera::kernels {

struct Sm90PrefillParams {
  // Boxes of one slab: [batch or page, head, row, element], of q and out [batch, head, row, packed
  // head, element].
  CUtensorMap q;
  CUtensorMap k;
  CUtensorMap v;
  CUtensorMap out;  // boxes of a warpgroup's 64 rows
  // Packed heads count as one, with the rows of all of them: those of one token side by side.
  AttentionParams common;
  int log2_packed;
  int num_tiles;  // of rows of q, over all sequences and heads; ragged: at most
  int m_tiles;    // of one sequence; ragged: of all, at most
  int num_pages;  // paged: a page number no page has
  int log2_page_size;
  int box_rows;      // of k and v; a block of keys is a whole number of boxes
  int num_loaders;   // warps that load k, and as many v
  int group;         // heads, of all sequences, whose tiles are walked before those of the next
  bool is_out_bf16;  // else f16; asked of 8-bit inputs alone
  bool zeroes_v;     // rows of v that nobody sees may hold anything
  int value_dim;     // elements of a head's results, a multiple of 8; asked of padded tiles alone
};
static_assert(std::is_trivially_copyable_v<Sm90PrefillParams>);

}  // namespace tessera::kernels
