// Products of two quantised operands: their codes, scales and shapes.
// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <vector>

#include "bench/problems/builder.h"
#include "tessera/ops/gemm.h"
#include "tessera/ops/norm.h"

namespace tessera::bench {

// Whether a row of this key takes codes as a.
constexpr bool has_token_codes(RowKey key) {
  return key.in == DType::i8 || key.in == DType::u8 || key.in == DType::e4m3 || key.in == DType::i4;
}
// The type of bias and residual.
constexpr DType value_type_of(RowKey key) {
  if (!has_token_codes(key)) return key.in;
  return key.out == DType::f16 ? DType::f16 : DType::bf16;
}

// Adds a_scale, a_zero_point for u8, b and b_scale; `a` is filled. The option "a_scale" says what
// shares a scale of a: 0 all, 1 a row, 2 a group of 128; "b_scale": 0 all, 1 a row, 2 a block of
// 128 x 128, 3 a group of 128 of a row, and, of i4 alone, 4 one of 64 and 5 one of 32.
//
// With the option "norm" a is scratch that an RMSNorm writes, scales by token included: the
// operands x and weight come last, and norm_of makes them its arguments.
//
// Integers: codes of a in [-2, 2], of b 1, -1 and 0, more zeros the longer k is; scales 1 or 1/2.
// Normal: codes of normal values, with scales that give sums over k a variance near 1.
void add_codes(Builder& b, RowKey key, int64_t m, int64_t n, int64_t k, Operand& a);

// The operands from index `next` on, put into the arguments.
void take_codes(RowKey key, const Shape& shape, std::span<const TensorView> views, size_t& next,
                GemmArgs& args);

// The norm in front of the product of a problem with the option "norm".
RmsNormArgs norm_of(Fill fill, std::span<const TensorView> views);

// How far sums over k of codes of variance 1 may be off, beside sums of magnitude `largest`.
double codes_error(RowKey key, const Shape& shape, double largest);

std::vector<Shape> codes_test_shapes();
std::vector<Workload> codes_workloads();

}  // namespace tessera::bench
