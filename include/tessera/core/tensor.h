// TensorView: a typed, strided view of memory owned elsewhere. Tensor: owns its memory.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "tessera/core/device.h"
#include "tessera/core/dtype.h"

namespace tessera {

inline constexpr int kMaxRank = 6;

// Plain data, passed by value. Strides count elements and may be 0 (broadcast) or negative; each
// operation states what it takes. A view has no const form: the operation's argument struct says
// which tensors it writes.
struct TensorView {
  void* data = nullptr;  // the element at index 0; may be null when num_elements() is 0
  DType dtype = DType::f32;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{};
  std::array<int64_t, kMaxRank> strides{};  // for i4 all but the innermost are even
  Device device{};

  // A contiguous (row-major) view. The rows of an i4 matrix are whole bytes, so their size is even.
  static TensorView contiguous(void* data, DType dtype, std::span<const int64_t> shape,
                               Device device = {});
  static TensorView contiguous(void* data, DType dtype, std::initializer_list<int64_t> shape,
                               Device device = {}) {
    return contiguous(data, dtype, std::span(shape.begin(), shape.size()), device);
  }

  int64_t num_elements() const {
    int64_t count = 1;
    for (int d = 0; d < rank; ++d) count *= shape[static_cast<size_t>(d)];
    return count;
  }
  // Size along axis d; negative axes count from the end.
  int64_t size(int d) const { return shape[static_cast<size_t>(d < 0 ? d + rank : d)]; }
  int64_t stride(int d) const { return strides[static_cast<size_t>(d < 0 ? d + rank : d)]; }
  bool is_contiguous() const;
  bool has_shape(std::span<const int64_t> other) const;
  bool same_shape(const TensorView& other) const {
    return has_shape(std::span(other.shape.data(), static_cast<size_t>(other.rank)));
  }

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }

  // The part [begin, end) along one axis, or two axes exchanged; views of the same memory. Negative
  // axes count from the end. An i4 slice must begin at a whole byte, and an i4 view cannot exchange
  // its innermost axis.
  TensorView slice(int axis, int64_t begin, int64_t end) const;
  TensorView transposed(int axis0, int axis1) const;
};

// "bf16[16, 4096] on cuda:0", with strides if the view is not contiguous.
std::string to_string(const TensorView& view);

// A tensor as a matrix, with the leading axes folded into rows. Most operations work on this.
struct Rows {
  int64_t num_rows = 0;
  int64_t num_cols = 0;
  int64_t row_stride = 0;  // elements from one row to the next
};

// Folds all axes but the last into rows. Refuses a view of rank 0, one whose innermost axis is not
// contiguous, and one whose leading axes have no common stride; the message names `what`.
Rows as_rows(const TensorView& view, std::string_view what);

// Owns its memory: contiguous, move-only.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, std::span<const int64_t> shape, Device device = {});
  Tensor(DType dtype, std::initializer_list<int64_t> shape, Device device = {})
      : Tensor(dtype, std::span(shape.begin(), shape.size()), device) {}
  // Filled with zeros by allocate_zeros; on a GPU that is work on the default stream.
  static Tensor zeros(DType dtype, std::initializer_list<int64_t> shape, Device device = {});
  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&& other) noexcept;
  ~Tensor();

  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }
  int64_t size_bytes() const {  // 0 if default-constructed or moved from
    return view_.data == nullptr ? 0 : storage_bytes(view_.dtype, view_.num_elements());
  }

  // A copy on another device (or the same); waits until it is done. It runs on the default stream,
  // so work that writes this tensor on a non-blocking stream must be complete.
  Tensor to(Device device) const;

 private:
  TensorView view_;
};

// One element as a float, and back; any dtype and strides, on the host, for tests and tools.
float load_as_float(const TensorView& view, std::span<const int64_t> index);
void store_from_float(const TensorView& view, std::span<const int64_t> index, float value);

}  // namespace tessera
