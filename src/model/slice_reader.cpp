// Slices read, shifted and checked.
// SPDX-License-Identifier: MIT
#include "model/slice_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/text.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

bool is_finite(float value) { return std::isfinite(value); }
bool is_finite(F16 value) { return (value.bits & 0x7c00u) != 0x7c00u; }
bool is_finite(Bf16 value) { return (value.bits & 0x7f80u) != 0x7f80u; }

template <class T>
int64_t first_not_finite(const TensorView& values) {
  const T* data = values.as<T>();
  const T* end = data + values.num_elements();
  const T* found = std::find_if(data, end, [](T value) { return !is_finite(value); });
  return found == end ? -1 : found - data;
}

}  // namespace

int64_t find_not_finite(const TensorView& values) {
  if (values.dtype == DType::f16) return first_not_finite<F16>(values);
  if (values.dtype == DType::bf16) return first_not_finite<Bf16>(values);
  return first_not_finite<float>(values);
}

void Placement::scatter(const TensorView& block, int64_t first, const TensorView& to) const {
  const auto row_bytes = static_cast<size_t>(
      storage_bytes(block.dtype, block.num_elements() / std::max<int64_t>(1, block.size(0))));
  for (int64_t i = 0; i < block.size(0); ++i) {
    std::memcpy(to.as<std::byte>() + row(first + i) * static_cast<int64_t>(row_bytes),
                block.as<std::byte>() + i * static_cast<int64_t>(row_bytes), row_bytes);
  }
}

TensorView Placement::target(int64_t first, int64_t count, const TensorView& to) const {
  const int64_t num_cols = to.size(1), group = rows_at_once();
  if (first % group != 0 || count % group != 0) {
    fail(concat("Placement: rows ", first, " to ", first + count, " are not whole groups of ",
                group));
  }
  const TensorView from_first = to.slice(0, row(first), to.size(0));
  TensorView view = TensorView::contiguous(from_first.data, to.dtype,
                                           {count / group, group * num_cols}, to.device);
  if (!is_run()) view.strides[0] = num_slices * group * num_cols;
  return view;
}

void SliceReader::read(int64_t row, const TensorView& to) {
  if (slice_.offset == 0.0f) {
    source_.read(slice_.spec, slice_.row + row, slice_.col, to);
  } else {
    const Tensor floats(DType::f32, {to.size(0), to.size(1)});
    source_.read(slice_.spec, slice_.row + row, slice_.col, floats);
    float* values = floats.view().as<float>();
    for (int64_t i = 0; i < to.num_elements(); ++i) values[i] += slice_.offset;
    convert(floats, to);
  }
  if (check_values_) check_finite(row, to);
}

void SliceReader::check_finite(int64_t row, const TensorView& values) {
  if (const int64_t found = find_not_finite(values); found >= 0) {
    note_not_finite(row * slice_.num_cols + found);
  }
}

void SliceReader::check_scales(int64_t row, const TensorView& scales) {
  const int64_t found = find_not_finite(scales);
  if (found < 0) return;
  const int64_t per_row = scales.num_elements() / scales.size(0);
  note_not_finite((row + found / per_row) * slice_.num_cols +
                  found % per_row * (slice_.num_cols / per_row));
}

void SliceReader::note_not_finite(int64_t place) {
  // The first of all blocks, so that the message does not depend on threads.
  int64_t known = not_finite_;
  while ((known < 0 || place < known) && !not_finite_.compare_exchange_weak(known, place)) {
  }
}

void SliceReader::refuse_not_finite() const {
  const int64_t row = slice_.row + not_finite_ / slice_.num_cols;
  const int64_t col = slice_.col + not_finite_ % slice_.num_cols;
  const Tensor value(DType::f32, {1, 1});
  source_.read(slice_.spec, row, col, value);
  const float stored = *value.view().as<float>();
  const std::string place =
      slice_.spec.is_vector ? concat("[", row, "]") : concat("[", row, ", ", col, "]");
  const std::string why =
      std::isfinite(stored)
          ? concat("beyond the range of ", name(wanted_), "; load the model as bf16 or f32")
          : std::string("not finite; the checkpoint is damaged");
  fail(concat("checkpoint: tensor '", slice_.spec.name, "' holds ", stored, " at ", place,
              ", which is ", why));
}

}  // namespace tessera::model
