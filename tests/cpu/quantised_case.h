// Decode attention over a quantised cache: sequences appended to shuffled pages, and the same keys
// and values, as they read back, in a plain cache. Everything that must not be read is NaN.
// SPDX-License-Identifier: MIT
#pragma once

#include "cpu/kv_cache.h"
#include "cpu/kv_rows.h"
#include "tests/cpu/attention_case.h"

namespace tessera::testing {

struct CacheFormat {
  const char* name;
  KvFormat k;
  KvFormat v;
  int64_t num_head_scales = 0;  // of FP8: none, 1, or 2 for one of each head
};

inline constexpr CacheFormat kCacheFormats[] = {
    {"e4m3", KvFormat::e4m3, KvFormat::e4m3},
    {"e4m3_one_scale", KvFormat::e4m3, KvFormat::e4m3, 1},
    {"e4m3_heads", KvFormat::e4m3, KvFormat::e4m3, 2},
    {"e5m2", KvFormat::e5m2, KvFormat::e5m2},
    {"int8", KvFormat::int8, KvFormat::int8},
    {"uint8", KvFormat::uint8, KvFormat::uint8},
    {"int4", KvFormat::int4, KvFormat::int4_token},
    {"int4_token", KvFormat::int4_token, KvFormat::int4_token},
    {"plain_and_int8", KvFormat::plain, KvFormat::int8},
    {"int4_and_e5m2", KvFormat::int4, KvFormat::e5m2}};

inline std::string cache_format_name(const ::testing::TestParamInfo<CacheFormat>& info) {
  return info.param.name;
}

// Keys or values of one layer.
struct CachePages {
  CachePages(KvFormat kind, int64_t num_head_scales, const HeadShape& shape, int64_t num_pages,
             int64_t page_size, bool is_head_first)
      : format(traits(kind)), is_head_first(is_head_first) {
    const int64_t heads = shape.num_kv_heads, d = shape.head_dim;
    const DType dtype = pages_dtype(kind, shape.dtype);
    data = is_head_first ? Tensor(dtype, {num_pages, heads, page_size, d})
                         : Tensor(dtype, {num_pages, page_size, heads, d});
    fill_nan(data);
    if (format.scales == KvScales::row) {
      scales = Tensor(DType::f16, {num_pages, page_size, heads, format.scales_per_row()});
      fill_nan(scales);
    } else if (format.scales == KvScales::column) {
      scales = is_head_first ? Tensor(DType::f16, {num_pages, page_size / kKvGroup, heads, d, 4})
                             : Tensor(DType::f16, {num_pages, page_size / kKvGroup, heads, d, 2});
      fill_nan(scales);
    } else if (format.scales == KvScales::head && num_head_scales > 0) {
      Values values(static_cast<size_t>(num_head_scales));
      for (size_t h = 0; h < values.size(); ++h) values[h] = 0.03 + 0.7 * static_cast<double>(h);
      scales = tensor_of(DType::f32, {num_head_scales}, values);
    }
  }

  // Indexed [page, row, head, element] in either layout.
  TensorView view() const { return is_head_first ? data.view().transposed(1, 2) : data.view(); }
  TensorView view_of_scales() const {
    if (scales.view().rank == 5) return scales.view().slice(4, 0, 2);
    return scales.size_bytes() > 0 ? scales.view() : TensorView{};
  }

  const KvFormatTraits& format;
  bool is_head_first;
  Tensor data, scales;
};

struct CacheOptions {
  int64_t page_size = 64;  // a multiple of 32 where keys have scales by column
  bool is_head_first = false;
  uint64_t seed = 1;
};

// One query per sequence: that of the last of its seq_len tokens. Parts with no queries are idle.
class QuantisedCase {
 public:
  QuantisedCase(const CacheFormat& format, const HeadShape& shape, std::vector<Part> parts,
                const CacheOptions& options = {})
      : shape_(shape),
        parts_(std::move(parts)),
        page_size_(options.page_size),
        num_pages_(count_pages()),
        k_(format.k, format.num_head_scales, shape, num_pages_, page_size_, options.is_head_first),
        v_(format.v, format.num_head_scales, shape, num_pages_, page_size_, options.is_head_first) {
    const auto batch = static_cast<int64_t>(parts_.size());
    table_ = Tensor(DType::i32, {batch, num_pages_});
    lens_ = Tensor(DType::i32, {batch});
    tails_ = Tensor(DType::i32, {batch});
    tail_ = Tensor(shape.dtype, {batch + 1, kKvGroup, shape.num_kv_heads, shape.head_dim});
    q = Tensor(shape.dtype, {batch, shape.num_heads, shape.head_dim});
    out = Tensor(shape.dtype, {batch, shape.num_heads, shape.head_dim});
    for (const Tensor* tensor : {&tail_, &q, &out}) fill_nan(*tensor);
    place(options.seed);
  }

  PagedKv kv() const {
    PagedKv kv{.k_pages = k_.view(), .v_pages = v_.view(), .page_table = table_, .seq_lens = lens_};
    kv.k_scales = k_.view_of_scales(), kv.v_scales = v_.view_of_scales();
    if (k_.format.has_tail()) kv.k_tail = tail_, kv.tails = tails_;
    return kv;
  }
  DecodeAttentionArgs decode(const Scores& scores = {}) const {
    return {.q = q,
            .kv = kv(),
            .out = out,
            .scale = scores.scale,
            .window = scores.window,
            .softcap = scores.softcap};
  }

  // The sequences with keys and values as they read back, row by row.
  std::vector<Sequence> read_back() const {
    std::vector<Sequence> sequences;
    HeadShape in_float = shape_;
    in_float.dtype = DType::f32;
    const PagedKv cache = kv();
    const cpu::KvTokens tokens(cache);
    for (size_t s = 0; s < parts_.size(); ++s) {
      Sequence& read = sequences.emplace_back(in_float, parts_[s].seq_len, 1);
      read.q = parts_[s].sequence->q.to(cpu_device());
      for (int64_t t = 0; t < parts_[s].seq_len; ++t) {
        for (int64_t head = 0; head < shape_.num_kv_heads; ++head) {
          const int64_t row = (t * shape_.num_kv_heads + head) * shape_.head_dim;
          const auto index = static_cast<int64_t>(s);
          tokens.read_k(index, t, head, read.k.view().as<float>() + row);
          tokens.read_v(index, t, head, read.v.view().as<float>() + row);
        }
      }
    }
    return sequences;
  }
  const std::vector<Part>& parts() const { return parts_; }

  Tensor q, out;

 private:
  int64_t count_pages() const {
    int64_t count = 3;
    for (const Part& part : parts_) count += (part.seq_len + page_size_ - 1) / page_size_;
    return count;
  }

  void place(uint64_t seed) {
    std::vector<int32_t> free_pages(static_cast<size_t>(num_pages_));
    std::iota(free_pages.begin(), free_pages.end(), 0);
    std::shuffle(free_pages.begin(), free_pages.end(), std::mt19937_64(seed));
    std::fill_n(table_.view().as<int32_t>(), table_.view().num_elements(), -7);
    const auto batch = static_cast<int64_t>(parts_.size());
    for (int64_t s = 0; s < batch; ++s) {
      const Part& part = parts_[static_cast<size_t>(s)];
      lens_.view().as<int32_t>()[s] = static_cast<int32_t>(part.seq_len);
      tails_.view().as<int32_t>()[s] = static_cast<int32_t>(batch - s);
      if (part.seq_len == 0) continue;
      int32_t* pages = table_.view().as<int32_t>() + s * table_.view().stride(0);
      for (int64_t t = 0; t < part.seq_len; t += page_size_, free_pages.pop_back()) {
        pages[t / page_size_] = free_pages.back();
      }
      append(part, pages, tails_.view().as<int32_t>()[s]);
      copy_token(part.sequence->q, part.seq_len - 1, q, s);
    }
  }

  void append(const Part& part, const int32_t* pages, int32_t tail) const {
    Values slots, tail_slots;
    for (int64_t t = 0; t < part.seq_len; ++t) {
      slots.push_back(static_cast<double>(pages[t / page_size_] * page_size_ + t % page_size_));
      tail_slots.push_back(static_cast<double>(tail * kKvGroup + t % kKvGroup));
    }
    const Tensor at = tensor_of(DType::i32, {part.seq_len}, slots);
    const Tensor tail_at = tensor_of(DType::i32, {part.seq_len}, tail_slots);
    KvAppendArgs args{.k = part.sequence->k.view().slice(0, 0, part.seq_len),
                      .v = part.sequence->v.view().slice(0, 0, part.seq_len),
                      .slots = at,
                      .k_pages = k_.view(),
                      .v_pages = v_.view(),
                      .k_scales = k_.view_of_scales(),
                      .v_scales = v_.view_of_scales()};
    if (k_.format.has_tail()) args.k_tail = tail_, args.tail_slots = tail_at;
    cpu::kv_append(args);
  }

  HeadShape shape_;
  std::vector<Part> parts_;
  int64_t page_size_;
  int64_t num_pages_;
  CachePages k_, v_;
  Tensor table_, lens_, tail_, tails_;
};

}  // namespace tessera::testing
