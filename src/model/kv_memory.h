// The memory of a paged KV cache: every layer's keys and values. src/cache says whose a page is.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "model/config.h"
#include "tessera/core/context.h"
#include "tessera/core/tensor.h"
#include "tessera/ops/kv_cache.h"
#include "tessera/ops/kv_type.h"

namespace tessera::model {

struct KvOptions {
  int64_t num_pages = 0;
  int64_t page_size = 16;     // tokens; a multiple of 32 where keys have tails
  DType dtype = DType::bf16;  // of the model: plain pages, and tails
  KvType type = KvType::plain;
  int64_t num_tails = 0;  // sequences that may be under way at once; only where keys have tails
};

// Keys that share a scale by column wait in a tail until there are 32 of them.
constexpr bool has_tails(KvType type) { return type == KvType::int4; }

// Of a page with its scales, or of a tail, over all layers. num_kv_heads is this rank's share.
int64_t kv_page_bytes(const ModelConfig& config, int64_t num_kv_heads, const KvOptions& options);
int64_t kv_tail_bytes(const ModelConfig& config, int64_t num_kv_heads, const KvOptions& options);

// One allocation. A layer's pages lie together, their scales behind them. Scales by row lie with
// the rows of one page and head side by side, so that a kernel reads a page's in one go.
class KvMemory {
 public:
  // num_kv_heads is this rank's share. The memory starts as zeros: a kernel may read the rows of a
  // page beyond a sequence, as long as it gives them no weight.
  KvMemory(const ModelConfig& config, int64_t num_kv_heads, const KvOptions& options,
           Device device);

  // Pages, scales and tails of a layer; whose they are is the caller's to add.
  PagedKv layer(int64_t layer) const;
  TensorView k_pages(int64_t layer) const { return this->layer(layer).k_pages; }
  TensorView v_pages(int64_t layer) const { return this->layer(layer).v_pages; }
  KvType type() const { return options_.type; }
  DType dtype() const { return options_.dtype; }
  int64_t num_pages() const { return options_.num_pages; }
  int64_t page_size() const { return options_.page_size; }
  int64_t num_kv_heads() const { return num_kv_heads_; }
  int64_t page_bytes() const { return page_bytes_; }  // over all layers, scales included
  int64_t size_bytes() const { return memory_.size_bytes() + tails_.size_bytes(); }
  // Copies whole pages, every layer: {source, target}. No target is also a source. Pages beyond the
  // memory are refused.
  void copy_pages(std::span<const std::pair<int32_t, int32_t>> copies, const Context& ctx);
  // Copies one tail, every layer.
  void copy_tail(int32_t source, int32_t target, const Context& ctx);

 private:
  KvOptions options_;
  int64_t num_layers_ = 0;
  int64_t num_kv_heads_ = 0;
  int64_t head_dim_ = 0;
  int64_t page_bytes_ = 0;
  Tensor memory_;      // u8: for each layer keys, values, scales of keys, scales of values
  Tensor tails_;       // [num_tails, num_layers, 32, num_kv_heads, head_dim]: a tail is one run
  Tensor copy_lists_;  // i32 [2, a fixed number]: sources and targets of one launch
};

}  // namespace tessera::model
