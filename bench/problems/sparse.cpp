// Problems for the product with a 2:4 sparse weight. Options beside m, n and k: gap and gap_out
// (elements between the rows of a and of out) and offset (before every operand).
// SPDX-License-Identifier: MIT
#include "tessera/ops/sparse.h"

#include <algorithm>
#include <array>

#include "bench/problems/builder.h"
#include "bench/problems/makers.h"
#include "core/parallel.h"

namespace tessera::bench {
namespace {

// A dense weight, pruned into the two operands. Sums over k of random data have variance 1 before
// the pruning and less after it. After a million values they repeat.
void fill_pruned(Operand& values, Operand& meta, Random random, bool is_normal, int64_t k) {
  if (values.host.size_bytes() == 0 || meta.host.size_bytes() == 0) return;
  constexpr int64_t kPeriod = 1'048'583;  // a prime: rows begin at different places
  const DType dtype = values.host.view().dtype;
  const int64_t n = values.shape[0];
  const int64_t num_drawn = std::min(kPeriod, n * k);
  const Tensor drawn(dtype, {num_drawn});
  const float deviation = 1.0f / std::sqrt(static_cast<float>(k));
  parallel_for(num_drawn, 1, [&](int64_t i) {
    store(drawn.view(), i,
          is_normal ? deviation * random.normal(i) : static_cast<float>(random.integer(i, -3, 3)));
  });
  const Tensor dense(dtype, {n, k});
  const auto* from = drawn.view().as<uint16_t>();
  auto* to = dense.view().as<uint16_t>();
  parallel_for(n, k, [&](int64_t i) {
    for (int64_t j = 0; j < k; ++j) to[i * k + j] = from[(i * k + j) % num_drawn];
  });
  prune_2_4({.w = dense,
             .out_values = values.place(values.host.view().data, cpu_device()),
             .out_meta = meta.place(meta.host.view().data, cpu_device())});
}

// Integers below 2^24 in every sum: exact in float in any order, and rounded once. Random data: a
// and out have variance 1, so each of k / 2 additions is wrong by less than 2^-23 of ten deviations
// on either side.
Bound bound_of(DType dtype, bool is_normal, int64_t k) {
  if (!is_normal) return {};
  return rounded_twice(dtype, 0, static_cast<double>(k) * 0x1p-23 * 10);
}

Problem make_gemm_2_4(RowKey key, const Shape& shape, Fill fill, uint64_t seed) {
  Builder b(shape, fill, seed, {"m", "n", "k", "gap", "gap_out", "offset"});
  const int64_t m = b.get("m"), n = b.get("n"), k = b.get("k");
  const auto rows = [&](std::string_view name, Role role, int64_t cols, int64_t gap,
                        Bound bound) -> Operand& {
    const int64_t stride = cols + gap;
    Operand& operand = b.strided(name, role, key.in, {m, cols}, {stride, 1}, m * stride, bound);
    operand.is_per_row = true;
    return operand;
  };
  const bool is_normal = b.is_normal();
  const Random tokens = b.random(), weights = b.random();
  fill_rows(rows("a", Role::input, k, b.get("gap"), {}), [&](int64_t row, int64_t col) {
    const int64_t i = row * k + col;
    return is_normal ? tokens.normal(i) : static_cast<float>(tokens.integer(i, -4, 4));
  });
  b.dense("values", Role::input, key.in, {n, k / 2});
  b.dense("meta", Role::input, DType::i32,
          {(n + kSparseBlock - 1) / kSparseBlock, k / kSparseBlock, kSparseBlock});
  rows("out", Role::output, n, b.get("gap_out"), bound_of(key.out, is_normal, k));
  const auto args_of = [](std::span<const TensorView> v) {
    return Gemm24Args{.a = v[0], .values = v[1], .meta = v[2], .out = v[3]};
  };
  // The products that are done: half of those of the dense weight.
  const double flops = static_cast<double>(m * n) * static_cast<double>(k);
  Problem problem = b.finish(
      [=](std::span<const TensorView> v, const Context& ctx) { gemm_2_4(args_of(v), ctx); }, flops,
      "m");
  fill_pruned(problem.operands[1], problem.operands[2], weights, is_normal, k);
  problem.is_supported = [=](std::span<const TensorView> v, const Context& ctx) {
    return supports(args_of(v), ctx);
  };
  return problem;
}

bool gemm_2_4_fits(RowKey, const Shape&) { return true; }

Shape shape_of(int64_t m, int64_t n, int64_t k) { return {{"m", m}, {"n", n}, {"k", k}}; }

// Nothing to do, one of everything, parts of tiles and of stages; then one for each tile of the
// kernel on a GPU of 132 SMs, rows apart, and bases that vector loads cannot take.
std::vector<Shape> sparse_test_shapes() {
  std::vector<Shape> shapes = {
      shape_of(0, 64, 64),      shape_of(3, 0, 32),      shape_of(4, 24, 0),
      shape_of(1, 1, 32),       shape_of(3, 24, 32),     shape_of(7, 40, 96),
      shape_of(8, 32, 128),     shape_of(16, 64, 256),   shape_of(17, 33, 160),
      shape_of(1, 512, 1024),   shape_of(65, 256, 64),   shape_of(130, 264, 416),
      shape_of(16, 72, 2048),   shape_of(9, 16001, 96),  shape_of(9, 28004, 64),
      shape_of(300, 1000, 288), shape_of(1000, 8408, 96)};
  Shape apart = shape_of(40, 520, 160);
  for (const auto& [gap, gap_out, offset] :
       {std::array<int64_t, 3>{8, 8, 0}, {64, 1, 0}, {8, 3, 8}, {1, 0, 0}, {0, 0, 1}}) {
    Shape shape = with_value(with_value(apart, "gap", gap), "gap_out", gap_out);
    shapes.push_back(with_value(shape, "offset", offset));
  }
  return shapes;
}

}  // namespace

ProblemMaker gemm_2_4_maker() {
  std::vector<Shape> llama;
  for (const int64_t m : {16, 256, 4096}) {
    llama.push_back(shape_of(m, 28672, 4096));  // gate_up
    llama.push_back(shape_of(m, 4096, 14336));  // down
  }
  return {"gemm_2_4",
          &make_gemm_2_4,
          &gemm_2_4_fits,
          {{DType::bf16, DType::bf16}, {DType::f16, DType::f16}},
          sparse_test_shapes(),
          {{"sparse/llama8b", llama}},
          "gemm"};
}

}  // namespace tessera::bench
