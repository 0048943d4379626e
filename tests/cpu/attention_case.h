// Sequences with random queries, keys and values in a pool of pages. Everything that attention must
// not read is NaN.
// SPDX-License-Identifier: MIT
#pragma once

#include <numeric>

#include "cpu/attention.h"
#include "tests/cpu/tensors.h"

namespace tessera::testing {

using cpu::SimdLevel;

struct HeadShape {
  DType dtype = DType::f32;
  int64_t num_heads = 6;
  int64_t num_kv_heads = 2;
  int64_t head_dim = 64;
};

// What both operations over pages take.
struct Scores {
  float scale = 0.0f;
  int64_t window = 0;
  float softcap = 0.0f;
};

// The tokens of one sequence, independent of how they are paged and chunked.
struct Sequence {
  Sequence(const HeadShape& shape, int64_t length, uint64_t seed, double spread = 1.0)
      : q(shape.dtype, {length, shape.num_heads, shape.head_dim}),
        k(shape.dtype, {length, shape.num_kv_heads, shape.head_dim}),
        v(shape.dtype, {length, shape.num_kv_heads, shape.head_dim}) {
    fill_normal(q, 3 * seed, spread);
    fill_normal(k, 3 * seed + 1, spread);
    fill_normal(v, 3 * seed + 2);
  }
  Tensor q, k, v;
};

// The first seq_len tokens of a sequence are in the cache; the last num_queries of them are
// queries.
struct Part {
  const Sequence* sequence;
  int64_t seq_len;
  int64_t num_queries;
};

inline void copy_token(const TensorView& from, int64_t from_row, const TensorView& to,
                       int64_t to_row) {
  const int64_t bytes = bit_width(from.dtype) / 8;
  const int64_t row = from.num_elements() / from.size(0) * bytes;
  std::memcpy(to.as<char>() + to_row * to.stride(0) * bytes, from.as<char>() + from_row * row,
              static_cast<size_t>(row));
}

// All bits set is a NaN in every float type.
inline void fill_nan(const Tensor& tensor) {
  if (tensor.size_bytes() > 0) {
    std::memset(tensor.view().data, 0xff, static_cast<size_t>(tensor.size_bytes()));
  }
}

// A call: pages shuffled, spare pages and rows beyond each sequence NaN, entries of the page table
// beyond each sequence no page at all. q is the front of a fused projection whose rest is NaN.
class PagedCase {
 public:
  PagedCase(const HeadShape& shape, std::vector<Part> parts, int64_t page_size, uint64_t seed = 1)
      : shape_(shape), parts_(std::move(parts)) {
    int64_t num_pages = 3, max_pages = 0, tokens = 0;
    for (const Part& part : parts_) {
      const int64_t pages = (part.seq_len + page_size - 1) / page_size;
      num_pages += pages;
      max_pages = std::max(max_pages, pages);
      tokens += part.num_queries;
    }
    const Index pool = {num_pages, page_size, shape.num_kv_heads, shape.head_dim};
    k_pages_ = Tensor(shape.dtype, pool);
    v_pages_ = Tensor(shape.dtype, pool);
    fused_ =
        Tensor(shape.dtype, {tokens, shape.num_heads + 2 * shape.num_kv_heads, shape.head_dim});
    out = Tensor(shape.dtype, {tokens, shape.num_heads, shape.head_dim});
    for (const Tensor* tensor : {&k_pages_, &v_pages_, &fused_, &out}) fill_nan(*tensor);
    const int64_t batch = static_cast<int64_t>(parts_.size());
    table_ = Tensor(DType::i32, {batch, max_pages + 2});
    lens_ = Tensor(DType::i32, {batch});
    starts_ = Tensor(DType::i32, {batch + 1});
    place(seed);
  }

  TensorView q() const { return fused_.view().slice(1, 0, shape_.num_heads); }
  PagedKv kv() const {
    return {k_pages_, v_pages_, table_.view().slice(1, 0, table_.view().size(1) - 1), lens_};
  }
  AttentionArgs prefill(const Scores& scores = {}) const {
    const PagedKv pages = kv();
    return {.q = q(),
            .k = pages.k_pages,
            .v = pages.v_pages,
            .out = out,
            .scale = scores.scale,
            .mask = {.left = scores.window - 1, .right = 0},
            .softcap = scores.softcap,
            .q_starts = starts_,
            .kv_lens = pages.seq_lens,
            .k_page_table = pages.page_table};
  }
  DecodeAttentionArgs decode(const Scores& scores = {}) const {
    return {.q = q(),
            .kv = kv(),
            .out = out,
            .scale = scores.scale,
            .window = scores.window,
            .softcap = scores.softcap};
  }
  const HeadShape& shape() const { return shape_; }
  const std::vector<Part>& parts() const { return parts_; }

  Tensor out;

 private:
  void place(uint64_t seed) {
    const int64_t page_size = k_pages_.view().size(1), width = table_.view().size(1);
    std::vector<int32_t> free_pages(static_cast<size_t>(k_pages_.view().size(0)));
    std::iota(free_pages.begin(), free_pages.end(), 0);
    std::shuffle(free_pages.begin(), free_pages.end(), std::mt19937_64(seed));
    std::fill_n(table_.view().as<int32_t>(), table_.view().num_elements(), -7);
    const TensorView rows_q = q();
    const TensorView rows_k = as_tokens(k_pages_), rows_v = as_tokens(v_pages_);
    int32_t token = 0;
    for (size_t s = 0; s < parts_.size(); ++s) {
      const Part& part = parts_[s];
      int32_t* pages = table_.view().as<int32_t>() + static_cast<int64_t>(s) * width;
      for (int64_t t = 0; t < part.seq_len; ++t) {
        if (t % page_size == 0) {
          pages[t / page_size] = free_pages.back();
          free_pages.pop_back();
        }
        const int64_t slot = pages[t / page_size] * page_size + t % page_size;
        copy_token(part.sequence->k, t, rows_k, slot);
        copy_token(part.sequence->v, t, rows_v, slot);
      }
      lens_.view().as<int32_t>()[s] = static_cast<int32_t>(part.seq_len);
      starts_.view().as<int32_t>()[s] = token;
      for (int64_t i = 0; i < part.num_queries; ++i) {
        copy_token(part.sequence->q, part.seq_len - part.num_queries + i, rows_q, token++);
      }
    }
    starts_.view().as<int32_t>()[parts_.size()] = token;
  }
  static TensorView as_tokens(const Tensor& pages) {
    const TensorView& view = pages;
    return TensorView::contiguous(view.data, view.dtype,
                                  {view.size(0) * view.size(1), view.size(2) * view.size(3)});
  }

  HeadShape shape_;
  std::vector<Part> parts_;
  Tensor k_pages_, v_pages_, fused_, table_, lens_, starts_;
};

}  // namespace tessera::testing
