// Problems for softmax. The option "mask" is 0 (none), 1 (u8) or 2 (f32, added), with "mask_rows"
// rows that the rows of x share in turn.
// SPDX-License-Identifier: MIT
#include "tessera/ops/softmax.h"

#include <cmath>
#include <limits>

#include "bench/problems/builder.h"
#include "bench/problems/makers.h"

namespace tessera::bench {
namespace {

// Which columns a mask row hides: every fourth or so at random, and all of them in the last row of
// a mask of several, whose output must be zeros.
struct Hidden {
  Random random;
  int64_t mask_rows;  // 0: no mask
  int64_t cols;

  bool operator()(int64_t row, int64_t c) const {
    if (mask_rows == 0) return false;
    const int64_t m = row % mask_rows;
    if (mask_rows > 1 && m == mask_rows - 1) return true;
    return c != cols / 2 && random.integer(m * cols + c, 0, 3) == 0;
  }
};

// Integer data whose softmax is exact: a power of two of the visible elements hold 1, the others
// lie 1024 below, where exp is 0 in float. So the answer is 1 / 2^k or 0, whatever the order.
void fill_exact(Operand& x, const Hidden& hidden, Random random) {
  if (x.host.size_bytes() == 0) return;
  const int64_t cols = x.shape[1];
  const TensorView storage = x.host.view();
  for (int64_t r = 0; r < x.shape[0]; ++r) {
    int64_t num_visible = 0;
    for (int64_t c = 0; c < cols; ++c) num_visible += hidden(r, c) ? 0 : 1;
    int64_t num_high = 1;
    while (num_high * 4 <= num_visible) num_high *= 2;
    int64_t visible = 0, left = num_high;
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t at = x.offset + r * x.strides[0] + c;
      if (hidden(r, c)) {
        store(storage, at, 5.0f);  // would dominate if it were visible
        continue;
      }
      const int64_t remaining = num_visible - visible++;
      const bool is_high = left > 0 && random.integer(r * cols + c, 1, remaining) <= left;
      left -= is_high ? 1 : 0;
      store(storage, at, is_high ? 1.0f : -1024.0f);
    }
  }
}

Problem make_softmax(RowKey key, const Shape& shape, Fill fill, uint64_t seed) {
  Builder b(shape, fill, seed,
            {"rows", "cols", "mask", "mask_rows", "scaled", "in_place", "stride", "offset"});
  const int64_t rows = b.get("rows"), cols = b.get("cols"), mask_kind = b.get("mask");
  const int64_t mask_rows = mask_kind == 0 ? 0 : b.get("mask_rows", 1);
  const bool in_place = b.get("in_place") != 0;
  const float scale = b.get("scaled") != 0 ? (b.is_normal() ? 0.088388f : 0.5f) : 1.0f;
  const Hidden hidden{b.random(), mask_rows, cols};
  // Two exponentials of a few ulp each, whose argument (16 at most) carries its own rounding, and
  // the error of the sum.
  const Bound bound =
      b.is_normal() ? rounded_twice(key.in, sum_error(cols) + 64 * 0x1p-24) : Bound{};
  Operand& x = b.rows("x", in_place ? Role::in_out : Role::input, key.in, rows, cols,
                      in_place ? bound : Bound{});
  if (b.is_normal()) {
    fill_normal(x, b.random(), 2.0f);
  } else {
    fill_exact(x, hidden, b.random());
  }
  if (!in_place) b.rows("out", Role::output, key.in, rows, cols, bound);
  if (mask_kind == 1) {
    fill_rows(b.dense("mask", Role::input, DType::u8, {mask_rows, cols}),
              [&](int64_t r, int64_t c) { return hidden(r, c) ? 0.0f : 1.0f; });
  } else if (mask_kind == 2) {
    const Random random = b.random();
    fill_rows(b.dense("mask", Role::input, DType::f32, {mask_rows, cols}),
              [&](int64_t r, int64_t c) {
                if (hidden(r, c)) return -std::numeric_limits<float>::infinity();
                return b.is_normal() ? random.normal(r * cols + c) : 0.0f;
              });
  }
  const size_t mask_idx = in_place ? 1 : 2;
  const auto call = [=](std::span<const TensorView> v, const Context& ctx) {
    softmax({.x = v[0],
             .out = in_place ? v[0] : v[1],
             .mask = mask_kind != 0 ? std::optional(v[mask_idx]) : std::nullopt,
             .scale = scale},
            ctx);
  };
  // With a mask of several rows, a row's mask depends on its place.
  return b.finish(call, 5.0 * static_cast<double>(rows * cols), mask_rows > 1 ? "" : "rows");
}

bool softmax_fits(RowKey, const Shape&) { return true; }

}  // namespace

ProblemMaker softmax_maker() {
  std::vector<RowKey> keys;
  for (const DType dtype : kFloats) keys.push_back({dtype, dtype});
  const std::vector<Shape> tests = {
      {{"rows", 0}, {"cols", 80}},
      {{"rows", 3}, {"cols", 1}},
      {{"rows", 5}, {"cols", 7}, {"scaled", 1}},
      {{"rows", 3}, {"cols", 80}},
      {{"rows", 300}, {"cols", 33}, {"scaled", 1}},
      {{"rows", 5}, {"cols", 1000}},
      {{"rows", 3}, {"cols", 4096}, {"scaled", 1}},
      {{"rows", 3}, {"cols", 5120}},
      {{"rows", 3}, {"cols", 20000}},
      {{"rows", 2}, {"cols", 70000}, {"scaled", 1}},
      {{"rows", 6}, {"cols", 80}, {"mask", 1}},
      {{"rows", 6}, {"cols", 81}, {"mask", 2}, {"scaled", 1}},
      {{"rows", 12}, {"cols", 1000}, {"mask", 1}, {"mask_rows", 4}, {"scaled", 1}},
      {{"rows", 12}, {"cols", 1001}, {"mask", 2}, {"mask_rows", 3}},
      {{"rows", 4}, {"cols", 20000}, {"mask", 1}, {"mask_rows", 2}},
      {{"rows", 4}, {"cols", 70000}, {"mask", 2}, {"mask_rows", 2}},
      {{"rows", 4}, {"cols", 80}, {"stride", 96}},
      {{"rows", 4}, {"cols", 1000}, {"mask", 1}, {"stride", 1003}, {"offset", 1}},
      {{"rows", 4}, {"cols", 4096}, {"mask", 2}, {"offset", 1}},
      {{"rows", 4}, {"cols", 1024}, {"in_place", 1}},
      {{"rows", 4}, {"cols", 999}, {"mask", 1}, {"in_place", 1}},
  };
  return {"softmax",
          &make_softmax,
          &softmax_fits,
          keys,
          tests,
          {{"softmax",
            {{{"rows", 16384}, {"cols", 512}},
             {{"rows", 16384}, {"cols", 4096}},
             {{"rows", 16384}, {"cols", 4096}, {"mask", 1}, {"mask_rows", 512}},
             {{"rows", 64}, {"cols", 128256}}}}}};
}

}  // namespace tessera::bench
