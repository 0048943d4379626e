// The memory of a paged KV cache: every layer's keys and values. src/cache decides which sequence a
// page belongs to.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "model/config.h"
#include "model/kv_layout.h"
#include "model/memory.h"
#include "tessera/core/context.h"
#include "tessera/core/tensor.h"

namespace tessera::model {

// What 1 stands for in a layer's e4m3 or e5m2 keys, and in its values.
struct KvScale {
  float k = 1.0f, v = 1.0f;
};

// One allocation for the pages of all layers, and one for their tails.
class KvMemory {
 public:
  // num_kv_heads is this rank's share. The memory starts as zeros, because kernels may read rows of
  // a page beyond the end of a sequence, giving them no weight, and they must be finite.
  KvMemory(const ModelConfig& config, int64_t num_kv_heads, const KvOptions& options, Device device)
      : KvMemory(config, num_kv_heads, options, TensorPool(device)) {}
  // One whose views have made-up addresses, for dry runs.
  static KvMemory dry(const ModelConfig& config, int64_t num_kv_heads, const KvOptions& options,
                      Device device) {
    return KvMemory(config, num_kv_heads, options, TensorPool(device, DryRegion::cache));
  }

  // Scales of FP8 pages, one for each layer, for all that is stored from now on; 1 without them.
  // Other formats choose their own, and ignore these.
  void set_scales(std::span<const KvScale> scales);
  // Pages, scales and tails of a layer; the caller adds page table and lengths.
  PagedKv layer(int64_t layer) const;
  TensorView k_pages(int64_t layer) const { return this->layer(layer).k_pages; }
  TensorView v_pages(int64_t layer) const { return this->layer(layer).v_pages; }
  KvFormat type() const { return options_.type; }
  DType dtype() const { return options_.dtype; }
  int64_t num_pages() const { return options_.num_pages; }
  int64_t page_size() const { return options_.page_size; }
  int64_t num_kv_heads() const { return num_kv_heads_; }
  int64_t num_layers() const { return memory_.size(0); }
  int64_t page_bytes() const { return num_layers() * layout_.page_bytes(); }  // with its scales
  int64_t size_bytes() const { return pool_.size_bytes(); }
  // Copies whole pages {source, target} in every layer. No target is also a source. Refuses pages
  // that do not exist.
  void copy_pages(std::span<const std::pair<int32_t, int32_t>> copies, const Context& ctx);
  // Copies one tail, every layer.
  void copy_tail(int32_t source, int32_t target, const Context& ctx);

 private:
  KvMemory(const ModelConfig& config, int64_t num_kv_heads, const KvOptions& options,
           TensorPool pool);

  KvOptions options_;
  KvLayout layout_;
  int64_t num_kv_heads_ = 0;
  TensorPool pool_;    // of the next two
  TensorView memory_;  // u8 [num_layers, bytes of a layer]
  TensorView tails_;   // [num_tails, num_layers, 32, num_kv_heads, head_dim]: a tail is one run
  Tensor fp8_scales_;  // f32 [num_layers, 2]: of keys and of values; rank 0: all are 1
  Tensor copy_lists_;  // i32 [2, a fixed number]: sources and targets of one launch
};

}  // namespace tessera::model
