// Views: shapes, strides and their checks. Tensors: one allocation each.
// SPDX-License-Identifier: MIT
#include "tessera/core/tensor.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "core/element.h"
#include "core/text.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"

namespace tessera {
namespace {

std::string list(std::span<const int64_t> values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(values[i]);
  }
  return text + "]";
}

std::span<const int64_t> used(const std::array<int64_t, kMaxRank>& values, int rank) {
  return std::span(values.data(), static_cast<size_t>(rank));
}

// Sizes must not be negative, their product must fit, and rows of i4 must be whole bytes.
void check_shape(DType dtype, std::span<const int64_t> shape) {
  if (shape.size() > kMaxRank) {
    fail(concat("tensor: shape ", list(shape), " has rank ", shape.size(), "; at most ", kMaxRank));
  }
  int64_t num_bits = bit_width(dtype);
  const bool is_empty = std::ranges::find(shape, 0) != shape.end();
  for (const int64_t size : shape) {
    if (size < 0) fail(concat("tensor: shape ", list(shape), " has a negative size"));
    if (!is_empty && __builtin_mul_overflow(num_bits, size, &num_bits)) {
      fail(concat("tensor: shape ", list(shape), " of ", name(dtype), " is beyond 2^63 bits"));
    }
  }
  if (dtype == DType::i4 && shape.size() > 1 && shape.back() % 2 != 0) {
    fail(concat("tensor: i4", list(shape),
                " has rows of an odd size, and a byte holds two i4; pad the innermost axis to ",
                shape.back() + 1));
  }
}

int checked_axis(const TensorView& view, int axis, std::string_view verb) {
  const int counted = axis < 0 ? axis + view.rank : axis;
  if (counted < 0 || counted >= view.rank) {
    fail(concat(verb, ": axis ", axis, " of ", to_string(view), "; its rank is ", view.rank));
  }
  return counted;
}

// The offset in elements of the one at `index`, which is checked against the shape.
int64_t checked_offset(const TensorView& view, std::span<const int64_t> index,
                       std::string_view verb) {
  if (!view.device.is_cpu()) {
    fail(concat(verb, ": ", to_string(view), "; copy it to the CPU first"));
  }
  bool is_inside = index.size() == static_cast<size_t>(view.rank);
  int64_t offset = 0;
  for (size_t d = 0; is_inside && d < index.size(); ++d) {
    is_inside = index[d] >= 0 && index[d] < view.shape[d];
    offset += index[d] * view.strides[d];
  }
  if (!is_inside) fail(concat(verb, ": index ", list(index), " is outside ", to_string(view)));
  return offset;
}

}  // namespace

TensorView TensorView::contiguous(void* data, DType dtype, std::span<const int64_t> shape,
                                  Device device) {
  check_shape(dtype, shape);
  TensorView view{.data = data,
                  .dtype = dtype,
                  .rank = static_cast<int>(shape.size()),
                  .shape = {},
                  .strides = {},
                  .device = device};
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    view.shape[d] = shape[d];
    view.strides[d] = stride;
    stride *= std::max<int64_t>(shape[d], 1);
  }
  return view;
}

bool TensorView::is_contiguous() const {
  int64_t expected = 1;
  bool is_dense = true;
  for (int d = rank - 1; d >= 0; --d) {
    if (size(d) == 0) return true;
    if (size(d) == 1) continue;  // its stride is never used
    is_dense = is_dense && stride(d) == expected;
    expected *= size(d);
  }
  return is_dense;
}

bool TensorView::has_shape(std::span<const int64_t> other) const {
  return std::ranges::equal(used(shape, rank), other);
}

TensorView TensorView::slice(int axis, int64_t begin, int64_t end) const {
  const int d = checked_axis(*this, axis, "slice");
  if (begin < 0 || begin > end || end > size(d)) {
    fail(concat("slice: [", begin, ", ", end, ") of axis ", d, " of ", to_string(*this)));
  }
  TensorView result = *this;
  result.shape[static_cast<size_t>(d)] = end - begin;
  if (result.num_elements() == 0) return result;  // empty, so its pointer is never read
  const int64_t num_bits = begin * stride(d) * bit_width(dtype);
  if (num_bits % 8 != 0) {
    fail(concat("slice: [", begin, ", ", end, ") of axis ", d, " of ", to_string(*this),
                " begins inside a byte; begin at an even index"));
  }
  result.data = as<std::byte>() + num_bits / 8;
  return result;
}

TensorView TensorView::transposed(int axis0, int axis1) const {
  const int d0 = checked_axis(*this, axis0, "transposed");
  const int d1 = checked_axis(*this, axis1, "transposed");
  if (dtype == DType::i4 && d0 != d1 && (d0 == rank - 1 || d1 == rank - 1)) {
    fail(concat("transposed: ", to_string(*this),
                " packs two elements of its innermost axis in a byte; convert it to i8 first"));
  }
  TensorView result = *this;
  std::swap(result.shape[static_cast<size_t>(d0)], result.shape[static_cast<size_t>(d1)]);
  std::swap(result.strides[static_cast<size_t>(d0)], result.strides[static_cast<size_t>(d1)]);
  return result;
}

std::string to_string(const TensorView& view) {
  std::string text = concat(name(view.dtype), list(used(view.shape, view.rank)));
  if (!view.is_contiguous()) text += " strides " + list(used(view.strides, view.rank));
  return text + " on " + to_string(view.device);
}

Rows as_rows(const TensorView& view, std::string_view what) {
  if (view.rank == 0) {
    fail(concat(what, " is ", to_string(view), "; at least one axis is needed"));
  }
  Rows rows{.num_rows = 1, .num_cols = view.size(-1), .row_stride = view.size(-1)};
  for (int d = 0; d < view.rank - 1; ++d) rows.num_rows *= view.size(d);
  if (rows.num_rows == 0 || rows.num_cols == 0) return rows;
  if (rows.num_cols > 1 && view.stride(-1) != 1) {
    fail(concat(what, " is ", to_string(view),
                "; its innermost axis must be contiguous: copy it first"));
  }
  bool has_stride = false;
  int64_t expected = 0;
  for (int d = view.rank - 2; d >= 0; --d) {
    if (view.size(d) == 1) continue;
    if (!has_stride) rows.row_stride = expected = view.stride(d);
    has_stride = true;
    if (view.stride(d) != expected) {
      fail(concat(what, " is ", to_string(view), "; stride ", view.stride(d), " of axis ", d,
                  " must be ", expected, " for the leading axes to fold into rows: copy it first"));
    }
    expected *= view.size(d);
  }
  return rows;
}

Tensor::Tensor(DType dtype, std::span<const int64_t> shape, Device device)
    : view_(TensorView::contiguous(nullptr, dtype, shape, device)) {
  const int64_t num_bytes = storage_bytes(dtype, view_.num_elements());
  view_.data = allocate(device, static_cast<size_t>(num_bytes));
}

Tensor Tensor::zeros(DType dtype, std::initializer_list<int64_t> shape, Device device) {
  Tensor tensor;
  tensor.view_ = TensorView::contiguous(nullptr, dtype, shape, device);
  const int64_t num_bytes = storage_bytes(dtype, tensor.view_.num_elements());
  tensor.view_.data = allocate_zeros(device, static_cast<size_t>(num_bytes));
  return tensor;
}

Tensor::Tensor(Tensor&& other) noexcept : view_(std::exchange(other.view_, {})) {}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  if (this != &other) {
    deallocate(view_.device, view_.data);
    view_ = std::exchange(other.view_, {});
  }
  return *this;
}

Tensor::~Tensor() { deallocate(view_.device, view_.data); }

Tensor Tensor::to(Device device) const {
  expects(view_.data != nullptr || view_.num_elements() == 0,
          "Tensor::to: the tensor was never made or has been moved from");
  Tensor result(view_.dtype, used(view_.shape, view_.rank), device);
  if (size_bytes() == 0) return result;
  const Device from = view_.device;
  // Between two GPUs the copy is ordered on the destination's stream only.
  if (!from.is_cpu() && !device.is_cpu() && from != device) synchronize(from);
  copy_bytes(result.view_.data, device, view_.data, from, static_cast<size_t>(size_bytes()));
  synchronize(device.is_cpu() ? from : device);
  return result;
}

float load_as_float(const TensorView& view, std::span<const int64_t> index) {
  const int64_t offset = checked_offset(view, index, "load_as_float");
  return with_storage(view.dtype, [&]<class T>(std::type_identity<T>) {
    return to_float(read_element<T>(view.data, offset));
  });
}

void store_from_float(const TensorView& view, std::span<const int64_t> index, float value) {
  const int64_t offset = checked_offset(view, index, "store_from_float");
  with_storage(view.dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_same_v<T, I4x2>) {
      write_i4(view.data, offset, i4_from_float(value));
    } else {
      write_element(view.data, offset, from_float<T>(value));
    }
  });
}

}  // namespace tessera
