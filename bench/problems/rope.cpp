// Problems for rotary embedding over q and k. The option "interleaved" chooses the style, "rotary"
// the rotated part of a head (0: all of it), "i64" the type of the positions.
// SPDX-License-Identifier: MIT
#include "tessera/ops/rope.h"

#include <algorithm>
#include <cstring>

#include "bench/problems/builder.h"
#include "bench/problems/makers.h"

namespace tessera::bench {
namespace {

Operand& add_heads(Builder& b, std::string_view name, DType dtype, int64_t tokens, int64_t heads,
                   int64_t head_dim, Bound bound) {
  Operand& operand = b.rows(name, Role::in_out, dtype, tokens, heads * head_dim, bound);
  operand.shape = {tokens, heads, head_dim};
  operand.strides = {operand.strides[0], head_dim, 1};
  const Random random = b.random();
  fill_rows(operand, [&](int64_t r, int64_t c) {
    const int64_t i = r * heads * head_dim + c;
    return b.is_normal() ? random.normal(i) : static_cast<float>(random.integer(i, -8, 8));
  });
  return operand;
}

Problem make_rope(RowKey key, const Shape& shape, Fill fill, uint64_t seed) {
  Builder b(shape, fill, seed,
            {"tokens", "heads", "kv_heads", "head_dim", "rotary", "interleaved", "positions", "i64",
             "stride", "offset"});
  const int64_t tokens = b.get("tokens"), heads = b.get("heads"), kv_heads = b.get("kv_heads");
  const int64_t head_dim = b.get("head_dim");
  const int64_t rotary = b.get("rotary") == 0 ? head_dim : b.get("rotary");
  const int64_t num_positions = b.get("positions", 64);
  // Integers: the table too holds small integers, so both products and their difference are exact.
  // Normal: two products and a sum in float, of values near 6 at most, then one rounding.
  const Bound bound = b.is_normal() ? rounded_twice(key.in, 0x1p-22, 12 * 0x1p-23) : Bound{};
  add_heads(b, "q", key.in, tokens, heads, head_dim, bound);
  if (kv_heads > 0) add_heads(b, "k", key.in, tokens, kv_heads, head_dim, bound);
  Operand& positions =
      b.dense("positions", Role::input, b.get("i64") != 0 ? DType::i64 : DType::i32, {tokens});
  positions.is_per_row = true;
  const Random position_random = b.random();
  fill_vector(positions, [&](int64_t i) {
    return static_cast<float>(position_random.integer(i, 0, num_positions - 1));
  });
  Operand& table = b.dense("table", Role::input, DType::f32, {num_positions, rotary});
  const Random table_random = b.random();
  if (b.is_normal()) {
    const Tensor angles = make_rope_table(num_positions, rotary, 500000.0);
    std::memcpy(table.host.view().as<float>() + table.offset, angles.view().data,
                static_cast<size_t>(angles.size_bytes()));
  } else {
    fill_rows(table, [&](int64_t r, int64_t c) {
      return static_cast<float>(table_random.integer(r * rotary + c, -3, 3));
    });
  }
  const bool has_k = kv_heads > 0;
  const auto style = b.get("interleaved") != 0 ? RopeStyle::interleaved : RopeStyle::half_split;
  const auto call = [=](std::span<const TensorView> v, const Context& ctx) {
    rope({.q = v[0],
          .k = has_k ? std::optional(v[1]) : std::nullopt,
          .positions = v[has_k ? 2 : 1],
          .table = v[has_k ? 3 : 2],
          .style = style},
         ctx);
  };
  const double position_bytes = b.get("i64") != 0 ? 8.0 : 4.0;
  const auto rotated = static_cast<double>(tokens * (heads + kv_heads) * rotary);
  Problem problem = b.finish(call, 3.0 * rotated, "tokens");
  // Only the rotated part of a head is touched, and only the table's rows that are asked for.
  const double table_rows = static_cast<double>(std::min(tokens, num_positions));
  problem.bytes = 2.0 * rotated * bit_width(key.in) / 8.0 +
                  static_cast<double>(tokens) * position_bytes +
                  table_rows * static_cast<double>(rotary) * 4.0;
  return problem;
}

bool rope_fits(RowKey, const Shape&) { return true; }

Shape llama(int64_t tokens, int64_t interleaved) {
  Shape shape{{"tokens", tokens}, {"heads", 32}, {"kv_heads", 8}, {"head_dim", 128}};
  shape.emplace_back("interleaved", interleaved);
  shape.emplace_back("positions", 8192);
  return shape;
}

}  // namespace

ProblemMaker rope_maker() {
  std::vector<RowKey> keys;
  for (const DType dtype : kFloats) keys.push_back({dtype, dtype});
  std::vector<Shape> tests;
  for (const int64_t interleaved : {0, 1}) {
    const auto add = [&](Shape shape) {
      shape.emplace_back("interleaved", interleaved);
      tests.push_back(std::move(shape));
    };
    add({{"tokens", 0}, {"heads", 4}, {"kv_heads", 2}, {"head_dim", 64}});
    add({{"tokens", 1}, {"heads", 1}, {"kv_heads", 1}, {"head_dim", 2}});
    add({{"tokens", 3}, {"heads", 3}, {"kv_heads", 1}, {"head_dim", 6}});
    add({{"tokens", 5}, {"heads", 4}, {"kv_heads", 2}, {"head_dim", 80}, {"i64", 1}});
    add({{"tokens", 7}, {"heads", 4}, {"head_dim", 128}});
    add({{"tokens", 7}, {"heads", 4}, {"kv_heads", 4}, {"head_dim", 128}, {"rotary", 64}});
    add({{"tokens", 7}, {"heads", 2}, {"kv_heads", 1}, {"head_dim", 80}, {"rotary", 20}});
    add({{"tokens", 33}, {"heads", 32}, {"kv_heads", 8}, {"head_dim", 128}});
    add({{"tokens", 9}, {"heads", 4}, {"kv_heads", 4}, {"head_dim", 64}, {"stride", 768}});
    add({{"tokens", 9}, {"heads", 4}, {"kv_heads", 2}, {"head_dim", 64}, {"offset", 1}});
    add({{"tokens", 5},
         {"heads", 3},
         {"kv_heads", 3},
         {"head_dim", 34},
         {"stride", 105},
         {"offset", 3}});
    add({{"tokens", 300}, {"heads", 2}, {"kv_heads", 1}, {"head_dim", 256}});
  }
  return {
      "rope",
      &make_rope,
      &rope_fits,
      keys,
      tests,
      {{"rope", {llama(16, 0), llama(256, 0), llama(4096, 0), llama(16384, 0), llama(16384, 1)}}}};
}

}  // namespace tessera::bench
