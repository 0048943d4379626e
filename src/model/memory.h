// Where a model's tensors lie: weights and tables for as long as the model lives, activations for
// the length of a block. Both can be dry: they then count bytes and hand out made-up addresses, so
// that a model can be measured, and asked whether it runs somewhere, before anything is allocated.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/core/tensor.h"

namespace tessera::model {

// Made-up addresses of what a dry run uses at once lie in regions of their own, because operations
// refuse tensors that overlap.
enum class DryRegion : uint8_t { none, weights, tables, cache, batch, probe, activations };
constexpr uintptr_t first_address(DryRegion region) { return static_cast<uintptr_t>(region) << 56; }

// Owns tensors of one device; with a region it is dry.
class TensorPool {
 public:
  explicit TensorPool(Device device = {}, DryRegion region = DryRegion::none)
      : device_(device), is_dry_(region != DryRegion::none), next_(first_address(region)) {}

  Device device() const { return device_; }
  bool is_dry() const { return is_dry_; }
  TensorView make(DType dtype, std::initializer_list<int64_t> shape);
  TensorView make_zeros(DType dtype, std::initializer_list<int64_t> shape);
  // Allocates now what the next tensors will take, at once instead of one by one; they are aligned
  // to 256 bytes. Those that no longer fit have memory of their own. Once, and not for a dry pool.
  void reserve(int64_t num_bytes);
  TensorView keep(Tensor tensor);  // one that lies on the device already; not for a dry pool
  int64_t size_bytes() const { return size_bytes_; }
  int64_t largest_bytes() const { return largest_bytes_; }  // of a single tensor
  int64_t aligned_bytes() const { return aligned_bytes_; }  // what to reserve for all of them

 private:
  TensorView make_up(DType dtype, std::initializer_list<int64_t> shape);
  TensorView count(const TensorView& view);
  // A tensor in the reserved memory; its data is null if it does not fit.
  TensorView take_reserved(DType dtype, std::initializer_list<int64_t> shape);

  Device device_;
  bool is_dry_ = false;
  uintptr_t next_ = 0;  // made-up address
  std::vector<Tensor> tensors_;
  Tensor reserved_;  // u8
  int64_t reserved_used_ = 0;
  int64_t size_bytes_ = 0;
  int64_t largest_bytes_ = 0;
  int64_t aligned_bytes_ = 0;
};

// Memory taken in order and given back in the opposite order. What a forward pass takes depends on
// the shape of its batch alone, so a step of the same shape finds its activations at the same
// addresses.
class Arena {
 public:
  // A dry one, without an end.
  explicit Arena(Device device = {});
  // Over memory of u8 that someone else owns.
  explicit Arena(const TensorView& memory);

  // [rows, cols], aligned to 256 bytes. Refuses what no longer fits.
  TensorView take(DType dtype, int64_t rows, int64_t cols);
  int64_t peak_bytes() const { return peak_; }  // the most that was taken at once

  // Gives back, when it ends, all that was taken since it was made.
  class Scope {
   public:
    explicit Scope(Arena& arena) : arena_(arena), used_(arena.used_) {}
    ~Scope() { arena_.used_ = used_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena& arena_;
    int64_t used_;
  };

 private:
  uintptr_t base_ = 0;
  int64_t capacity_ = 0;
  Device device_;
  int64_t used_ = 0;
  int64_t peak_ = 0;
};

}  // namespace tessera::model
