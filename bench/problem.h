// A problem: one operation on one shape, with its data, its call and its cost. Tests, benches and
// the sanitizer runs all make their problems here, so a row cannot be timed on what was not tested.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/row.h"
#include "tessera/core/context.h"
#include "tessera/core/tensor.h"

namespace tessera::bench {

// Named sizes and options in a fixed order: {{"rows", 16}, {"hidden", 4096}, {"residual", 1}}.
using Shape = std::vector<std::pair<std::string, int64_t>>;
std::string to_string(const Shape& shape);  // "rows=16 hidden=4096 residual=1"

enum class Fill : uint8_t {
  integers,  // small integers, chosen so that every implementation must agree bit for bit
  normal,    // random normal values
};

enum class Role : uint8_t { input, output, in_out };

// How far an output may be from the CPU's: |got - want| <= absolute + relative * |want|, with
// `steps` more units of a quantised type. All zero: bit for bit.
struct Bound {
  double absolute = 0;
  double relative = 0;
  int steps = 0;
};

struct Operand {
  std::string name;
  Role role;
  Tensor host;
  Bound bound;  // for outputs: derived from the dtype and the reduction length by the maker
};

struct Problem {
  Shape shape;
  std::vector<Operand> operands;
  // Runs the operation on views in the order of `operands`, all on one device.
  std::function<void(std::span<const TensorView>, const Context&)> call;
  double bytes = 0;  // the fewest that must cross device memory: inputs once, outputs once
  double flops = 0;
};

// A named set of shapes, as workloads.md and the documents use it: "norm".
struct Workload {
  std::string_view name;
  std::vector<Shape> shapes;
};

// How to make problems for one operation. Every operation with rows has one (a test sees to it).
struct ProblemMaker {
  std::string_view op;
  Problem (*make)(RowKey key, const Shape& shape, Fill fill, uint64_t seed);
  std::vector<Shape> test_shapes;  // small and awkward: empty, one row, ragged, odd sizes, options
  std::vector<Workload> workloads;
};

const std::vector<ProblemMaker>& problem_makers();
const ProblemMaker* find_maker(std::string_view op);

}  // namespace tessera::bench
