// Problems for RMSNorm and LayerNorm, with residual, bias and quantised outputs.
// SPDX-License-Identifier: MIT
#include "tessera/ops/norm.h"

#include <cmath>
#include <optional>

#include "bench/problems/builder.h"
#include "bench/problems/makers.h"

namespace tessera::bench {
namespace {

constexpr bool is_quantized(DType dtype) { return dtype == DType::e4m3 || dtype == DType::i8; }

// Integer data makes the statistics exact whatever the order of summation. RMSNorm: a row holds
// only +-2^k, so mean(h^2) is 4^k. LayerNorm: a row holds m + 2^k and m - 2^k in random pairs, so
// the mean is m and the variance 4^k; with an odd number of columns there is no such row.
struct ExactRows {
  bool is_layer_norm;
  int64_t hidden;
  Random random;

  float operator()(int64_t r, int64_t c) const {
    const auto size = static_cast<float>(1 << random.integer(2 * r, 0, 2));
    if (!is_layer_norm) return size * random.sign(1000003 + r * hidden + c);
    const float side = random.sign(1000003 + r * hidden + c / 2) * (c % 2 == 0 ? 1.0f : -1.0f);
    // With a mean that is not 0, sum / hidden is exact only for powers of two.
    const auto mean =
        static_cast<float>(is_power_of_two(hidden) ? random.integer(2 * r + 1, -2, 2) : 0);
    return mean + size * side;
  }
};

// The normalised rows are +-weight. For a quantised output the weights are codes of that type and
// the largest is its qmax, so a dynamic scale is 1 and no quotient lies near a tie.
float exact_weight(DType out, Random random, int64_t c) {
  if (out == DType::i8) {
    return c == 0 ? 127.0f : static_cast<float>(random.integer(c, -127, 127));
  }
  if (out == DType::e4m3) {
    return c == 0 ? 448.0f : 64.0f * static_cast<float>(random.integer(c, -7, 7));
  }
  return static_cast<float>(random.integer(c, 1, 4)) * random.sign(~c);
}

struct NormBounds {
  Bound out;
  Bound token_scale;
};

NormBounds norm_bounds(bool is_layer_norm, RowKey key, int64_t hidden, bool has_exact_rows) {
  if (has_exact_rows) {
    // 1 / hidden rounds unless hidden is a power of two; a narrow output rounds that away.
    const Bound inexact{.relative = is_power_of_two(hidden) ? 0.0 : 0x1p-21};
    return {key.out == DType::f32 ? inexact : Bound{}, inexact};
  }
  const double relative = sum_error(hidden) + 8 * 0x1p-24;
  // LayerNorm subtracts the mean and adds the bias: errors relative to the largest |y|, near 16.
  const double absolute = is_layer_norm ? 16 * relative : 0;
  const Bound scale{.absolute = absolute / 64, .relative = relative};
  if (is_quantized(key.out)) return {{.steps = 1}, scale};
  return {rounded_twice(key.out, relative, absolute), scale};
}

template <bool kIsLayerNorm>
Problem make_norm(RowKey key, const Shape& shape, Fill fill, uint64_t seed) {
  Builder b(shape, fill, seed,
            {"rows", "hidden", "residual", "bias", "static", "dynamic", "in_place", "stride",
             "offset", "special"});
  const int64_t rows = b.get("rows"), hidden = b.get("hidden"), special = b.get("special");
  const bool has_residual = b.get("residual") != 0, in_place = b.get("in_place") != 0;
  const bool is_exact = !b.is_normal() && !(kIsLayerNorm && hidden % 2 == 1);
  const NormBounds bounds = norm_bounds(kIsLayerNorm, key, hidden, is_exact);
  const ExactRows exact{kIsLayerNorm, hidden, b.random()};
  const Random x_random = b.random(), residual_random = b.random();
  const auto is_zero_row = [=](int64_t r) { return rows >= 3 && r == rows - 1; };

  Operand& x = b.rows("x", in_place ? Role::in_out : Role::input, key.in, rows, hidden,
                      in_place ? bounds.out : Bound{});
  fill_rows(x, [&](int64_t r, int64_t c) {
    if (special != 0 && r == rows / 2 && c == hidden / 2) return special_value(special);
    if (b.is_normal()) return is_zero_row(r) ? 0.0f : x_random.normal(r * hidden + c);
    if (!has_residual) return exact(r, c);
    return static_cast<float>(x_random.integer(r * hidden + c, -4, 4));
  });

  const Random weight_random = b.random();
  Operand& weight = b.dense("weight", Role::input, key.in, {hidden});
  fill_vector(weight, [&](int64_t c) {
    if (b.is_normal()) return 1.0f + 0.5f * weight_random.normal(c);
    return exact_weight(key.out, weight_random, c);
  });

  std::optional<size_t> bias_idx, out_idx, residual_idx, static_idx, token_idx;
  size_t next = 2;
  if (b.get("bias") != 0) {
    bias_idx = next++;
    const Random bias_random = b.random();
    fill_vector(b.dense("bias", Role::input, key.in, {hidden}), [&](int64_t c) {
      if (b.is_normal()) return 0.5f * bias_random.normal(c);
      // A quantised row must keep its largest element, so the bias leaves the others alone.
      const bool is_free = !is_quantized(key.out) || exact_weight(key.out, weight_random, c) == 0;
      return is_free ? static_cast<float>(bias_random.integer(c, -4, 4)) : 0.0f;
    });
  }
  if (!in_place) {
    out_idx = next++;
    b.rows("out", Role::output, key.out, rows, hidden, bounds.out);
  }
  if (has_residual) {
    residual_idx = next++;
    fill_rows(b.rows("residual", Role::in_out, key.in, rows, hidden), [&](int64_t r, int64_t c) {
      const int64_t i = r * hidden + c;
      if (b.is_normal()) return is_zero_row(r) ? 0.0f : residual_random.normal(i);
      return exact(r, c) - static_cast<float>(x_random.integer(i, -4, 4));
    });
  }
  if (b.get("static") != 0) {
    static_idx = next++;
    const float scale = !b.is_normal() ? 0.5f : key.out == DType::i8 ? 0.05f : 0.02f;
    fill_vector(b.dense("static_scale", Role::input, DType::f32, {1}),
                [=](int64_t) { return scale; });
  }
  if (b.get("dynamic") != 0) {
    token_idx = next++;
    b.dense("token_scale", Role::output, DType::f32, {rows}, bounds.token_scale).is_per_row = true;
  }
  const float eps = is_exact ? 0.0f : 1e-5f;
  const auto optional_view = [](std::span<const TensorView> views, std::optional<size_t> idx) {
    return idx ? std::optional(views[*idx]) : std::nullopt;
  };
  const auto call = [=](std::span<const TensorView> v, const Context& ctx) {
    const TensorView out = out_idx ? v[*out_idx] : v[0];
    if constexpr (kIsLayerNorm) {
      layer_norm({.x = v[0],
                  .weight = v[1],
                  .bias = optional_view(v, bias_idx),
                  .out = out,
                  .residual = optional_view(v, residual_idx),
                  .static_scale = optional_view(v, static_idx),
                  .token_scale = optional_view(v, token_idx),
                  .eps = eps},
                 ctx);
    } else {
      rms_norm({.x = v[0],
                .weight = v[1],
                .out = out,
                .residual = optional_view(v, residual_idx),
                .static_scale = optional_view(v, static_idx),
                .token_scale = optional_view(v, token_idx),
                .eps = eps},
               ctx);
    }
  };
  const double flops = (kIsLayerNorm ? 7.0 : 4.0) * static_cast<double>(rows * hidden);
  return b.finish(call, flops, "rows");
}

template <bool kIsLayerNorm>
bool norm_fits(RowKey key, const Shape& shape) {
  const bool is_static = value_of(shape, "static") != 0;
  const bool is_dynamic = value_of(shape, "dynamic") != 0;
  if (!kIsLayerNorm && value_of(shape, "bias") != 0) return false;
  if (!is_quantized(key.out)) return !is_static && !is_dynamic;
  return is_static != is_dynamic && value_of(shape, "in_place") == 0;
}

std::vector<Shape> norm_test_shapes() {
  const std::vector<Shape> bases = {
      {{"rows", 0}, {"hidden", 80}},
      {{"rows", 1}, {"hidden", 1}},
      {{"rows", 5}, {"hidden", 7}},
      {{"rows", 3}, {"hidden", 80}, {"bias", 1}},
      {{"rows", 3}, {"hidden", 80}, {"residual", 1}},
      {{"rows", 33}, {"hidden", 256}, {"residual", 1}},
      {{"rows", 5}, {"hidden", 1000}},
      {{"rows", 300}, {"hidden", 128}},
      {{"rows", 3}, {"hidden", 4096}},
      {{"rows", 3}, {"hidden", 4096}, {"bias", 1}, {"residual", 1}},
      {{"rows", 3}, {"hidden", 5120}},
      {{"rows", 3}, {"hidden", 8192}, {"residual", 1}},
      {{"rows", 3}, {"hidden", 16384}},
      {{"rows", 2}, {"hidden", 20000}, {"residual", 1}},
      {{"rows", 2}, {"hidden", 70000}},
      {{"rows", 2}, {"hidden", 70000}, {"residual", 1}},
      {{"rows", 4}, {"hidden", 80}, {"stride", 96}},
      {{"rows", 4}, {"hidden", 80}, {"residual", 1}, {"stride", 83}},
      {{"rows", 4}, {"hidden", 1024}, {"residual", 1}, {"offset", 1}},
      {{"rows", 3}, {"hidden", 1000}, {"bias", 1}, {"stride", 1009}, {"offset", 3}},
      {{"rows", 3}, {"hidden", 2048}, {"offset", 16}},
      {{"rows", 4}, {"hidden", 4096}, {"in_place", 1}},
      {{"rows", 4}, {"hidden", 1000}, {"residual", 1}, {"in_place", 1}},
  };
  std::vector<Shape> shapes;
  for (const Shape& base : bases) {
    shapes.push_back(base);
    shapes.push_back(with_value(base, "static", 1));
    shapes.push_back(with_value(base, "dynamic", 1));
  }
  for (const int64_t special : kSpecials) {
    for (const char* option : {"static", "dynamic"}) {
      for (const int64_t hidden : {7, 1000, 4096, 20000}) {
        shapes.push_back({{"rows", 3}, {"hidden", hidden}, {option, 1}, {"special", special}});
      }
    }
  }
  return shapes;
}

std::vector<RowKey> norm_keys() {
  std::vector<RowKey> keys;
  for (const DType in : kFloats) {
    for (const DType out : {in, DType::e4m3, DType::i8}) keys.push_back({in, out});
  }
  return keys;
}

std::vector<Shape> with_and_without_residual(std::initializer_list<int64_t> rows,
                                             std::initializer_list<int64_t> hiddens,
                                             std::string_view option = {}) {
  std::vector<Shape> shapes;
  for (const int64_t hidden : hiddens) {
    for (const int64_t residual : {0, 1}) {
      for (const int64_t r : rows) {
        Shape shape{{"rows", r}, {"hidden", hidden}};
        if (residual != 0) shape.emplace_back("residual", 1);
        if (!option.empty()) shape.emplace_back(option, 1);
        shapes.push_back(shape);
      }
    }
  }
  return shapes;
}

}  // namespace

ProblemMaker rms_norm_maker() {
  return {"rms_norm",
          &make_norm<false>,
          &norm_fits<false>,
          norm_keys(),
          norm_test_shapes(),
          {{"norm", with_and_without_residual({1, 16, 256, 4096, 16384}, {4096, 8192})},
           {"norm_quantized", with_and_without_residual({16, 4096, 16384}, {4096}, "dynamic")}}};
}

ProblemMaker layer_norm_maker() {
  Shape with_bias{{"rows", 16384}, {"hidden", 4096}, {"bias", 1}};
  return {"layer_norm",
          &make_norm<true>,
          &norm_fits<true>,
          norm_keys(),
          norm_test_shapes(),
          {{"layer_norm",
            {with_value(with_bias, "rows", 16), with_value(with_bias, "rows", 4096), with_bias}},
           {"norm_quantized", {with_value(with_bias, "dynamic", 1)}}}};
}

}  // namespace tessera::bench
