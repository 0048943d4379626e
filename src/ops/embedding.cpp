// embedding: what it takes, and where it runs.
// SPDX-License-Identifier: MIT
#include "tessera/ops/embedding.h"

#include "core/text.h"
#include "cpu/elementwise.h"
#include "kernels/elementwise/rows.h"
#include "ops/check.h"
#include "ops/dispatch.h"

namespace tessera {
namespace {

using namespace ops;

void check_embedding(const EmbeddingArgs& args) {
  const Named table{"embedding: table", args.table};
  const Named ids{"embedding: ids", args.ids};
  const Named out{"embedding: out", args.out};
  expect_tensor(table, kFloats);
  expect_rank(table, 2);
  const Rows table_rows = expect_rows(table);
  expect_tensor(out, kFloats, table);
  expect_dtype_of(out, table);
  const Rows rows = expect_rows(out);
  if (rows.num_cols != table_rows.num_cols) {
    fail(concat("embedding: out is ", to_string(args.out), " and table is ", to_string(args.table),
                "; out must be ", table_rows.num_cols, " wide, as the table is"));
  }
  expect_writable(out);
  expect_apart(out, table);
  expect_tensor(ids, kIndices, table);
  expect_one_each(ids, rows.num_rows, "row of out");
}

const Op<EmbeddingArgs>& embedding_op() {
  static const Op<EmbeddingArgs> op{"embedding", &check_embedding, &cpu::embedding,
                                    kernels::elementwise_rows_sm90().embedding,
                                    kernels::elementwise_rows().embedding};
  return op;
}

}  // namespace

void embedding(const EmbeddingArgs& args, const Context& ctx) {
  run(embedding_op(), args, args.table.device, ctx);
}

bool supports(const EmbeddingArgs& args, const Context& ctx) {
  return is_supported(embedding_op(), args, args.table.device, ctx);
}

}  // namespace tessera
