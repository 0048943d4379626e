// Parts of a checkpoint's tensors: reading them, checking them, and where their rows go in the
// tensor that is made of several parts.
// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>

#include "model/weight_source.h"
#include "tessera/core/tensor.h"

namespace tessera::model {

// Rows [row, row + num_rows) and columns [col, col + num_cols) of a checkpoint's tensor.
struct Slice {
  TensorSpec spec;
  int64_t row = 0;
  int64_t num_rows = 0;
  int64_t col = 0;
  int64_t num_cols = 1;
  float offset = 0.0f;  // added to every value

  int64_t num_elements() const { return num_rows * num_cols; }
};

// Where the rows of slice number `slice` go in the tensor made of all of them.
struct Placement {
  int64_t begin = 0;       // where a slice's rows begin, if they stay together
  int64_t interleave = 0;  // otherwise: rows taken from each slice in turn
  int64_t slice = 0;
  int64_t num_slices = 1;

  bool is_run() const { return interleave == 0; }
  // How many rows must be moved together.
  int64_t rows_at_once() const { return is_run() ? 1 : interleave; }
  int64_t row(int64_t row) const {
    if (is_run()) return begin + row;
    return row / interleave * interleave * num_slices + slice * interleave + row % interleave;
  }
  // Rows from `first` on, of a contiguous block, to their places in `to`; on the CPU.
  void scatter(const TensorView& block, int64_t first, const TensorView& to) const;
  // The places in `to`, [rows, cols], of rows [first, first + count), as a matrix: its rows are the
  // groups of rows_at_once that lie together. Both numbers are multiples of rows_at_once.
  TensorView target(int64_t first, int64_t count, const TensorView& to) const;
};

// Reads one slice. Several threads may read at once.
class SliceReader {
 public:
  // Keeps all by reference. Values must be finite if check_values; `wanted` is the type they must
  // be finite in, and is named if they are not.
  SliceReader(const WeightSource& source, const Slice& slice, DType wanted, bool check_values)
      : source_(source), slice_(slice), wanted_(wanted), check_values_(check_values) {}

  // Rows [row, row + to.size(0)), counted within the slice, converted.
  void read(int64_t row, const TensorView& to);
  // Notes the first value of a block that is not finite; `row` is the block's first.
  void check_finite(int64_t row, const TensorView& values);
  // The same of the scales of a block of codes: f32, as many for each row.
  void check_scales(int64_t row, const TensorView& scales);
  // Refuses the first value that was found not to be finite, if there was one.
  void finish() const {
    if (not_finite_ >= 0) refuse_not_finite();
  }

  DType stored_dtype() const { return source_.dtype_of(slice_.spec); }

 private:
  void note_not_finite(int64_t place);
  [[noreturn]] void refuse_not_finite() const;

  const WeightSource& source_;
  const Slice& slice_;
  DType wanted_;
  bool check_values_;
  std::atomic<int64_t> not_finite_ = -1;  // row * num_cols + col, within the slice
};

// The place of a value that is not finite in a contiguous block of f32, f16 or bf16, or -1.
int64_t find_not_finite(const TensorView& values);

}  // namespace tessera::model
