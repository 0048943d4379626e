// pack_gate_up: the rows of two weights in turn, by two strided copies.
// SPDX-License-Identifier: MIT
#include "core/text.h"
#include "ops/check.h"
#include "tessera/core/error.h"
#include "tessera/ops/copy.h"
#include "tessera/ops/gemm.h"

namespace tessera {
namespace {

using namespace ops;

void check(const PackGateUpArgs& args) {
  const Named gate{"pack_gate_up: gate", args.gate};
  const Named up{"pack_gate_up: up", args.up};
  const Named out{"pack_gate_up: out", args.out};
  expect_tensor(gate, kWholeBytes);
  expect_rank(gate, 2);
  expect_tensor(up, kWholeBytes, gate);
  expect_dtype_of(up, gate);
  expect_shape_of(up, gate);
  expect_tensor(out, kWholeBytes, gate);
  expect_dtype_of(out, gate);
  const int64_t inter = gate.view.size(0), k = gate.view.size(1);
  if (inter % kGateUpRows != 0) {
    fail(concat("pack_gate_up: gate is ", to_string(gate.view), "; its rows must be a multiple of ",
                kGateUpRows, ": add rows of zeros to gate and up"));
  }
  if (out.view.rank != 2 || out.view.size(0) != 2 * inter || out.view.size(1) != k) {
    fail(concat("pack_gate_up: out is ", to_string(out.view), "; for this gate it must be [",
                2 * inter, ", ", k, "]"));
  }
  expect_writable(out);
  expect_apart(out, gate);
  expect_apart(out, up);
}

// A matrix as [rows / by, by, cols].
TensorView in_groups(const TensorView& matrix, int64_t by) {
  TensorView view = matrix;
  view.rank = 3;
  view.shape = {matrix.size(0) / by, by, matrix.size(1)};
  view.strides = {by * matrix.stride(0), matrix.stride(0), matrix.stride(1)};
  return view;
}

}  // namespace

void pack_gate_up(const PackGateUpArgs& args, const Context& ctx) {
  check(args);
  const TensorView out = in_groups(args.out, 2 * kGateUpRows);
  copy({.x = in_groups(args.gate, kGateUpRows), .out = out.slice(1, 0, kGateUpRows)}, ctx);
  copy({.x = in_groups(args.up, kGateUpRows), .out = out.slice(1, kGateUpRows, 2 * kGateUpRows)},
       ctx);
}

}  // namespace tessera
