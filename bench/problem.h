// A problem: one operation on one shape, with its data, its call and its cost. Tests, benches and
// the sanitizer runs all make their problems here, so a row cannot be timed on a shape that is not
// tested.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/row.h"
#include "tessera/core/context.h"
#include "tessera/core/tensor.h"
#include "tessera/ops/kv_format.h"

namespace tessera::bench {

// Named sizes and options in a fixed order: {{"rows", 16}, {"hidden", 4096}, {"residual", 1}}.
using Shape = std::vector<std::pair<std::string, int64_t>>;
std::string to_string(const Shape& shape);  // "rows=16 hidden=4096 k_format=int8"
int64_t value_of(const Shape& shape, std::string_view name, int64_t otherwise = 0);
Shape with_value(Shape shape, std::string_view name, int64_t value);

// Values with names: options that end in _format hold a KvFormat, those that end in _dtype a DType.
constexpr int64_t option(KvFormat format) { return static_cast<int64_t>(format); }
constexpr int64_t option(DType dtype) { return static_cast<int64_t>(dtype); }
std::optional<std::string_view> name_of_value(std::string_view option_name, int64_t value);
int64_t value_of_name(std::string_view option_name, std::string_view value);  // known names only

enum class Fill : uint8_t {
  integers,  // small integers, chosen so that every implementation must agree bit for bit
  normal,    // random normal values
  none,      // sizes and costs only: no memory is taken, the problem cannot run
};

// Scratch memory is written, and its contents afterwards do not matter.
enum class Role : uint8_t { input, output, in_out, scratch };

// How far an output may be from the CPU's: |got - want| <= absolute + relative * |want|, with
// `steps` more units of a quantised type. All zero: bit for bit.
struct Bound {
  double absolute = 0;
  double relative = 0;
  int steps = 0;
};

// `host` is the storage, one-dimensional; the operation sees the view that shape, strides and
// offset cut out of it, so that gaps between rows and misaligned bases are part of a problem.
struct Operand {
  std::string name;
  Role role;
  Tensor host;
  Bound bound;  // for outputs: derived from the dtype and the reduction length by the maker
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  int64_t offset = 0;       // elements of storage before the view's first
  bool is_per_row = false;  // shape[0] runs over the problem's independent rows

  TensorView place(void* storage, Device device) const;
};

struct Sample;

struct Problem {
  Shape shape;
  Fill fill = Fill::normal;
  uint64_t seed = 0;
  std::vector<Operand> operands;
  // Runs the operation on placed views in the order of `operands`, all on one device.
  std::function<void(std::span<const TensorView>, const Context&)> call;
  // Whether a row takes this call, for operations whose rows have conditions beyond types; empty:
  // every row of the types takes it.
  std::function<bool(std::span<const TensorView>, const Context&)> is_supported;
  // The row the operation chooses; null: the first that takes the problem.
  std::function<std::string(std::span<const TensorView>)> served_row;
  // Makes a small problem that computes some results of one too large for the CPU; empty: take_rows
  // serves.
  std::function<Sample(const Problem&)> sample;
  double bytes = 0;  // the fewest that must cross device memory: inputs once, outputs once
  double flops = 0;
  int64_t storage_bytes = 0;  // of all operands, gaps included
  std::string row_dim;        // the size in `shape` that counts independent rows; or empty
};

// A small problem that recomputes some results of a large one, and where they lie in the large one.
struct Sample {
  struct Run {  // elements of storages
    size_t from_operand;
    int64_t from;  // in the large problem
    size_t to_operand;
    int64_t to;  // of the small one
    int64_t count;
  };
  Problem part;
  std::vector<Run> runs;
};

// A named set of shapes, as the documents use it: "norm".
struct Workload {
  std::string_view name;
  std::vector<Shape> shapes;
};

// How to make problems for one operation. Every operation with rows has one (a test sees to it).
struct ProblemMaker {
  std::string_view op;
  Problem (*make)(RowKey key, const Shape& shape, Fill fill, uint64_t seed);
  bool (*fits)(RowKey key, const Shape& shape);  // whether the options make sense for these types
  std::vector<RowKey> keys;        // the types the CPU runs; a test compares them with the rows
  std::vector<Shape> test_shapes;  // small and awkward: empty, one row, ragged, odd sizes, options
  std::vector<Workload> workloads;
  std::string_view family = "elementwise";
};

const std::vector<ProblemMaker>& problem_makers();
const ProblemMaker* find_maker(std::string_view op);

// Whether a call of the problem on `device` finds a row. Needs no memory: a problem of sizes only
// (Fill::none) will do, with operands at made-up addresses.
bool is_taken(const Problem& problem, Device device, const Context& ctx);
// The row the operation chooses for it, found the same way; empty if the problem does not say.
std::string served_row(const Problem& problem, Device device);

// The problem made of some rows of another: same types and options, the chosen rows' data. Only
// where row_dim is not empty.
Problem take_rows(const ProblemMaker& maker, RowKey key, const Problem& from,
                  std::span<const int64_t> rows);

}  // namespace tessera::bench
