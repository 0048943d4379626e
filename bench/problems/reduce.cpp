// Problems for row reductions ("kind" is the value of Reduction) and argmax ("i64": its type).
// SPDX-License-Identifier: MIT
#include "tessera/ops/reduce.h"

#include <limits>

#include "bench/problems/builder.h"
#include "bench/problems/makers.h"

namespace tessera::bench {
namespace {

constexpr auto kSum = static_cast<int64_t>(Reduction::sum);
constexpr auto kMean = static_cast<int64_t>(Reduction::mean);
constexpr auto kMax = static_cast<int64_t>(Reduction::max);
constexpr auto kMin = static_cast<int64_t>(Reduction::min);
constexpr auto kAbsmax = static_cast<int64_t>(Reduction::absmax);

// Small integers with many equals, or normal values; one NaN in the third row of four or more.
void fill_x(Builder& b, DType dtype, int64_t rows, int64_t cols) {
  const Random random = b.random();
  fill_rows(b.rows("x", Role::input, dtype, rows, cols), [&](int64_t r, int64_t c) {
    if (rows >= 4 && r == 2 && c == cols / 3) return std::numeric_limits<float>::quiet_NaN();
    const int64_t i = r * cols + c;
    return b.is_normal() ? random.normal(i) : static_cast<float>(random.integer(i, -4, 4));
  });
}

Problem make_reduce(RowKey key, const Shape& shape, Fill fill, uint64_t seed) {
  Builder b(shape, fill, seed, {"rows", "cols", "kind", "stride", "offset"});
  const int64_t rows = b.get("rows"), cols = b.get("cols"), kind = b.get("kind");
  fill_x(b, key.in, rows, cols);
  // Extremes are exact. Sums of integers below 2^24 are; the mean divides, which for other than
  // powers of two rounds. Otherwise the error is relative to the sum of |x|, near 0.8 * cols.
  Bound bound;
  const double sum_absolute = 2 * sum_error(cols) * static_cast<double>(cols + 8);
  if (kind == kSum && b.is_normal()) bound.absolute = sum_absolute;
  if (kind == kMean) {
    if (b.is_normal()) bound.absolute = sum_absolute / static_cast<double>(cols);
    bound.relative = is_power_of_two(cols) ? 0 : 0x1p-22;
  }
  b.dense("out", Role::output, DType::f32, {rows}, bound).is_per_row = true;
  const auto call = [=](std::span<const TensorView> v, const Context& ctx) {
    reduce({.x = v[0], .out = v[1], .kind = static_cast<Reduction>(kind)}, ctx);
  };
  return b.finish(call, static_cast<double>(rows * cols), "rows");
}

Problem make_argmax(RowKey key, const Shape& shape, Fill fill, uint64_t seed) {
  Builder b(shape, fill, seed, {"rows", "cols", "i64", "stride", "offset"});
  const int64_t rows = b.get("rows"), cols = b.get("cols");
  fill_x(b, key.in, rows, cols);
  const DType index = b.get("i64") != 0 ? DType::i64 : DType::i32;
  b.dense("out", Role::output, index, {rows}).is_per_row = true;
  const auto call = [](std::span<const TensorView> v, const Context& ctx) {
    argmax({.x = v[0], .out = v[1]}, ctx);
  };
  return b.finish(call, static_cast<double>(rows * cols), "rows");
}

bool always_fits(RowKey, const Shape&) { return true; }

const std::vector<Shape>& bases() {
  static const std::vector<Shape> shapes = {
      {{"rows", 0}, {"cols", 80}},
      {{"rows", 1}, {"cols", 1}},
      {{"rows", 5}, {"cols", 7}},
      {{"rows", 3}, {"cols", 80}},
      {{"rows", 300}, {"cols", 33}},
      {{"rows", 5}, {"cols", 1000}},
      {{"rows", 4}, {"cols", 4096}},
      {{"rows", 3}, {"cols", 5120}},
      {{"rows", 5}, {"cols", 20000}},
      {{"rows", 2}, {"cols", 70000}},
      {{"rows", 1}, {"cols", 128256}},
      {{"rows", 4}, {"cols", 80}, {"stride", 96}},
      {{"rows", 4}, {"cols", 1000}, {"stride", 1003}, {"offset", 1}},
      {{"rows", 4}, {"cols", 2048}, {"offset", 1}},
  };
  return shapes;
}

}  // namespace

ProblemMaker reduce_maker() {
  std::vector<RowKey> keys;
  for (const DType dtype : kFloats) keys.push_back({dtype, DType::f32});
  std::vector<Shape> tests = {{{"rows", 3}, {"cols", 0}, {"kind", kSum}},
                              {{"rows", 3}, {"cols", 0}, {"kind", kAbsmax}}};
  for (const int64_t kind : {kSum, kMean, kMax, kMin, kAbsmax}) {
    for (const Shape& base : bases()) tests.push_back(with_value(base, "kind", kind));
  }
  return {"reduce",
          &make_reduce,
          &always_fits,
          keys,
          tests,
          {{"reduce",
            {{{"rows", 16384}, {"cols", 4096}, {"kind", kSum}},
             {{"rows", 16384}, {"cols", 4096}, {"kind", kAbsmax}},
             {{"rows", 64}, {"cols", 128256}, {"kind", kMax}}}}}};
}

ProblemMaker argmax_maker() {
  std::vector<RowKey> keys;
  for (const DType dtype : kFloats) keys.push_back({dtype, dtype});
  // Long rows, in numbers for which a row is shared by a cluster of four, of two, or by no cluster.
  std::vector<Shape> tests = {{{"rows", 40}, {"cols", 17000}},
                              {{"rows", 100}, {"cols", 17000}},
                              {{"rows", 200}, {"cols", 17000}}};
  for (const Shape& base : bases()) {
    tests.push_back(base);
    tests.push_back(with_value(base, "i64", 1));
  }
  return {"argmax",
          &make_argmax,
          &always_fits,
          keys,
          tests,
          {{"argmax",
            {{{"rows", 1}, {"cols", 128256}},
             {{"rows", 16}, {"cols", 128256}},
             {{"rows", 64}, {"cols", 128256}}}}}};
}

}  // namespace tessera::bench
