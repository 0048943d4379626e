// Checks of weights, and the layouts they are rewritten to: gate and up interleaved, or packed.
// SPDX-License-Identifier: MIT
#include "ops/weight.h"

#include <vector>

#include "core/text.h"
#include "kernels/gemm/rows.h"
#include "tessera/ops/copy.h"
#include "tessera/ops/weight_packing.h"

namespace tessera {
namespace {

using namespace ops;

constexpr int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

bool has_fitting_scale(const Weight& weight) {
  const TensorView& scale = *weight.scale;
  if (scale.rank == 1) return scale.size(0) == 1 || scale.size(0) == weight.n();
  if (scale.rank != 2 || weight.rows_per_scale < 1 || weight.group < 0) return false;
  if (scale.size(0) != divide_up(weight.n(), weight.rows_per_scale)) return false;
  if (weight.k() == 0) return true;
  if (weight.group > 0) return scale.size(1) == divide_up(weight.k(), weight.group);
  return scale.size(1) > 0 && weight.k() % scale.size(1) == 0;
}

// Blocks may be incomplete at the edges; a group of one row may not.
bool has_partial_group(const Weight& weight) {
  return weight.rows_per_scale == 1 && weight.group > 0 && weight.k() % weight.group != 0;
}

// Two i4 codes share a byte and therefore a scale.
bool splits_pairs(const Weight& weight) {
  return weight.values.dtype == DType::i4 && scale_layout(weight).cols_per_scale % 2 != 0;
}

// A permutation of the columns; its contents can be read only on the CPU.
void expect_order(const Weight& weight, const Named& values) {
  const Named order{"weight: order", *weight.order};
  expect_tensor(order, {DType::i32}, values);
  expect_rank(order, 1);
  expect_one_each(order, weight.k(), "column of b");
  if (!order.view.device.is_cpu()) return;
  std::vector<bool> is_used(static_cast<size_t>(weight.k()));
  for (int64_t i = 0; i < weight.k(); ++i) {
    const int64_t column = order.view.as<int32_t>()[i];
    if (column < 0 || column >= weight.k() || is_used[static_cast<size_t>(column)]) {
      fail(concat(order.what, "[", i, "] is ", column, "; each of the ", weight.k(),
                  " columns must occur exactly once"));
    }
    is_used[static_cast<size_t>(column)] = true;
  }
}

void expect_weight_table(const Weight& weight, const Named& values) {
  if (weight.order || weight.packing != Packing::rows) {
    fail(concat(values.what, " is ", to_string(weight.values), " with a table and ",
                weight.order ? "an order" : concat("packed as '", name(weight.packing), "'"),
                "; a table goes with scales alone, in rows: leave the rest out"));
  }
  expect_table(values, {kTableOfWeight, *weight.table}, weight.zero_point.has_value());
}

void expect_fragments(const Weight& weight, const Named& values) {
  const WeightCodes* codes = find_weight_codes(weight.values.dtype);
  if (codes == nullptr || !codes->has_packing) {
    fail(concat(values.what, " is ", to_string(weight.values), " and packed as '",
                name(weight.packing), "'; only i4 has that packing: leave it in rows"));
  }
  if (weight.n() % kFragmentRows != 0 || weight.k() % kFragmentCols != 0) {
    fail(concat(values.what, " is ", to_string(weight.values), " and packed as '",
                name(weight.packing), "'; n and k must be multiples of ", kFragmentRows, " and ",
                kFragmentCols, ": leave it in rows"));
  }
  if (weight.rows_per_scale != 1 || (weight.scale->rank == 1 && weight.scale->size(0) == 1)) {
    fail(concat(values.what, " is packed as '", name(weight.packing),
                "' and a scale serves several rows; give each row its own: repeat it"));
  }
  expect_contiguous(values);
}

// A matrix as [rows / by, by, cols].
TensorView in_groups(const TensorView& matrix, int64_t by) {
  TensorView view = matrix;
  view.rank = 3;
  view.shape = {matrix.size(0) / by, by, matrix.size(1)};
  view.strides = {by * matrix.stride(0), matrix.stride(0), matrix.stride(1)};
  return view;
}

// Something with a row for each row of a weight, as a matrix of whole bytes: a vector gets columns
// of one element, and pairs of i4 become bytes.
TensorView as_matrix(const TensorView& t) {
  TensorView view = t;
  if (t.rank == 1) {
    view.rank = 2;
    view.shape[1] = 1;
    view.strides[1] = 1;
  }
  if (t.dtype == DType::i4) {
    view.dtype = DType::u8;
    view.shape[1] /= 2;
    view.strides[0] /= 2;
  }
  return view;
}

void interleave(const TensorView& gate, const TensorView& up, const TensorView& out,
                const Context& ctx) {
  const TensorView pairs = in_groups(as_matrix(out), 2 * kGateUpRows);
  copy({.x = in_groups(as_matrix(gate), kGateUpRows), .out = pairs.slice(1, 0, kGateUpRows)}, ctx);
  copy({.x = in_groups(as_matrix(up), kGateUpRows),
        .out = pairs.slice(1, kGateUpRows, 2 * kGateUpRows)},
       ctx);
}

constexpr DTypeSet kAnyType = kWholeBytes.with(DType::i4);

// A tensor with a row for each row of gate, its twin of up, and where both go.
void check_interleaved(const Named& gate, const Named& up, const Named& out) {
  expect_tensor(up, kAnyType, gate);
  expect_dtype_of(up, gate);
  expect_shape_of(up, gate);
  expect_tensor(out, kAnyType, gate);
  expect_dtype_of(out, gate);
  const int64_t inter = gate.view.size(0);
  const bool is_matrix = gate.view.rank == 2;
  const bool fits = out.view.rank == gate.view.rank && out.view.size(0) == 2 * inter &&
                    (!is_matrix || out.view.size(1) == gate.view.size(1));
  if (!fits) {
    const std::string cols = is_matrix ? concat(", ", gate.view.size(1)) : std::string();
    fail(concat(out.what, " is ", to_string(out.view), "; for this gate it must be [", 2 * inter,
                cols, "]"));
  }
  for (const Named* tensor : {&gate, &up, &out}) {
    if (tensor->view.dtype == DType::i4) expect_rows(*tensor);
  }
  expect_writable(out);
  expect_apart(out, gate);
  expect_apart(out, up);
}

// One of the optional tensors: all three have it, with a row for each row of the weight, or none.
struct Part {
  std::string_view name;
  const std::optional<TensorView>& gate;
  const std::optional<TensorView>& up;
  const std::optional<TensorView>& out;
};

void check_part(const Part& part, int64_t inter) {
  const bool is_given = part.gate.has_value();
  if (part.up.has_value() != is_given || part.out.has_value() != is_given) {
    fail(concat("pack_gate_up: gate, up and out must all have a ", part.name, ", or none of them"));
  }
  if (!is_given) return;
  const Named gate{"pack_gate_up: scales of gate", *part.gate};
  expect_tensor(gate, kWholeBytes);
  if ((gate.view.rank != 1 && gate.view.rank != 2) || gate.view.size(0) != inter) {
    fail(concat("pack_gate_up: ", part.name, " of gate is ", to_string(gate.view), "; each of its ",
                inter, " rows needs its own: repeat a shared one"));
  }
  check_interleaved(gate, {"pack_gate_up: scales of up", *part.up},
                    {"pack_gate_up: scales of out", *part.out});
}

// One table serves both halves, so gate and up must have the same; on the CPU that can be seen.
void interleave_tables(const PackGateUpArgs& args, const Context& ctx) {
  const auto& [gate, up, out] = args;
  const bool is_given = gate.table.has_value();
  if (up.table.has_value() != is_given || out.table.has_value() != is_given) {
    fail("pack_gate_up: gate, up and out must all have a table, or none of them");
  }
  if (!is_given) return;
  const Named table{"pack_gate_up: table of gate", *gate.table};
  for (const Named& one : {table, Named{"pack_gate_up: table of up", *up.table},
                           Named{"pack_gate_up: table of out", *out.table}}) {
    expect_tensor(one, {DType::f32}, table);
    expect_rank(one, 1);
    expect_one_each(one, kTableSize, "code of 4 bits");
  }
  if (table.view.device.is_cpu()) {
    for (int64_t i = 0; i < kTableSize; ++i) {
      const float of_gate = gate.table->as<float>()[i], of_up = up.table->as<float>()[i];
      if (of_gate == of_up) continue;
      fail(concat("pack_gate_up: table[", i, "] is ", of_gate, " of gate and ", of_up,
                  " of up; one weight has one table: multiply them apart"));
    }
  }
  const bool is_same = out.table->data == gate.table->data || out.table->data == up.table->data;
  if (!is_same) copy({.x = as_matrix(*gate.table), .out = as_matrix(*out.table)}, ctx);
}

}  // namespace

void ops::expect_weight(const Weight& weight, const Named& values, std::string_view scale_name,
                        std::string_view zero_point_name) {
  const bool has_codes = kCodes.has(weight.values.dtype);
  if (weight.is_quantized() != has_codes) {
    fail(concat(values.what, " is ", to_string(weight.values),
                has_codes ? " and has no b_scale; codes need one scale for each row or group"
                          : " and b_scale is given; scales are for codes: leave them out"));
  }
  if (!has_codes) {
    expects(!weight.zero_point && !weight.table && weight.packing == Packing::rows,
            "a weight without codes has neither zero points, a table nor a packing: leave them "
            "out");
    return;
  }
  if (weight.values.rank != 2) {
    fail(concat(values.what, " is ", to_string(weight.values),
                "; a weight of codes must have two axes: dequantize it"));
  }
  const Named scale{scale_name, *weight.scale};
  expect_tensor(scale, weight.packing == Packing::rows ? DTypeSet{DType::f32} : kFloats, values);
  expect_contiguous(scale);
  if (!has_fitting_scale(weight)) {
    fail(concat(scale.what, " is ", to_string(scale.view), " and b is ", to_string(weight.values),
                "; its shape must be [1], [n], or [n / ", weight.rows_per_scale,
                ", groups] with groups that divide k, or k / group of them"));
  }
  if (has_partial_group(weight)) {
    fail(concat(values.what, " is ", to_string(weight.values), " in groups of ", weight.group,
                "; k must be a multiple of the group: pad k, or quantise with another group"));
  }
  if (splits_pairs(weight)) {
    fail(concat(values.what, " is ", to_string(weight.values), " in groups of ",
                scale_layout(weight).cols_per_scale, "; a group of i4 must be even"));
  }
  expect_zero_point(values, weight.zero_point.has_value());
  if (weight.zero_point) {
    const Named zero_point{zero_point_name, *weight.zero_point};
    expect_tensor(zero_point, {DType::i32, DType::u8}, values);
    expect_shape_of(zero_point, scale);
    expect_contiguous(zero_point);
  }
  if (weight.order) expect_order(weight, values);
  if (weight.table) expect_weight_table(weight, values);
  if (weight.packing == Packing::fragments) expect_fragments(weight, values);
}

Packing ops::preferred_packing(const Op<GemmArgs>& op, const GemmArgs& args, const Target& target,
                               const Context& ctx) {
  for (std::span<const Row<GemmArgs>> rows : {op.rows_sm90, op.rows_vendor, op.rows}) {
    for (const Row<GemmArgs>& row : rows) {
      if (row.key.packing == Packing::rows) continue;
      GemmArgs packed = args;
      packed.b.packing = row.key.packing;
      if (packed.b.zero_point) packed.b.zero_point->dtype = DType::u8;  // as packing makes them
      if (find_row(op, packed, target, ctx) != nullptr) return row.key.packing;
    }
  }
  return Packing::rows;
}

PackWeight ops::find_pack(const Op<GemmArgs>& op, const Weight& packed, const Target& target) {
  for (std::span<const Row<GemmArgs>> rows : {op.rows_sm90, op.rows_vendor, op.rows}) {
    for (const Row<GemmArgs>& row : rows) {
      if (row.pack != nullptr && row.key.packing == packed.packing &&
          row.key.weight == packed.values.dtype &&
          runs_on(row.library, target.compute_capability)) {
        return row.pack;
      }
    }
  }
  return nullptr;
}

void pack_gate_up(const PackGateUpArgs& args, const Context& ctx) {
  const Named gate{"pack_gate_up: gate", args.gate.values};
  expect_tensor(gate, kAnyType);
  expect_rank(gate, 2);
  const int64_t inter = gate.view.size(0);
  if (inter % kGateUpRows != 0) {
    fail(concat("pack_gate_up: gate is ", to_string(gate.view), "; its rows must be a multiple of ",
                kGateUpRows, ": add rows of zeros to gate and up"));
  }
  check_interleaved(gate, {"pack_gate_up: up", args.up.values},
                    {"pack_gate_up: out", args.out.values});
  const Part parts[] = {
      {"scale", args.gate.scale, args.up.scale, args.out.scale},
      {"zero_point", args.gate.zero_point, args.up.zero_point, args.out.zero_point}};
  for (const Part& part : parts) check_part(part, inter);
  interleave(args.gate.values, args.up.values, args.out.values, ctx);
  interleave_tables(args, ctx);
  for (const Part& part : parts) {
    if (part.gate) interleave(*part.gate, *part.up, *part.out, ctx);
  }
}

}  // namespace tessera
