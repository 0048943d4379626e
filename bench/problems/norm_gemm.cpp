// Problems for norm_gemm: one row of x, its norm, and a product with a weight of any kind.
// SPDX-License-Identifier: MIT
//
// Sizes: n and k. Options: gated and residual (0 or 1); for 4-bit weights group, zero_points,
// bf16_scales and f16_scales; for codes on both sides a_scale and b_scale; separate (1: rms_norm
// and gemm run instead, to compare bits). Integers: x is 1 and -1, whose norm is exact without eps.
#include "tessera/ops/norm_gemm.h"

#include <cmath>
#include <string_view>
#include <vector>

#include "bench/problems/gemm_codes.h"
#include "bench/problems/gemm_weight.h"
#include "bench/problems/makers.h"

namespace tessera::bench {
namespace {

// Operands in the order in which make_norm_gemm adds them.
NormGemmArgs norm_gemm_args(RowKey key, const Shape& shape, std::span<const TensorView> views,
                            bool is_normal) {
  NormGemmArgs args{.norm = {}, .gemm = {.a = views[0], .b = views[1], .out = views.back()}};
  size_t next = 1;
  if (has_token_codes(key)) {
    take_codes(key, shape, views, next, args.gemm);  // skips x and the norm's weight
    next -= 2;
  } else if (has_codes(key)) {
    args.gemm.b = weight_of(key, shape, views, next);
  } else {
    ++next;
  }
  args.norm = {.x = views[next],
               .weight = views[next + 1],
               .out = args.gemm.a,
               .eps = is_normal ? 1e-5f : 0.0f};
  args.norm.token_scale = args.gemm.a_scale;
  if (value_of(shape, "residual") != 0) args.gemm.residual = views[next + 2];
  if (value_of(shape, "gated") != 0) {
    args.gemm.activation = Activation::relu;
    args.gemm.is_gated = true;
  }
  args.gemm.b.is_static = true;
  return args;
}

// Before the last rounding: that of a's values, each of which may be the next one on either side,
// and that of the sum.
Bound norm_gemm_bound(RowKey key, const Shape& shape, bool is_normal) {
  const double largest = 8, k = static_cast<double>(value_of(shape, "k"));
  if (!is_normal) {
    // The scale of a norm's codes is 1 / 448 or 1 / 127, which is rounded; so are products with it.
    // What lies between two values of out may then go to either.
    if (has_token_codes(key)) return rounded_twice(key.out, 8 * 0x1p-24, k * 0x1p-24);
    return {.absolute = 0x1p-100};
  }
  double error = has_token_codes(key) ? codes_error(key, shape, largest)
                                      : k * 0x1p-22 * largest + 8 * unit_roundoff(key.in);
  if (value_of(shape, "gated") != 0) error *= 2 * largest;
  return rounded_twice(key.out, 0, error);
}

Problem make_norm_gemm(RowKey key, const Shape& given, Fill fill, uint64_t seed) {
  Shape shape = given;
  shape.push_back({"norm", 1});
  Builder b(shape, fill, seed,
            {"n", "k", "gated", "residual", "group", "zero_points", "bf16_scales", "f16_scales",
             "a_scale", "b_scale", "norm", "separate"});
  const int64_t n = b.get("n"), k = b.get("k");
  const bool is_gated = b.get("gated") != 0, is_normal = b.is_normal();
  const DType values = value_type_of(key);
  Operand& a = b.dense("a", Role::scratch, key.in, {1, k});
  if (has_token_codes(key)) {
    add_codes(b, key, 1, n, k, a);
  } else if (has_codes(key)) {
    add_weight(b, key, n, k);
  } else {
    const Random random = b.random();
    const float deviation = 1.0f / std::sqrt(static_cast<float>(k));
    const int64_t spread = std::max<int64_t>(1, k / 700);
    fill_rows(b.dense("b", Role::input, key.in, {n, k}), [&](int64_t row, int64_t col) {
      const int64_t i = row * k + col;
      if (is_normal) return deviation * random.normal(i);
      const int64_t drawn = random.integer(i, -spread, spread);
      return static_cast<float>(drawn >= -1 && drawn <= 1 ? drawn : 0);
    });
  }
  if (!has_token_codes(key)) {
    const Random x = b.random(), weight = b.random();
    fill_vector(b.dense("x", Role::input, values, {1, k}),
                [&](int64_t i) { return is_normal ? x.normal(i) : x.sign(i); });
    fill_vector(b.dense("norm_weight", Role::input, values, {k}),
                [&](int64_t i) { return is_normal ? 1.0f + 0.25f * weight.normal(i) : 1.0f; });
  }
  const int64_t num_cols = is_gated ? n / 2 : n;
  if (b.get("residual") != 0) {
    const Random residual = b.random();
    fill_vector(b.dense("residual", Role::input, values, {1, num_cols}), [&](int64_t i) {
      return is_normal ? residual.normal(i) : static_cast<float>(residual.integer(i, -4, 4));
    });
  }
  const bool is_separate = b.get("separate") != 0;
  b.dense("out", Role::output, key.out, {1, num_cols}, norm_gemm_bound(key, shape, is_normal));
  const auto call = [=](std::span<const TensorView> views, const Context& ctx) {
    const NormGemmArgs args = norm_gemm_args(key, shape, views, is_normal);
    if (!is_separate) return norm_gemm(args, ctx);
    Context any = ctx;
    any.row = {};  // the name is that of both
    rms_norm(args.norm, any);
    gemm(args.gemm, any);
  };
  const auto product = 2.0 * static_cast<double>(n) * static_cast<double>(k);
  Problem problem = b.finish(call, product + 4.0 * static_cast<double>(k), "");
  problem.is_supported = [=](std::span<const TensorView> views, const Context& ctx) {
    return supports(norm_gemm_args(key, shape, views, is_normal), ctx);
  };
  return problem;
}

bool norm_gemm_fits(RowKey key, const Shape& shape) {
  const bool has_scales = value_of(shape, "a_scale", -1) >= 0;
  if (has_token_codes(key) != has_scales) return false;
  const bool has_groups = value_of(shape, "group", -1) >= 0;
  if (!has_token_codes(key) && has_codes(key) != has_groups) return false;
  const bool is_large = value_of(shape, "n") * value_of(shape, "k") >= int64_t{1} << 24;
  return !is_large || (key.out == DType::bf16);
}

// For every kind of weight: `kind` are the options that choose it.
std::vector<Shape> shapes_of_every_kind(const std::vector<Shape>& shapes) {
  const Shape kinds[] = {
      {}, {{"group", 128}}, {{"group", 64}, {"zero_points", 1}}, {{"a_scale", 1}, {"b_scale", 1}}};
  std::vector<Shape> all;
  for (const Shape& shape : shapes) {
    for (const Shape& kind : kinds) {
      Shape& added = all.emplace_back(shape);
      added.insert(added.end(), kind.begin(), kind.end());
    }
  }
  return all;
}

}  // namespace

ProblemMaker norm_gemm_maker() {
  std::vector<RowKey> keys;
  for (const DType in : {DType::bf16, DType::f16}) {
    for (const DType out : {in, DType::f32}) {
      keys.push_back({in, out});
      keys.push_back({in, out, DType::i4, Packing::fragments});
    }
  }
  for (const DType in : {DType::e4m3, DType::i8}) {
    for (const DType out : {DType::bf16, DType::f16, DType::f32}) keys.push_back({in, out, in});
  }
  const std::vector<Shape> tests{{{"n", 64}, {"k", 512}},
                                 {{"n", 192}, {"k", 1024}, {"residual", 1}},
                                 {{"n", 320}, {"k", 1536}},
                                 {{"n", 64}, {"k", 2048}},
                                 {{"n", 256}, {"k", 1024}},
                                 {{"n", 128}, {"k", 4096}, {"residual", 1}},
                                 {{"n", 512}, {"k", 2048}, {"gated", 1}},
                                 {{"n", 8256}, {"k", 2560}},
                                 {{"n", 6144}, {"k", 4096}}};
  std::vector<Shape> shapes = shapes_of_every_kind(tests);
  shapes.push_back({{"n", 320}, {"k", 1536}, {"group", 128}, {"bf16_scales", 1}});
  shapes.push_back({{"n", 256}, {"k", 1024}, {"group", 64}, {"zero_points", 1}, {"f16_scales", 1}});
  const std::vector<Shape> llama{{{"n", 6144}, {"k", 4096}},
                                 {{"n", 28672}, {"k", 4096}, {"gated", 1}}};
  return {"norm_gemm",
          &make_norm_gemm,
          &norm_gemm_fits,
          keys,
          shapes,
          {{"norm_gemm/llama8b", shapes_of_every_kind(llama)},
           {"norm_gemm/llama1b", shapes_of_every_kind({{{"n", 3072}, {"k", 2048}}})}},
          "gemm"};
}

}  // namespace tessera::bench
