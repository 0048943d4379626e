// TensorView: a typed, strided window on memory someone else owns. Tensor: memory with a view.
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

// Plain data, passed by value. Strides count elements and may be any value, 0 (broadcast) and
// negative included; each operation states what it takes. A view does not distinguish const data:
// the operation's argument struct says which tensors it writes.
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

  // The part [begin, end) along one axis; the axes exchanged; the same memory, no copy. Negative
  // axes count from the end. An i4 slice begins on a whole byte, and i4 keeps its innermost axis.
  TensorView slice(int axis, int64_t begin, int64_t end) const;
  TensorView transposed(int axis0, int axis1) const;
};

// "bf16[16, 4096] on cuda:0", with strides added where the view is not contiguous.
std::string to_string(const TensorView& view);

// A tensor seen as a matrix: the leading axes folded into rows. Most operations work on this.
struct Rows {
  int64_t num_rows = 0;
  int64_t num_cols = 0;
  int64_t row_stride = 0;  // elements from one row to the next
};

// Folds all axes but the last into rows. Refuses, naming `what`, a view whose innermost axis is
// not contiguous or whose leading axes cannot be walked with one stride. Rank 0 is refused.
Rows as_rows(const TensorView& view, std::string_view what);

// Owns its memory: contiguous, move-only.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, std::span<const int64_t> shape, Device device = {});
  Tensor(DType dtype, std::initializer_list<int64_t> shape, Device device = {})
      : Tensor(dtype, std::span(shape.begin(), shape.size()), device) {}
  // Filled with zero bytes; on a GPU by work on the default stream. See allocate_zeros.
  static Tensor zeros(DType dtype, std::initializer_list<int64_t> shape, Device device = {});
  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&& other) noexcept;
  ~Tensor();

  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }
  int64_t size_bytes() const {  // 0 for a tensor that was never made or has been moved from
    return view_.data == nullptr ? 0 : storage_bytes(view_.dtype, view_.num_elements());
  }

  // A copy on another device (or the same); waits for it. Ordered on the default stream: work on a
  // non-blocking stream that writes this tensor must be done.
  Tensor to(Device device) const;

 private:
  TensorView view_;
};

// The elements as floats, and back: on the host, for tests and tools. i4 and strides included.
float load_as_float(const TensorView& view, std::span<const int64_t> index);
void store_from_float(const TensorView& view, std::span<const int64_t> index, float value);

}  // namespace tessera
