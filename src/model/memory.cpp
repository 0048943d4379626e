// Pools and arenas, real and dry.
// SPDX-License-Identifier: MIT
#include "model/memory.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

constexpr int64_t kAlignment = 256;  // as a GPU's allocator aligns

int64_t round_up(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

TensorView TensorPool::make_up(DType dtype, std::initializer_list<int64_t> shape) {
  const TensorView view =
      TensorView::contiguous(reinterpret_cast<void*>(next_), dtype, shape, device_);
  next_ += static_cast<uintptr_t>(round_up(storage_bytes(dtype, view.num_elements()) + 1));
  return count(view);
}

TensorView TensorPool::count(const TensorView& view) {
  const int64_t bytes = storage_bytes(view.dtype, view.num_elements());
  size_bytes_ += bytes;
  largest_bytes_ = std::max(largest_bytes_, bytes);
  aligned_bytes_ += round_up(bytes);
  return view;
}

void TensorPool::reserve(int64_t num_bytes) { reserved_ = Tensor(DType::u8, {num_bytes}, device_); }

TensorView TensorPool::take_reserved(DType dtype, std::initializer_list<int64_t> shape) {
  TensorView view = TensorView::contiguous(nullptr, dtype, shape, device_);
  const int64_t bytes = round_up(storage_bytes(dtype, view.num_elements()));
  if (bytes == 0 || bytes > reserved_.size_bytes() - reserved_used_) return view;
  view.data = reserved_.view().as<std::byte>() + reserved_used_;
  reserved_used_ += bytes;
  return view;
}

TensorView TensorPool::make(DType dtype, std::initializer_list<int64_t> shape) {
  if (is_dry_) return make_up(dtype, shape);
  const TensorView reserved = take_reserved(dtype, shape);
  return reserved.data != nullptr ? count(reserved) : keep(Tensor(dtype, shape, device_));
}

TensorView TensorPool::make_zeros(DType dtype, std::initializer_list<int64_t> shape) {
  return is_dry_ ? make_up(dtype, shape) : keep(Tensor::zeros(dtype, shape, device_));
}

TensorView TensorPool::keep(Tensor tensor) {
  tensors_.push_back(std::move(tensor));
  return count(tensors_.back().view());
}

Arena::Arena(Device device)
    : base_(first_address(DryRegion::activations)),
      capacity_(std::numeric_limits<int64_t>::max()),
      device_(device) {}

Arena::Arena(const TensorView& memory)
    : base_(reinterpret_cast<uintptr_t>(memory.data)),
      capacity_(memory.num_elements()),
      device_(memory.device) {}

TensorView Arena::take(DType dtype, int64_t rows, int64_t cols) {
  const int64_t bytes = round_up(storage_bytes(dtype, rows * cols));
  if (bytes > capacity_ - used_) {
    fail(concat("Model: a step needs ", used_ + bytes, " bytes of activations and has ", capacity_,
                "; prepare the model for a batch of this size"));
  }
  void* data = reinterpret_cast<void*>(base_ + static_cast<uintptr_t>(used_));
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  return TensorView::contiguous(data, dtype, {rows, cols}, device_);
}

}  // namespace tessera::model
