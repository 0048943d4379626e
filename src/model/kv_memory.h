// The memory of a paged KV cache: every layer's keys and values. src/cache says whose a page is.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "model/config.h"
#include "tessera/core/context.h"
#include "tessera/core/tensor.h"

namespace tessera::model {

class KvMemory {
 public:
  // num_kv_heads is this rank's share. The memory starts as zeros: a kernel may read the rows of a
  // page beyond a sequence, as long as it gives them no weight.
  KvMemory(const ModelConfig& config, int64_t num_kv_heads, int64_t num_pages, int64_t page_size,
           DType dtype, Device device);

  TensorView k_pages(int64_t layer) const;  // [num_pages, page_size, num_kv_heads, head_dim]
  TensorView v_pages(int64_t layer) const;
  int64_t num_pages() const { return num_pages_; }
  int64_t page_size() const { return page_size_; }
  int64_t size_bytes() const { return memory_.size_bytes(); }
  // Copies whole pages, every layer: {source, target}. No target is also a source. Pages beyond the
  // memory are refused.
  void copy_pages(std::span<const std::pair<int32_t, int32_t>> copies, const Context& ctx);

 private:
  TensorView pages(int64_t layer, int64_t which) const;  // 0: keys, 1: values

  Tensor memory_;      // [num_layers, 2, num_pages, page_size, num_kv_heads, head_dim]
  Tensor copy_lists_;  // i32 [2, a fixed number]: sources and targets of one launch
  int64_t num_pages_ = 0;
  int64_t page_size_ = 0;
};

}  // namespace tessera::model
