// Problems for embedding lookup. The option "i64" chooses the type of the ids.
// SPDX-License-Identifier: MIT
#include "tessera/ops/embedding.h"

#include <algorithm>

#include "bench/problems/builder.h"
#include "bench/problems/makers.h"

namespace tessera::bench {
namespace {

Problem make_embedding(RowKey key, const Shape& shape, Fill fill, uint64_t seed) {
  Builder b(shape, fill, seed, {"tokens", "hidden", "vocab", "i64", "stride", "offset"});
  const int64_t tokens = b.get("tokens"), hidden = b.get("hidden"), vocab = b.get("vocab");
  const DType id_dtype = b.get("i64") != 0 ? DType::i64 : DType::i32;
  Operand& table = b.rows("table", Role::input, key.in, vocab, hidden);
  table.is_per_row = false;  // shared by all tokens
  fill_normal(table, b.random());
  Operand& ids = b.dense("ids", Role::input, id_dtype, {tokens});
  ids.is_per_row = true;
  const Random random = b.random();
  fill_vector(ids, [&](int64_t i) {  // both ends of the table are asked for
    if (i < 2) return static_cast<float>(i == 0 ? vocab - 1 : 0);
    return static_cast<float>(random.integer(i, 0, vocab - 1));
  });
  b.rows("out", Role::output, key.in, tokens, hidden);  // a copy: bit for bit
  const auto call = [](std::span<const TensorView> v, const Context& ctx) {
    embedding({.table = v[0], .ids = v[1], .out = v[2]}, ctx);
  };
  Problem problem = b.finish(call, 0, "tokens");
  const auto rows_moved = static_cast<double>(std::min(tokens, vocab) + tokens);
  problem.bytes = rows_moved * static_cast<double>(storage_bytes(key.in, hidden)) +
                  static_cast<double>(storage_bytes(id_dtype, tokens));
  return problem;
}

bool embedding_fits(RowKey, const Shape&) { return true; }

}  // namespace

ProblemMaker embedding_maker() {
  std::vector<RowKey> keys;
  for (const DType dtype : kFloats) keys.push_back({dtype, dtype});
  const std::vector<Shape> tests = {
      {{"tokens", 0}, {"hidden", 80}, {"vocab", 10}},
      {{"tokens", 1}, {"hidden", 1}, {"vocab", 3}},
      {{"tokens", 5}, {"hidden", 7}, {"vocab", 11}, {"i64", 1}},
      {{"tokens", 33}, {"hidden", 80}, {"vocab", 20}},
      {{"tokens", 17}, {"hidden", 1000}, {"vocab", 100}, {"i64", 1}},
      {{"tokens", 300}, {"hidden", 128}, {"vocab", 1000}},
      {{"tokens", 9}, {"hidden", 4096}, {"vocab", 50}},
      {{"tokens", 3}, {"hidden", 5120}, {"vocab", 7}},
      {{"tokens", 3}, {"hidden", 70000}, {"vocab", 4}},
      {{"tokens", 9}, {"hidden", 80}, {"vocab", 50}, {"stride", 96}},
      {{"tokens", 9}, {"hidden", 1000}, {"vocab", 50}, {"stride", 1007}, {"offset", 1}},
      {{"tokens", 9}, {"hidden", 1024}, {"vocab", 50}, {"offset", 1}},
  };
  return {"embedding",
          &make_embedding,
          &embedding_fits,
          keys,
          tests,
          {{"embedding",
            {{{"tokens", 16}, {"hidden", 4096}, {"vocab", 128256}},
             {{"tokens", 16384}, {"hidden", 4096}, {"vocab", 128256}}}}}};
}

}  // namespace tessera::bench
