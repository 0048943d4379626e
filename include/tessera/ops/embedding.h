// Embedding lookup: rows of a table picked by token id.
// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"

namespace tessera {

//   out[i] = table[ids[i]]
// An id outside [0, vocab) is refused on the CPU; on a GPU its row becomes NaN, so that it shows.
//
// With `computed`, ids may be ones that the device has yet to compute: the id -1 - i stands for
// computed[i]. There, a negative entry (a token that could not be sampled) counts as 0.
struct EmbeddingArgs {
  TensorView table;                         // [vocab, hidden]; f32, f16 or bf16
  TensorView ids;                           // [tokens]; i32 or i64, contiguous
  TensorView out;                           // [tokens, hidden], dtype of table
  std::optional<TensorView> computed = {};  // i32 [count], contiguous
};

void embedding(const EmbeddingArgs& args, const Context& ctx = {});
bool supports(const EmbeddingArgs& args, const Context& ctx = {});

}  // namespace tessera
