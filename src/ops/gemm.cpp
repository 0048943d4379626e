// gemm: what it takes, and where it runs.
// SPDX-License-Identifier: MIT
#include "tessera/ops/gemm.h"

#include <algorithm>

#include "core/text.h"
#include "cpu/gemm.h"
#include "kernels/gemm/rows.h"
#include "ops/check.h"
#include "ops/dispatch.h"
#include "ops/product_check.h"
#include "ops/registry.h"
#include "ops/weight.h"

namespace tessera {
namespace {

using namespace ops;

constexpr std::string_view kScaleOfB = "gemm: b_scale";
constexpr std::string_view kZeroPointOfB = "gemm: b_zero_point";

// Matrices in the last two axes, with contiguous rows; an optional first axis counts them.
void expect_matrices(const Named& tensor) {
  const TensorView& view = tensor.view;
  if (view.rank != 2 && view.rank != 3) {
    fail(concat(tensor.what, " is ", to_string(view), ", of rank ", view.rank,
                "; its rank must be 2, or 3 with a batch axis"));
  }
  for (int d = 0; d < view.rank; ++d) {
    if (view.size(d) <= kMaxCols) continue;
    fail(concat(tensor.what, " is ", to_string(view), "; an axis may have at most ", kMaxCols,
                " elements: split it"));
  }
  if (view.size(-1) > 1 && view.stride(-1) != 1 && view.num_elements() > 0) {
    fail(concat(tensor.what, " is ", to_string(view),
                "; its innermost axis must be contiguous: copy it first"));
  }
}

constexpr std::string_view kScaleOfA = "gemm: a_scale";
constexpr int64_t kTokenGroup = 128;  // elements of k under one of several scales of a row of a

// The codes of a, and those of b that they can be multiplied with.
struct CodePair {
  DType a, b;
  bool takes_i4;  // as b, too
};
constexpr CodePair kCodePairs[] = {{DType::i8, DType::i8, true},
                                   {DType::u8, DType::i8, false},
                                   {DType::e4m3, DType::e4m3, true},
                                   {DType::i4, DType::i4, true}};

// Codes of a, and the weight they can be multiplied with.
void check_codes(const GemmArgs& args, const Named& a, const Named& b) {
  const Named scale{kScaleOfA, *args.a_scale};
  expect_tensor(scale, {DType::f32}, a);
  expect_contiguous(scale);
  expect_rank(a, 2);
  const int64_t m = a.view.size(0), k = a.view.size(1);
  const TensorView& s = scale.view;
  const bool is_per_group = s.rank == 2;
  const bool fits = is_per_group
                        ? s.size(0) == m && k % kTokenGroup == 0 && s.size(1) == k / kTokenGroup
                        : s.rank == 1 && (s.size(0) == 1 || s.size(0) == m);
  if (!fits) {
    fail(concat(kScaleOfA, " is ", to_string(s), "; for a of ", m, " rows of ", k,
                " codes it must be [1], [", m, "], or, if k is a multiple of ", kTokenGroup, ", [",
                m, ", k / ", kTokenGroup, "]"));
  }
  const CodePair& pair = *std::ranges::find(kCodePairs, a.view.dtype, &CodePair::a);
  const bool is_pair = b.view.dtype == pair.b || (b.view.dtype == DType::i4 && pair.takes_i4);
  if (!is_pair || !args.b.scale || args.b.zero_point || args.b.order || args.b.table) {
    fail(concat("gemm: a is ", to_string(a.view), " with a_scale and b is ", to_string(b.view),
                "; b must be codes of ", name(pair.b),
                pair.takes_i4 && pair.b != DType::i4 ? " or i4" : "",
                " with scales, without zero points or a table, in the order of a's columns"));
  }
  if (args.b.packing != Packing::rows) {
    fail(concat("gemm: a is ", to_string(a.view), " with a_scale and b is packed as '",
                name(args.b.packing), "'; beside codes b must be in rows"));
  }
  const ScaleLayout scales = scale_layout(args.b);
  const int64_t other = is_per_group ? kTokenGroup : k;
  if (k > 0 && scales.scales_per_row > 1 &&
      std::max(scales.cols_per_scale, other) % std::min(scales.cols_per_scale, other) != 0) {
    fail(concat("gemm: a has a scale for ", other, " elements of k and b for ",
                scales.cols_per_scale, "; one must be a multiple of the other"));
  }
  if (args.a_zero_point.has_value() != (a.view.dtype == DType::u8)) {
    fail(concat("gemm: a is ", to_string(a.view), args.a_zero_point ? " and a" : " and no",
                " a_zero_point is given; codes of u8 need one, and no others have it"));
  }
  if (!args.a_zero_point) return;
  const Named zero{"gemm: a_zero_point", *args.a_zero_point};
  expect_tensor(zero, {DType::i32}, a);
  expect_contiguous(zero);
  if (is_per_group || scales.scales_per_row > 1 || zero.view.rank != 1 ||
      (zero.view.size(0) != 1 && zero.view.size(0) != m)) {
    fail(concat("gemm: a_zero_point is ", to_string(zero.view), " and a_scale ", to_string(s),
                "; it must be [1] or [", m, "], and no scale may change along k"));
  }
  if (!args.b.row_sums) {
    if (a.view.device.is_cpu()) return;
    fail("gemm: a has zero points and b no row_sums; make them once with sum_weight_rows");
  }
  const Named sums{"gemm: row_sums of b", *args.b.row_sums};
  expect_tensor(sums, {DType::f32}, a);
  expect_one_each(sums, args.b.n(), "row of b");
}

void check_factors(const GemmArgs& args, const Named& a, const Named& b) {
  constexpr DTypeSet kTokenCodes = {DType::i8, DType::u8, DType::e4m3, DType::i4};
  if (!args.a_scale && kTokenCodes.has(a.view.dtype)) {
    fail(concat("gemm: a is ", to_string(a.view), " and has no a_scale; codes need their scales"));
  }
  if (!args.a_scale && args.a_zero_point) {
    fail("gemm: a_zero_point is given and a_scale is not; only codes have zero points");
  }
  expect_tensor(a, args.a_scale ? kTokenCodes : kFloats);
  expect_matrices(a);
  expect_tensor(b, kCodes.with(a.view.dtype), a);
  if (a.view.rank == 2) expect_rank(b, 2);
  expect_matrices(b);
  if (a.view.size(-1) != b.view.size(-1)) {
    fail(concat("gemm: a is ", to_string(a.view), " and b is ", to_string(b.view),
                "; a is [m, k] and b [n, k]: they must agree in k"));
  }
  if (b.view.rank == 3 && b.view.size(0) != a.view.size(0)) {
    fail(concat("gemm: a is ", to_string(a.view), " and b is ", to_string(b.view),
                "; b must have as many matrices as a, or be one [n, k] for all"));
  }
  expect_weight(args.b, b, kScaleOfB, kZeroPointOfB);
  if (args.a_scale) check_codes(args, a, b);
  if (args.b.packing > Packing::fragments && a.view.device.is_cpu()) {
    fail(concat("gemm: b is packed as '", name(args.b.packing),
                "'; on the cpu it must be in rows or fragments"));
  }
  if (args.b.order && !a.view.device.is_cpu()) {
    fail(
        "gemm: b has an order of its columns, which only the cpu applies; on a GPU gather the "
        "columns of a by it first and leave it out");
  }
}

void check_activation(const GemmArgs& args) {
  expects(!args.activation || *args.activation <= Activation::gelu_tanh,
          "gemm: activation is none of relu, silu, gelu and gelu_tanh");
  if (!args.is_gated) return;
  expects(args.activation.has_value(),
          "gemm: is_gated is set and activation is not; say which function the gate passes");
  if (args.b.n() % (2 * kGateUpRows) == 0) return;
  fail(concat("gemm: b is ", to_string(args.b.values),
              " and is_gated is set; its n must be a multiple of ", 2 * kGateUpRows,
              ": make it with pack_gate_up"));
}

void check_shape_of_out(const GemmArgs& args, const Named& out) {
  expect_matrices(out);
  const int64_t m = args.a.size(-2);
  const int64_t num_cols = args.is_gated ? args.b.n() / 2 : args.b.n();
  const bool has_batch = args.a.rank == 3;
  const TensorView& view = out.view;
  if (view.rank == args.a.rank && view.size(-2) == m && view.size(-1) == num_cols &&
      (!has_batch || view.size(0) == args.a.size(0))) {
    return;
  }
  const std::string batch = has_batch ? concat(args.a.size(0), ", ") : std::string();
  fail(concat("gemm: out is ", to_string(view), "; for this a and b it must be [", batch, m, ", ",
              num_cols, "]"));
}

void check_out_scale(const GemmArgs& args, const Named& a, const Named& out) {
  const bool has_codes = out.view.dtype == DType::e4m3 || out.view.dtype == DType::i8;
  if (args.out_scale.has_value() != has_codes) {
    fail(concat("gemm: out is ", to_string(out.view),
                has_codes ? " and has no out_scale; codes need the scale they are counted in"
                          : " and out_scale is given; scales are for codes: leave it out"));
  }
  if (!has_codes) return;
  const Named scale{"gemm: out_scale", *args.out_scale};
  expect_tensor(scale, {DType::f32}, a);
  expect_rank(scale, 1);
  expect_one_each(scale, 1, "out");
  expect_apart(out, scale);
}

// Of the type of a; where a holds codes, of value_type.
void expect_values(const Named& tensor, const Named& a, const GemmArgs& args) {
  if (args.a_scale) return expect_tensor(tensor, {value_type(args)}, a);
  expect_tensor(tensor, kFloats, a);
  expect_dtype_of(tensor, a);
}

const Op<GemmArgs>& gemm_op() {
  static const Op<GemmArgs> op{"gemm",
                               &check_gemm,
                               &cpu::gemm,
                               kernels::gemm_rows_sm90(),
                               kernels::gemm_rows(),
                               kernels::gemm_rows_cublaslt()};
  return op;
}

}  // namespace

void ops::check_gemm(const GemmArgs& args) {
  const Named a{"gemm: a", args.a};
  const Named b{"gemm: b", args.b.values};
  const Named out{"gemm: out", args.out};
  check_factors(args, a, b);
  check_activation(args);
  const DType values = value_type(args);
  expect_tensor(out, {values, DType::f32, DType::e4m3, DType::i8}, a);
  check_shape_of_out(args, out);
  check_out_scale(args, a, out);
  expect_writable(out);
  expect_apart(out, a);
  expect_apart(out, b);
  if (args.a_scale) expect_apart(out, {kScaleOfA, *args.a_scale});
  if (args.b.scale) expect_apart(out, {kScaleOfB, *args.b.scale});
  if (args.b.zero_point) expect_apart(out, {kZeroPointOfB, *args.b.zero_point});
  if (args.b.table) expect_apart(out, {kTableOfWeight, *args.b.table});
  if (args.bias) {
    const Named bias{"gemm: bias", *args.bias};
    expect_values(bias, a, args);
    expect_rank(bias, 1);
    expect_one_each(bias, args.b.n(), "row of b");
    expect_apart(out, bias);
  }
  if (args.residual) {
    const Named residual{"gemm: residual", *args.residual};
    expect_values(residual, a, args);
    expect_shape_of(residual, out);
    expect_matrices(residual);
    expect_same_or_apart(out, residual);
  }
}

void gemm(const GemmArgs& args, const Context& ctx) {
  if (ctx.product_inputs == nullptr) return run(gemm_op(), args, args.a.device, ctx);
  GemmArgs seen = args;
  seen.a = ctx.product_inputs->see(args.a, args.b.values);
  run(gemm_op(), seen, seen.a.device, ctx);
}

std::string ops::served_row(const GemmArgs& args, const Context& ctx) {
  const Target target = target_of(gemm_op(), args.a.device);
  const Row<GemmArgs>* row = find_row(gemm_op(), args, target, ctx);
  return row == nullptr ? "" : row->name();
}

bool supports(const GemmArgs& args, const Context& ctx) {
  return is_supported(gemm_op(), args, args.a.device, ctx);
}

void sum_weight_rows(const SumWeightRowsArgs& args, const Context& ctx) {
  const Named values{"sum_weight_rows: values", args.values};
  const Named out{"sum_weight_rows: out", args.out};
  expect_tensor(values, {DType::i8});
  expect_rank(values, 2);
  expect_tensor(out, {DType::f32}, values);
  expect_rank(out, 1);
  expect_one_each(out, args.values.size(0), "row of values");
  expect_writable(out);
  const int64_t k = args.values.size(1);
  // A product with a row of ones: exact, and it runs where the weight is.
  Tensor ones(DType::i8, {1, k}), one(DType::f32, {1});
  std::fill_n(ones.view().as<int8_t>(), k, int8_t{1});
  *one.view().as<float>() = 1.0f;
  const Device device = args.values.device;
  const Tensor row = ones.to(device), scale = one.to(device);
  const TensorView out_row =
      TensorView::contiguous(args.out.data, DType::f32, {1, args.values.size(0)}, device);
  gemm({.a = row,
        .b = Weight{.values = args.values, .scale = scale},
        .out = out_row,
        .a_scale = scale},
       ctx);
  synchronize(device, ctx.stream);
}

Packing preferred_packing(const GemmArgs& args, const Context& ctx) {
  check_gemm(args);
  if (args.a.device.is_cpu()) return Packing::rows;
  return ops::preferred_packing(gemm_op(), args, target_of(gemm_op(), args.a.device), ctx);
}

namespace {

// Both weights have the optional tensor, or neither. Its type may differ, and is checked with each.
void check_part(std::string_view what, const std::optional<TensorView>& from,
                const std::optional<TensorView>& to) {
  if (from.has_value() != to.has_value()) {
    fail(concat("pack_weight: weight and out must both have a ", what, ", or neither"));
  }
  if (!from) return;
  const Named source{"pack_weight: part of weight", *from}, out{"pack_weight: part of out", *to};
  expect_shape_of(out, source);
  expect_writable(out);
  expect_apart(out, source);
}

}  // namespace

void pack_weight(const PackWeightArgs& args, const Context& ctx) {
  const Named weight{"pack_weight: weight", args.weight.values};
  const Named out{"pack_weight: out", args.out.values};
  expect_tensor(weight, kCodes);
  expect_weight(args.weight, weight, "pack_weight: scale", "pack_weight: zero_point");
  expect_tensor(out, kCodes, weight);
  expect_dtype_of(out, weight);
  expect_shape_of(out, weight);
  expect_weight(args.out, out, "pack_weight: scale of out", "pack_weight: zero_point of out");
  expect_apart(out, weight);
  check_part("scale", args.weight.scale, args.out.scale);
  check_part("zero_point", args.weight.zero_point, args.out.zero_point);
  expects(!args.weight.order && !args.out.order,
          "pack_weight: an order of columns is not packed; leave it out of both weights");
  const bool is_one_step =
      (args.weight.packing == Packing::rows) != (args.out.packing == Packing::rows);
  const Weight& packed = args.out.packing == Packing::rows ? args.weight : args.out;
  const Device device = args.out.values.device;
  PackWeight pack = nullptr;
  if (is_one_step && device.is_cpu() && packed.packing == Packing::fragments) {
    pack = [](const Weight& from, const Weight& to, const Context&) { cpu::pack_weight(from, to); };
  } else if (is_one_step && !device.is_cpu()) {
    pack = find_pack(gemm_op(), packed, target_of(gemm_op(), device));
  }
  if (pack == nullptr) {
    fail(concat("pack_weight: no row packs ", name(args.weight.values.dtype), " from '",
                name(args.weight.packing), "' to '", name(args.out.packing), "' on ",
                to_string(device), "; ask preferred_packing"));
  }
  if (device.is_cpu()) return pack(args.weight, args.out, ctx);
  const DeviceGuard guard(device);
  pack(args.weight, args.out, ctx);
}

}  // namespace tessera
