// Embedding lookup on the CPU.
// SPDX-License-Identifier: MIT
#include <cstring>

#include "core/text.h"
#include "cpu/elementwise.h"
#include "cpu/parallel.h"
#include "tessera/core/error.h"

namespace tessera::cpu {
namespace {

int64_t id_at(const TensorView& ids, int64_t token) {
  return ids.dtype == DType::i32 ? ids.as<int32_t>()[token] : ids.as<int64_t>()[token];
}

// Before anything is written, so that a refused call changes nothing.
void check_ids(const EmbeddingArgs& args, int64_t num_tokens) {
  const int64_t vocab = args.table.size(0);
  for (int64_t token = 0; token < num_tokens; ++token) {
    const int64_t id = id_at(args.ids, token);
    if (id >= 0 && id < vocab) continue;
    fail(concat("embedding: ids[", token, "] is ", id, "; the table has ", vocab,
                " rows, so ids run from 0 to ", vocab - 1));
  }
}

}  // namespace

void embedding(const EmbeddingArgs& args) {
  const Rows out = as_rows(args.out, "out");
  check_ids(args, out.num_rows);
  const int64_t element_bytes = bit_width(args.table.dtype) / 8;
  const size_t row_bytes = static_cast<size_t>(out.num_cols * element_bytes);
  parallel_for(out.num_rows, out.num_cols, [&](int64_t token) {
    const int64_t from = id_at(args.ids, token) * args.table.stride(0) * element_bytes;
    const int64_t to = token * out.row_stride * element_bytes;
    if (row_bytes > 0) {
      std::memcpy(args.out.as<char>() + to, args.table.as<char>() + from, row_bytes);
    }
  });
}

}  // namespace tessera::cpu
