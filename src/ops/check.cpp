// Rules for tensors, and the refusals that name them.
// SPDX-License-Identifier: MIT
#include "ops/check.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "core/text.h"
#include "tessera/core/error.h"
#include "tessera/ops/weight.h"

namespace tessera::ops {
namespace {

std::string list(DTypeSet types) {
  std::string text;
  for (DType type : kAllDTypes) {
    if (!types.has(type)) continue;
    if (!text.empty()) text += ", ";
    text += name(type);
  }
  return text;
}

// A view as num_runs runs of `run` consecutive elements, `stride` apart.
struct Runs {
  int64_t num_runs = 1;
  int64_t run = 1;
  int64_t stride = 0;
};

std::optional<Runs> as_runs(const TensorView& view) {
  Runs runs;
  int d = view.rank - 1;
  for (; d >= 0; --d) {
    if (view.size(d) == 1) continue;
    if (view.stride(d) != runs.run) break;
    runs.run *= view.size(d);
  }
  runs.stride = runs.run;
  bool is_first = true;
  for (; d >= 0; --d) {
    if (view.size(d) == 1) continue;
    if (is_first) {
      runs.stride = view.stride(d);
    } else if (view.stride(d) != runs.stride * runs.num_runs) {
      return std::nullopt;
    }
    is_first = false;
    runs.num_runs *= view.size(d);
  }
  if (runs.stride < runs.run) return std::nullopt;  // runs that overlap or go backwards
  return runs;
}

int64_t address(const TensorView& view) { return reinterpret_cast<int64_t>(view.data); }

// Whether runs of bytes [a, a + a_run) + i * stride and [b, b + b_run) + j * stride meet, for b >=
// a.
bool runs_meet(int64_t a, int64_t a_run, int64_t a_count, int64_t b, int64_t b_run,
               int64_t stride) {
  const int64_t ahead = (b - a) / stride;   // b starts in the ahead-th stride of a
  const int64_t inside = (b - a) % stride;  // and this far into it
  if (inside < a_run && ahead < a_count) return true;
  return inside + b_run > stride && ahead + 1 < a_count;
}

}  // namespace

void expect_tensor(const Named& tensor, DTypeSet types) {
  const TensorView& view = tensor.view;
  if (view.rank < 0 || view.rank > kMaxRank) {
    fail(concat(tensor.what, " has rank ", view.rank, "; at most ", kMaxRank, " is possible"));
  }
  for (int d = 0; d < view.rank; ++d) {
    if (view.size(d) >= 0) continue;
    fail(concat(tensor.what, " has size ", view.size(d), " along axis ", d));
  }
  if (!types.has(view.dtype)) {
    fail(concat(tensor.what, " is ", to_string(view), "; its type must be one of ", list(types)));
  }
  if (view.data == nullptr && view.num_elements() > 0) {
    fail(concat(tensor.what, " is ", to_string(view), " with a null data pointer"));
  }
  const auto alignment = static_cast<uintptr_t>(storage_bytes(view.dtype, 1));
  if (reinterpret_cast<uintptr_t>(view.data) % alignment != 0) {
    fail(concat(tensor.what, " is ", to_string(view), " at an address that is ",
                reinterpret_cast<uintptr_t>(view.data) % alignment,
                " more than a multiple of its elements' ", alignment,
                " bytes; copy it to memory that is aligned"));
  }
  if (view.dtype != DType::i4) return;
  for (int d = 0; d < view.rank - 1; ++d) {
    if (view.size(d) <= 1 || view.stride(d) % 2 == 0) continue;
    fail(concat(tensor.what, " is ", to_string(view), "; i4 rows start at whole bytes, so stride ",
                d, " must be even, not ", view.stride(d)));
  }
}

void expect_tensor(const Named& tensor, DTypeSet types, const Named& first) {
  expect_tensor(tensor, types);
  if (tensor.view.device == first.view.device) return;
  fail(concat(tensor.what, " is on ", to_string(tensor.view.device), " and ", first.what, " on ",
              to_string(first.view.device), "; copy them to one device"));
}

void expect_rank(const Named& tensor, int rank) {
  if (tensor.view.rank == rank) return;
  fail(concat(tensor.what, " is ", to_string(tensor.view), ", of rank ", tensor.view.rank,
              "; its rank must be ", rank));
}

void expect_dtype_of(const Named& tensor, const Named& other) {
  if (tensor.view.dtype == other.view.dtype) return;
  fail(concat(tensor.what, " is ", name(tensor.view.dtype), " and ", other.what, " is ",
              name(other.view.dtype), "; they must have one type"));
}

void expect_shape_of(const Named& tensor, const Named& other) {
  if (tensor.view.same_shape(other.view)) return;
  fail(concat(tensor.what, " is ", to_string(tensor.view), " and ", other.what, " is ",
              to_string(other.view), "; they must have one shape"));
}

void expect_zero_point(const Named& codes, bool has_zero_point) {
  const DType type = codes.view.dtype;
  const WeightCodes* traits = find_weight_codes(type);
  const ZeroPoints rule = traits == nullptr ? ZeroPoints::never : traits->zero_points;
  if (rule == ZeroPoints::always && !has_zero_point) {
    fail(concat(codes.what, " is u8 and there is no zero_point; give one, or use i8"));
  }
  if (rule == ZeroPoints::never && has_zero_point) {
    fail(concat(codes.what, " is ", name(type),
                " and there is a zero_point; only u8 and i4 take one: leave it out"));
  }
}

void expect_table(const Named& codes, const Named& table, bool has_zero_point) {
  if (codes.view.dtype != DType::i4 || has_zero_point) {
    fail(concat(codes.what, " is ", to_string(codes.view), " with a table",
                has_zero_point ? " and zero points" : "",
                "; a table is for i4 without zero points: leave one of them out"));
  }
  expect_tensor(table, {DType::f32}, codes);
  expect_rank(table, 1);
  expect_one_each(table, kTableSize, "code of 4 bits");
  if (!table.view.device.is_cpu()) return;
  for (int64_t i = 0; i < kTableSize; ++i) {
    const float value = table.view.as<float>()[i];
    if (std::isfinite(value)) continue;
    fail(concat(table.what, "[", i, "] is ", value, "; every value must be finite"));
  }
}

void expect_contiguous(const Named& tensor) {
  if (tensor.view.is_contiguous()) return;
  fail(concat(tensor.what, " is ", to_string(tensor.view),
              "; it must be contiguous: make it so with copy"));
}

void expect_one_each(const Named& tensor, int64_t count, std::string_view of_what) {
  if (tensor.view.num_elements() != count) {
    fail(concat(tensor.what, " is ", to_string(tensor.view), " with ", tensor.view.num_elements(),
                " elements; it must have ", count, ", one for each ", of_what));
  }
  expect_contiguous(tensor);
}

Rows expect_rows(const Named& tensor) {
  const Rows rows = as_rows(tensor.view, tensor.what);
  if (rows.num_cols > kMaxCols) {
    fail(concat(tensor.what, " is ", to_string(tensor.view), "; its last axis may have at most ",
                kMaxCols, " elements: split it"));
  }
  return rows;
}

void expect_writable(const Named& tensor) {
  for (int d = 0; d < tensor.view.rank; ++d) {
    if (tensor.view.stride(d) != 0 || tensor.view.size(d) <= 1) continue;
    if (tensor.view.num_elements() == 0) continue;
    fail(concat(tensor.what, " is ", to_string(tensor.view), "; it is written, so axis ", d,
                " may not have stride 0: give it memory of its own"));
  }
}

bool overlap(const TensorView& a, const TensorView& b) {
  if (a.num_elements() == 0 || b.num_elements() == 0) return false;
  if (a.device != b.device) return false;
  if (a.data == b.data) return true;
  const std::optional<Runs> a_runs = as_runs(a);
  const std::optional<Runs> b_runs = as_runs(b);
  if (!a_runs || !b_runs) return false;
  const int64_t a_run = storage_bytes(a.dtype, a_runs->run);
  const int64_t b_run = storage_bytes(b.dtype, b_runs->run);
  const int64_t a_stride = storage_bytes(a.dtype, a_runs->stride);
  const int64_t b_stride = storage_bytes(b.dtype, b_runs->stride);
  const int64_t a_end = address(a) + a_stride * (a_runs->num_runs - 1) + a_run;
  const int64_t b_end = address(b) + b_stride * (b_runs->num_runs - 1) + b_run;
  if (address(a) >= b_end || address(b) >= a_end) return false;
  if (a_runs->num_runs == 1 && b_runs->num_runs == 1) return true;
  // Rows of one matrix: the same stride, different columns. A single run takes the other's stride.
  const int64_t stride = a_runs->num_runs > 1 ? a_stride : b_stride;
  if (b_runs->num_runs > 1 && b_stride != stride) return false;
  if (a_run > stride || b_run > stride) return true;
  return address(b) >= address(a)
             ? runs_meet(address(a), a_run, a_runs->num_runs, address(b), b_run, stride)
             : runs_meet(address(b), b_run, b_runs->num_runs, address(a), a_run, stride);
}

void expect_apart(const Named& out, const Named& other) {
  if (!overlap(out.view, other.view)) return;
  fail(concat(out.what, " is ", to_string(out.view), " and shares memory with ", other.what, ", ",
              to_string(other.view), "; give it memory of its own"));
}

namespace {
// The stride of an axis of one element is never used.
bool is_same(const TensorView& a, const TensorView& b) {
  if (a.data != b.data || a.dtype != b.dtype || !a.same_shape(b)) return false;
  for (int d = 0; d < a.rank; ++d) {
    if (a.size(d) > 1 && a.stride(d) != b.stride(d)) return false;
  }
  return true;
}
}  // namespace

void expect_same_tensor(const Named& tensor, const Named& other) {
  if (is_same(tensor.view, other.view)) return;
  fail(concat(tensor.what, " is ", to_string(tensor.view), " at ", tensor.view.data, " and ",
              other.what, " is ", to_string(other.view), " at ", other.view.data,
              "; they must be the same tensor"));
}

void expect_same_or_apart(const Named& out, const Named& other) {
  const TensorView& a = out.view;
  const TensorView& b = other.view;
  if (is_same(a, b) || !overlap(a, b)) return;
  fail(concat(out.what, " is ", to_string(a), " and shares part of the memory of ", other.what,
              ", ", to_string(b), "; it must be the same view or have memory of its own"));
}

}  // namespace tessera::ops
