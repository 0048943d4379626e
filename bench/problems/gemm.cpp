// Problems for the matrix product: what is exact, what is close, and the shapes of its workloads.
// SPDX-License-Identifier: MIT
//
// Options beside m, n and k: batch (absent: two axes), shared_b (one b for the batch), bias,
// activation (0: none, else 1 + the value of Activation), gated, residual (1: apart, 2: out
// itself), gap and gap_out (elements between the rows of a and b, and of out and residual), offset
// (before every operand), tf32 (its presence makes a problem for f32 alone), static_b; group (its
// presence makes a problem for quantised weights alone), zero_points, rows_per_scale and in_rows
// (for codes in Packing::rows alone), bf16_scales and f16_scales (for packed codes alone); a_scale
// (its presence makes a problem for codes on both sides), b_scale and sums_in_float.
#include "tessera/ops/gemm.h"

#include <algorithm>

#include "bench/problems/builder.h"
#include "bench/problems/gemm_codes.h"
#include "bench/problems/gemm_shapes.h"
#include "bench/problems/gemm_weight.h"
#include "bench/problems/makers.h"
#include "core/parallel.h"
#include "ops/registry.h"

namespace tessera::bench {
namespace {

// The largest magnitude expected of random data of variance 1, sums included: ten standard
// deviations, which one value in 10^22 exceeds.
constexpr double kDeviations = 10;
constexpr int64_t kMostSmall = 8;  // |bias| and |residual| of integer problems

struct Options {
  int64_t m, n, k, batch, gap, gap_out, activation, residual;
  bool has_batch, shares_b, has_bias, is_gated, is_normal, allows_tf32, is_b_static;

  int64_t num_cols() const { return is_gated ? n / 2 : n; }
  bool is_transcendental() const { return activation > 1 + static_cast<int64_t>(Activation::relu); }
};

Options options_of(const Builder& b) {
  Options o{};
  o.m = b.get("m");
  o.n = b.get("n");
  o.k = b.get("k");
  o.has_batch = b.get("batch", -1) >= 0;
  o.batch = b.get("batch", 1);
  o.gap = b.get("gap");
  o.gap_out = b.get("gap_out");
  o.activation = b.get("activation");
  o.residual = b.get("residual");
  o.shares_b = b.get("shared_b") != 0;
  o.has_bias = b.get("bias") != 0;
  o.is_gated = b.get("gated") != 0;
  o.is_normal = b.is_normal();
  o.allows_tf32 = b.get("tf32") != 0;
  o.is_b_static = b.get("static_b") != 0;
  return o;
}

// The scale of quantised outputs. For integers a power of two, so that no quotient is rounded
// before it becomes a code; larger for gated outputs, which are products of two sums.
float out_scale_of(const Options& o) { return o.is_normal ? 0.03f : o.is_gated ? 64.0f : 0.5f; }

// How far two implementations may differ before the last rounding. Integer data is small enough
// that every sum is exact in float: with no activation, or ReLU, all agree and round once. Random
// data: a and the sums have variance 1, so each of k additions has an error below 2^-23 of
// kDeviations on either side; tf32 rounds both factors by up to 2^-10, and a GPU the values of a
// table to the type of a, by up to 2^-9 or 2^-12; no activation is steeper than 1.13.
Bound bound_of(RowKey key, const Options& o, const Shape& shape) {
  // The sign of a zero is not compared: it depends on where a sum starts.
  if (!o.is_normal && !o.is_transcendental()) return {.absolute = 0x1p-100};
  const auto k = static_cast<double>(o.k);
  const double largest = o.is_normal ? kDeviations : 256;
  double sum_error = 0;
  const double of_table = !key.has_table ? 0 : key.in == DType::bf16 ? 0x1p-9 : 0x1p-12;
  if (o.is_normal) sum_error = (k * 0x1p-22 + (o.allows_tf32 ? 0x1p-9 : 0) + of_table) * largest;
  if (o.is_normal && has_token_codes(key)) sum_error = codes_error(key, shape, largest);
  double error = sum_error, relative = 0;
  if (o.is_transcendental()) {
    error = 1.13 * sum_error + 2e-6;
    relative = key.in == DType::f32 ? 0x1p-21 : 0x1p-14;
  }
  if (o.is_gated) error = largest * (error + sum_error);
  if (o.residual != 0) error += relative * (o.is_normal ? kDeviations : double{kMostSmall});
  if (o.is_normal) error += 0x1p-22 * largest * (o.is_gated ? largest : 1.0);
  const double code_error = error / out_scale_of(o);
  switch (key.out) {  // codes of neighbouring values are neighbours
    case DType::i8: return {.absolute = code_error + 1, .relative = relative};
    case DType::e4m3: return {.absolute = code_error + 0x1p-9, .relative = relative + 0x1p-3};
    default: return rounded_twice(key.out, relative, error);
  }
}

Operand& matrices(Builder& b, const Options& o, std::string_view name, Role role, DType dtype,
                  bool has_batch, int64_t rows, int64_t cols, int64_t gap, Bound bound = {}) {
  const int64_t stride = cols + gap;
  if (!has_batch) {
    return b.strided(name, role, dtype, {rows, cols}, {stride, 1}, rows * stride, bound);
  }
  const int64_t matrix = rows * stride + gap;
  return b.strided(name, role, dtype, {o.batch, rows, cols}, {matrix, stride, 1}, o.batch * matrix,
                   bound);
}

// Sets the elements to value(0), value(1), ... in row-major order; after a million they repeat.
template <class Value>
void fill_repeating(Operand& operand, const Value& value) {
  if (operand.host.size_bytes() == 0) return;
  const size_t rank = operand.shape.size();
  const int64_t num_cols = operand.shape[rank - 1], rows_each = operand.shape[rank - 2];
  const int64_t num_rows = rows_each * (rank == 3 ? operand.shape[0] : 1);
  const RepeatingValues values(operand.host.view().dtype, num_rows * num_cols, value);
  parallel_for(num_rows, num_cols, [&](int64_t row) {
    const int64_t place = operand.offset + row / rows_each * (rank == 3 ? operand.strides[0] : 0) +
                          row % rows_each * operand.strides[rank - 2];
    values.copy(row * num_cols, num_cols, operand.host, place);
  });
}

// a and residual: variance 1, or small integers.
void fill_values(Operand& operand, const Options& o, Random random, int64_t most) {
  fill_repeating(operand, [=](int64_t i) {
    return o.is_normal ? random.normal(i) : static_cast<float>(random.integer(i, -most, most));
  });
}

// b: random, so that sums over k have variance 1; or 1, -1 and 0, with more zeros the longer k is,
// so that sums over a in [-2, 2] stay below 256, which every output type can represent.
void fill_weight(Operand& operand, const Options& o, Random random) {
  const float deviation = 1.0f / std::sqrt(static_cast<float>(std::max<int64_t>(1, o.k)));
  const int64_t spread = std::max<int64_t>(1, o.k / 700);
  fill_repeating(operand, [=](int64_t i) {
    if (o.is_normal) return deviation * random.normal(i);
    const int64_t drawn = random.integer(i, -spread, spread);
    return static_cast<float>(drawn >= -1 && drawn <= 1 ? drawn : 0);
  });
}

bool stores_codes(RowKey key) { return key.out == DType::e4m3 || key.out == DType::i8; }

// Operands in the order in which make_gemm adds them.
GemmArgs args_of(RowKey key, const Shape& shape, const Options& o,
                 std::span<const TensorView> views) {
  GemmArgs args{.a = views[0], .b = views[1], .out = views.back()};
  size_t next = 1;
  if (has_token_codes(key)) {
    take_codes(key, shape, views, next, args);
  } else if (has_codes(key)) {
    args.b = weight_of(key, shape, views, next);
  } else {
    ++next;
  }
  if (o.has_bias) args.bias = views[next++];
  if (o.residual == 1) args.residual = views[next++];
  if (o.residual == 2) args.residual = args.out;
  if (stores_codes(key)) args.out_scale = views[next];
  if (o.activation > 0) args.activation = static_cast<Activation>(o.activation - 1);
  args.is_gated = o.is_gated;
  args.allow_tf32 = o.allows_tf32;
  args.b.is_static = o.is_b_static;
  return args;
}

Problem make_gemm(RowKey key, const Shape& shape, Fill fill, uint64_t seed) {
  Builder b(shape, fill, seed, {"m",           "n",
                                "k",           "batch",
                                "shared_b",    "bias",
                                "activation",  "gated",
                                "residual",    "gap",
                                "gap_out",     "offset",
                                "tf32",        "static_b",
                                "special",     "group",
                                "zero_points", "a_scale",
                                "b_scale",     "sums_in_float",
                                "in_rows",     "rows_per_scale",
                                "bf16_scales", "f16_scales",
                                "norm"});
  const Options o = options_of(b);
  const int64_t special = b.get("special");
  const auto add = [&](std::string_view name, Role role, DType dtype, int64_t cols, int64_t gap,
                       Bound bound = {}) -> Operand& {
    Operand& operand = matrices(b, o, name, role, dtype, o.has_batch, o.m, cols, gap, bound);
    operand.is_per_row = !o.has_batch;
    return operand;
  };
  const DType values = value_type_of(key);
  const bool has_norm = b.get("norm") != 0;
  Operand& a = add("a", has_norm ? Role::scratch : Role::input, key.in, o.k, o.gap);
  if (!has_token_codes(key)) fill_values(a, o, b.random(), 2);
  if (special != 0 && a.host.size_bytes() != 0) {
    const int64_t place = o.m / 2 * (o.k + o.gap) + o.k / 2;
    store(a.host.view(), a.offset + place, special_value(special));
  }
  if (has_token_codes(key)) {
    add_codes(b, key, o.m, o.n, o.k, a);
  } else if (has_codes(key)) {
    add_weight(b, key, o.n, o.k);
  } else {
    const bool has_many_b = o.has_batch && !o.shares_b;
    fill_weight(matrices(b, o, "b", Role::input, key.in, has_many_b, o.n, o.k, o.gap), o,
                b.random());
  }
  const Random bias_values = b.random(), residual_values = b.random();
  if (o.has_bias) {
    Operand& bias = b.dense("bias", Role::input, values, {o.n});
    fill_vector(bias, [&](int64_t i) {
      return o.is_normal ? 0.5f * bias_values.normal(i)
                         : static_cast<float>(bias_values.integer(i, -kMostSmall, kMostSmall));
    });
  }
  if (o.residual == 1) {
    fill_values(add("residual", Role::input, values, o.num_cols(), o.gap_out), o, residual_values,
                kMostSmall);
  }
  if (stores_codes(key)) {
    fill_vector(b.dense("out_scale", Role::input, DType::f32, {1}),
                [&](int64_t) { return out_scale_of(o); });
  }
  const bool is_in_place = o.residual == 2;
  Operand& out = add("out", is_in_place ? Role::in_out : Role::output, key.out, o.num_cols(),
                     o.gap_out, bound_of(key, o, shape));
  if (is_in_place) fill_values(out, o, residual_values, kMostSmall);
  const auto call = [=](std::span<const TensorView> views, const Context& ctx) {
    if (has_norm) {
      Context any = ctx;
      any.row = {};  // the name is that of a product's
      rms_norm(norm_of(fill, views), any);
    }
    gemm(args_of(key, shape, o, views), ctx);
  };
  const double flops = 2.0 * static_cast<double>(o.batch * o.m * o.n) * static_cast<double>(o.k);
  Problem problem = b.finish(call, flops, o.has_batch ? "" : "m");
  problem.is_supported = [=](std::span<const TensorView> views, const Context& ctx) {
    return supports(args_of(key, shape, o, views), ctx);
  };
  problem.served_row = [=](std::span<const TensorView> views) {
    return ops::served_row(args_of(key, shape, o, views));
  };
  return problem;
}

// Large weights occur in workloads, which run in bf16; those with an activation in f16 too.
bool gemm_fits(RowKey key, const Shape& shape) {
  if (has_token_codes(key) != (value_of(shape, "a_scale", -1) >= 0)) return false;
  if (has_token_codes(key)) {
    const bool has_blocks = value_of(shape, "a_scale") == 2 || value_of(shape, "b_scale") >= 2 ||
                            value_of(shape, "sums_in_float") != 0;
    if (key.in == DType::u8 && has_blocks) return false;
    if (key.weight != DType::i4 && value_of(shape, "b_scale") > 3) return false;
    // Norms write codes of a byte.
    const bool is_normed = key.in == DType::i8 || key.in == DType::e4m3;
    if (value_of(shape, "norm") != 0 && (key.out != DType::bf16 || !is_normed)) return false;
    const bool is_large = value_of(shape, "n") * value_of(shape, "k") >= int64_t{1} << 24;
    return !is_large || (key.out == DType::bf16 && key.in != DType::u8);
  }
  if (has_codes(key) != (value_of(shape, "group", -1) >= 0)) return false;
  if (has_codes(key)) {
    const bool has_half_scales =
        value_of(shape, "bf16_scales") != 0 || value_of(shape, "f16_scales") != 0;
    const bool is_packed = key.packing != Packing::rows;
    if (is_packed ? value_of(shape, "in_rows") != 0 : has_half_scales) return false;
  }
  if (key.has_table && value_of(shape, "zero_points") != 0) return false;
  if (has_codes(key)) {
    const ZeroPoints has = find_weight_codes(key.weight)->zero_points;
    const bool is_given = value_of(shape, "zero_points") != 0;
    if (has != ZeroPoints::optional && is_given != (has == ZeroPoints::always)) return false;
  }
  if (value_of(shape, "tf32", -1) >= 0) return key.in == DType::f32;
  if (value_of(shape, "n") * value_of(shape, "k") >= int64_t{1} << 24) {
    if (key.in != key.out || key.in == DType::f32) return false;
    return key.in == DType::bf16 || value_of(shape, "activation") > 0;
  }
  return value_of(shape, "residual") != 2 || key.in == key.out;
}

}  // namespace

ProblemMaker gemm_maker() {
  std::vector<RowKey> keys;
  for (const DType in : {DType::bf16, DType::f16}) {
    for (const DType out : {in, DType::f32, DType::e4m3, DType::i8}) keys.push_back({in, out});
  }
  keys.push_back({DType::f32, DType::f32});
  for (const DType in : {DType::bf16, DType::f16}) {
    for (const DType out : {in, DType::f32, DType::e4m3, DType::i8}) {
      keys.push_back({in, out, DType::i4, Packing::fragments});
    }
    for (const DType weight : {DType::i4, DType::i8, DType::u8, DType::e4m3}) {
      for (const DType out : {in, DType::f32}) keys.push_back({in, out, weight});
    }
    for (const DType out : {in, DType::f32}) {
      keys.push_back(RowKey(in, out, DType::i4).with_table());
    }
  }
  for (const DType in : {DType::e4m3, DType::i8}) {
    for (const DType out : {DType::bf16, DType::f16, DType::f32, in}) keys.push_back({in, out, in});
  }
  for (const DType out : {DType::bf16, DType::f32}) keys.push_back({DType::u8, out, DType::i8});
  for (const DType in : {DType::i8, DType::e4m3, DType::i4}) {
    for (const DType out : {DType::bf16, DType::f16, DType::f32}) {
      keys.push_back({in, out, DType::i4});
    }
    if (in != DType::i4) keys.push_back({in, in, DType::i4});
  }
  std::vector<Shape> shapes = gemm_test_shapes();
  for (const Shape& shape : codes_test_shapes()) shapes.push_back(shape);
  for (const Shape& shape : quantized_test_shapes()) shapes.push_back(shape);
  std::vector<Workload> workloads = gemm_workloads();
  for (const Workload& workload : quantized_workloads()) workloads.push_back(workload);
  for (const Workload& workload : codes_workloads()) workloads.push_back(workload);
  return {"gemm", &make_gemm, &gemm_fits, keys, shapes, workloads, "gemm"};
}

}  // namespace tessera::bench
