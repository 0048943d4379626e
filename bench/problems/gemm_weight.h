// Quantised weights of the matrix product's problems: their operands and their shapes.
// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <vector>

#include "bench/problems/builder.h"
#include "tessera/ops/weight.h"

namespace tessera::bench {

// Whether a row of this key takes a quantised weight.
constexpr bool has_codes(RowKey key) { return key.weight != key.in; }

// Adds b [n, k], its scales and, with the option "zero_points", its zero points, in the packing of
// the key; and the table of a key that has one. The option "group" is the number of elements of k
// that share a scale; 0: a row does. In Packing::rows, "rows_per_scale" rows do. With
// "bf16_scales" or "f16_scales" the scales of packed codes have that type instead of f32.
//
// Integers: b is 1, -1 and 0, with more zeros the longer k is, and a scale of 1 or 1/2; a table has
// the integers from -8 to 7 out of order. Normal: all codes alike, with scales that give sums over
// k a variance near 1; a table has values that no 16-bit type holds.
void add_weight(Builder& b, RowKey key, int64_t n, int64_t k);

// The weight, made of the views from index `next` on; `next` then points behind them.
Weight weight_of(RowKey key, const Shape& shape, std::span<const TensorView> views, size_t& next);

std::vector<Shape> quantized_test_shapes();
std::vector<Workload> quantized_workloads();

}  // namespace tessera::bench
