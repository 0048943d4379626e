// How the pages of a KV cache are laid out in one layer's memory, in every type.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "model/config.h"
#include "tessera/core/tensor.h"
#include "tessera/ops/kv_cache.h"
#include "tessera/ops/kv_format.h"

namespace tessera::model {

struct KvOptions {
  int64_t num_pages = 0;
  int64_t page_size = 16;     // tokens; a multiple of 32 where keys have tails
  DType dtype = DType::bf16;  // of the model: plain pages, and tails
  KvFormat type = KvFormat::plain;
  int64_t num_tails = 0;  // sequences that may be under way at once; only where keys have tails
};

// Keys that share a scale by column wait in a tail until there are 32 of them.
constexpr bool has_tails(KvFormat type) { return traits(type).has_tail(); }

// Keys, values, scales of keys, scales of values, one after the other. Scales by row are stored
// with all rows of one page and head together, each such run aligned to 16 bytes, so that a kernel
// reads the scales of a page at once; strided views show them in the order of the pages.
class KvLayout {
 public:
  // num_kv_heads is this rank's share. Refuses invalid options.
  KvLayout(const ModelConfig& config, int64_t num_kv_heads, const KvOptions& options);

  int64_t page_bytes() const;   // of one layer, scales included
  int64_t layer_bytes() const;  // of all pages, each part rounded up
  int64_t tail_bytes() const;   // of one layer; 0 where there are no tails
  // The parts of layer_bytes() of memory that begin at `memory`; tails are kept elsewhere.
  PagedKv views(const TensorView& memory) const;

 private:
  // Keys, or values.
  struct Part {
    DType dtype = DType::bf16;
    int64_t scales_per_row = 0;  // 0: none
    bool has_columns = false;    // scales by column of 32 tokens instead
    int64_t data_bytes = 0;      // of a page
    int64_t run = 0;             // f16 of a page and head, where scales are by row
    int64_t scale_bytes = 0;     // of a page
  };
  Part make_part(KvFormat format) const;
  int64_t data_section(const Part& part) const;
  int64_t scale_section(const Part& part) const;
  TensorView pages_view(DType dtype, std::byte* data, Device device) const;
  TensorView scales_view(const Part& part, std::byte* data, Device device) const;

  KvOptions options_;
  int64_t num_kv_heads_ = 0;
  int64_t head_dim_ = 0;
  Part keys_;
  Part values_;
};

// Of a page with its scales, or of a tail, over all layers.
int64_t kv_page_bytes(const ModelConfig& config, int64_t num_kv_heads, const KvOptions& options);
int64_t kv_tail_bytes(const ModelConfig& config, int64_t num_kv_heads, const KvOptions& options);

}  // namespace tessera::model
