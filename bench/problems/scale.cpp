// Problems for `scale`. The options "scale" and "cap" are in quarters.
// SPDX-License-Identifier: MIT
#include "tessera/ops/scale.h"

#include "bench/problems/builder.h"
#include "bench/problems/makers.h"

namespace tessera::bench {
namespace {

Problem make_scale(RowKey key, const Shape& shape, Fill fill, uint64_t seed) {
  Builder b(shape, fill, seed, {"rows", "cols", "scale", "cap", "residual", "in_place", "offset"});
  const int64_t rows = b.get("rows"), cols = b.get("cols");
  const float scale_by = 0.25f * static_cast<float>(b.get("scale", 4));
  const float softcap = 0.25f * static_cast<float>(b.get("cap"));
  const bool has_residual = b.get("residual") != 0, in_place = b.get("in_place") != 0;
  // Quarters of small integers are exact in every type; tanh is not.
  const bool is_exact = softcap == 0.0f && !b.is_normal();
  const Bound bound =
      is_exact ? Bound{} : rounded_twice(key.in, unit_roundoff(key.in) + 0x1p-20, 1e-5);
  const auto fill_values = [&](Operand& operand) {
    const Random random = b.random();
    fill_rows(operand, [&](int64_t r, int64_t c) {
      const int64_t i = r * cols + c;
      return b.is_normal() ? random.normal(i) : static_cast<float>(random.integer(i, -8, 8));
    });
  };
  fill_values(b.rows("x", in_place ? Role::in_out : Role::input, key.in, rows, cols,
                     in_place ? bound : Bound{}));
  if (has_residual) fill_values(b.rows("residual", Role::input, key.in, rows, cols));
  if (!in_place) b.rows("out", Role::output, key.in, rows, cols, bound);
  const auto call = [=](std::span<const TensorView> v, const Context& ctx) {
    scale({.x = v[0],
           .out = in_place ? v[0] : v.back(),
           .scale = scale_by,
           .softcap = softcap,
           .residual = has_residual ? std::optional(v[1]) : std::nullopt},
          ctx);
  };
  return b.finish(call, 2.0 * static_cast<double>(rows * cols), "rows");
}

bool scale_fits(RowKey, const Shape&) { return true; }

}  // namespace

ProblemMaker scale_maker() {
  std::vector<RowKey> keys;
  for (const DType dtype : kFloats) keys.push_back({dtype, dtype});
  const std::vector<Shape> test_shapes = {
      {{"rows", 0}, {"cols", 80}},
      {{"rows", 1}, {"cols", 1}, {"residual", 1}},
      {{"rows", 5}, {"cols", 33}, {"scale", 3}, {"residual", 1}},
      {{"rows", 5}, {"cols", 33}, {"cap", 120}, {"in_place", 1}},
      {{"rows", 7}, {"cols", 4096}, {"scale", 3}},
      {{"rows", 3}, {"cols", 4096}, {"scale", 3}, {"residual", 1}, {"in_place", 1}},
      {{"rows", 2}, {"cols", 70000}, {"cap", 8}, {"residual", 1}},
      {{"rows", 4}, {"cols", 83}, {"scale", 5}, {"residual", 1}, {"offset", 1}},
  };
  return {"scale",
          &make_scale,
          &scale_fits,
          keys,
          test_shapes,
          {{"scale", {{{"rows", 16}, {"cols", 4096}}, {{"rows", 4096}, {"cols", 4096}}}},
           {"scale_add", {{{"rows", 4096}, {"cols", 4096}, {"residual", 1}}}},
           {"softcap", {{{"rows", 16}, {"cols", 256000}, {"cap", 120}}}}}};
}

}  // namespace tessera::bench
