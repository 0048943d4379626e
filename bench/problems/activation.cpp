// Problems for activations, plain and gating. The option "kind" is the value of Activation.
// SPDX-License-Identifier: MIT
#include "tessera/ops/activation.h"

#include "bench/problems/builder.h"
#include "bench/problems/makers.h"

namespace tessera::bench {
namespace {

constexpr auto kRelu = static_cast<int64_t>(Activation::relu);
constexpr auto kSilu = static_cast<int64_t>(Activation::silu);
constexpr auto kGelu = static_cast<int64_t>(Activation::gelu);
constexpr auto kGeluTanh = static_cast<int64_t>(Activation::gelu_tanh);

Problem make_activation(RowKey key, const Shape& shape, Fill fill, uint64_t seed) {
  Builder b(shape, fill, seed, {"rows", "cols", "kind", "up", "in_place", "stride", "offset"});
  const int64_t rows = b.get("rows"), cols = b.get("cols"), kind = b.get("kind", kSilu);
  const bool has_up = b.get("up") != 0, in_place = b.get("in_place") != 0;
  // ReLU of integers, and its product with small integers, is exact. The others are
  // transcendental: 2 ulp, and 1e-6 absolute for each side times the largest |up|, near 6.
  const bool is_exact = kind == kRelu && !b.is_normal();
  const Bound bound =
      is_exact ? Bound{} : rounded_twice(key.in, 2 * unit_roundoff(key.in) + 0x1p-20, 1.2e-5);
  const auto fill_values = [&](Operand& operand) {
    const Random random = b.random();
    fill_rows(operand, [&](int64_t r, int64_t c) {
      const int64_t i = r * cols + c;
      return b.is_normal() ? random.normal(i) : static_cast<float>(random.integer(i, -12, 12));
    });
  };
  fill_values(b.rows("x", in_place ? Role::in_out : Role::input, key.in, rows, cols,
                     in_place ? bound : Bound{}));
  if (has_up) fill_values(b.rows("up", Role::input, key.in, rows, cols));
  if (!in_place) b.rows("out", Role::output, key.in, rows, cols, bound);
  const auto call = [=](std::span<const TensorView> v, const Context& ctx) {
    activation({.x = v[0],
                .up = has_up ? std::optional(v[1]) : std::nullopt,
                .out = in_place ? v[0] : v.back(),
                .kind = static_cast<Activation>(kind)},
               ctx);
  };
  return b.finish(call, (has_up ? 6.0 : 5.0) * static_cast<double>(rows * cols), "rows");
}

bool activation_fits(RowKey, const Shape&) { return true; }

std::vector<Shape> activation_test_shapes() {
  std::vector<Shape> shapes = {
      {{"rows", 0}, {"cols", 80}},
      {{"rows", 3}, {"cols", 0}},
      {{"rows", 1}, {"cols", 1}, {"up", 1}},
      {{"rows", 2}, {"cols", 70000}, {"up", 1}},
      {{"rows", 300}, {"cols", 33}},
      {{"rows", 17}, {"cols", 14336}, {"up", 1}},
      {{"rows", 4}, {"cols", 1024}, {"up", 1}, {"stride", 2048}},
      {{"rows", 4}, {"cols", 80}, {"up", 1}, {"stride", 83}, {"offset", 1}},
      {{"rows", 4}, {"cols", 1024}, {"up", 1}, {"in_place", 1}},
  };
  for (const int64_t kind : {kRelu, kSilu, kGelu, kGeluTanh}) {
    for (const int64_t up : {0, 1}) {
      shapes.push_back({{"rows", 5}, {"cols", 7}, {"kind", kind}, {"up", up}});
      shapes.push_back({{"rows", 5}, {"cols", 1000}, {"kind", kind}, {"up", up}});
      shapes.push_back({{"rows", 3}, {"cols", 4096}, {"kind", kind}, {"up", up}, {"offset", 1}});
    }
  }
  return shapes;
}

}  // namespace

ProblemMaker activation_maker() {
  std::vector<RowKey> keys;
  for (const DType dtype : kFloats) keys.push_back({dtype, dtype});
  const auto gated = [](int64_t kind, int64_t up) {
    std::vector<Shape> shapes;
    for (const int64_t rows : {16, 256, 4096, 16384}) {
      shapes.push_back({{"rows", rows}, {"cols", 14336}, {"kind", kind}, {"up", up}});
    }
    return shapes;
  };
  return {"activation",
          &make_activation,
          &activation_fits,
          keys,
          activation_test_shapes(),
          {{"silu_mul", gated(kSilu, 1)},
           {"gelu_mul", {gated(kGelu, 1).back(), gated(kGeluTanh, 1).back()}},
           {"activation",
            {gated(kRelu, 0).back(), gated(kSilu, 0).back(), gated(kGelu, 0).back(),
             gated(kGeluTanh, 0).back()}}}};
}

}  // namespace tessera::bench
