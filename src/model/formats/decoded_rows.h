// Rows of a quantised weight between the layout of a file and that of a Weight.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/formats/code_form.h"
#include "tessera/core/tensor.h"
#include "tessera/ops/weight.h"

namespace tessera::model {

// Element (r, c) is (codes[r, c] - zero[r, g]) * scale[r, g], where g is the group of column c. FP8
// codes are the bits of the number, and have no zero; with a table it is table[code] * scale.
struct DecodedRows {
  int64_t num_rows = 0;
  int64_t num_cols = 0;
  int64_t num_groups = 1;
  int64_t group = 0;  // columns of a group, the last of which may be shorter; 0: all
  bool is_fp8 = false;
  std::vector<int16_t> codes = {};     // [rows, cols]
  std::vector<float> scale = {};       // [rows, groups]
  std::vector<int16_t> zero = {};      // [rows, groups]; empty: 0
  std::vector<int32_t> group_of = {};  // [cols]; empty: column / group
  std::vector<float> table = {};       // [16]; empty: none

  int64_t group_at(int64_t col) const {
    if (!group_of.empty()) return group_of[static_cast<size_t>(col)];
    return group > 0 ? col / group : 0;
  }
};

// Columns [col, col + out.size(1)) of rows [row, row + out.size(0)) as f32; `out` is contiguous.
void dequantize(const DecodedRows& rows, int64_t row, int64_t col, const TensorView& out);

// The permutation that makes the columns of each group contiguous, and keeps their order within a
// group. Refuses groups that are not all of the same size, naming `tensor`.
std::vector<int32_t> sorted_columns(std::span<const int32_t> group_of, int64_t group,
                                    std::string_view tensor);

// The same elements in a form, written to tensors on the CPU that have it; exact. to.order, where
// the form has one, is read; to.table is left as it is. `to` has scales by row: rows_per_scale
// is 1. Refuses, naming `tensor`, a code that the form's type does not hold.
void encode(const DecodedRows& rows, int64_t row, int64_t col, const CodeForm& form,
            const Weight& to, std::string_view tensor);

}  // namespace tessera::model
