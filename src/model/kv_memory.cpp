// Pages of keys and values, and their scales: one allocation for all layers.
// SPDX-License-Identifier: MIT
#include "model/kv_memory.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

constexpr int64_t kMaxCopies = 256;       // pages copied by one launch a layer
constexpr int64_t kSectionBytes = 256;    // sections of the memory begin on it
constexpr int64_t kScaleRunElements = 8;  // 16 bytes of f16: where scales of a page and head begin

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// How keys, or values, of one type are stored.
struct Storage {
  DType dtype;
  int64_t scales_per_row = 0;  // 0: none
  bool has_columns = false;    // scales by column of 32 tokens instead
};

Storage keys_of(const KvOptions& options) {
  switch (options.type) {
    case KvType::plain: return {options.dtype};
    case KvType::e4m3: return {DType::e4m3};
    case KvType::e5m2: return {DType::e5m2};
    case KvType::int8: return {DType::i8, 1};
    case KvType::uint8: return {DType::u8, 2};
    case KvType::int4: return {DType::i4, 0, true};
    case KvType::int4_token: return {DType::i4, 2};
  }
  fail("KvMemory: a KvType that is none");
}

Storage values_of(const KvOptions& options) {
  if (options.type == KvType::int4) return {DType::i4, 2};
  return keys_of(options);
}

// Of keys, or values, in one layer: of one page, and where its parts begin.
struct Sizes {
  int64_t data_bytes = 0;      // of a page
  int64_t scale_elements = 0;  // f16, of a page
  int64_t run = 0;             // f16, of a page and head, where scales are by row
};

Sizes sizes_of(const Storage& storage, int64_t heads, int64_t page_size, int64_t head_dim) {
  Sizes sizes{.data_bytes = storage_bytes(storage.dtype, page_size * heads * head_dim)};
  if (storage.has_columns) {
    sizes.scale_elements = page_size / kKvGroup * heads * head_dim * 2;
  } else if (storage.scales_per_row > 0) {
    sizes.run = round_up(page_size * storage.scales_per_row, kScaleRunElements);
    sizes.scale_elements = heads * sizes.run;
  }
  return sizes;
}

int64_t data_section(const Sizes& sizes, int64_t num_pages) {
  return round_up(sizes.data_bytes * num_pages, kSectionBytes);
}
int64_t scale_section(const Sizes& sizes, int64_t num_pages) {
  return round_up(sizes.scale_elements * num_pages * int64_t{sizeof(F16)}, kSectionBytes);
}

TensorView scales_view(std::byte* data, const Storage& storage, const Sizes& sizes,
                       const KvOptions& options, int64_t heads, int64_t head_dim, Device device) {
  if (storage.has_columns) {
    return TensorView::contiguous(
        data, DType::f16,
        {options.num_pages, options.page_size / kKvGroup, heads, head_dim, int64_t{2}}, device);
  }
  if (storage.scales_per_row == 0) return {};
  TensorView view = TensorView::contiguous(
      data, DType::f16, {options.num_pages, options.page_size, heads, storage.scales_per_row},
      device);
  view.strides = {heads * sizes.run, storage.scales_per_row, sizes.run, 1};
  return view;
}

void check(const ModelConfig& config, int64_t num_kv_heads, const KvOptions& options) {
  if (options.num_pages < 1 || options.page_size < 1 || num_kv_heads < 1) {
    fail(concat("KvMemory: num_pages is ", options.num_pages, ", page_size ", options.page_size,
                ", num_kv_heads ", num_kv_heads, "; each must be at least 1"));
  }
  if (has_tails(options.type) && (options.page_size % kKvGroup != 0 || options.num_tails < 1)) {
    fail(concat("KvMemory: page_size is ", options.page_size, " and num_tails ", options.num_tails,
                "; ", name(options.type), " needs pages of a multiple of ", kKvGroup,
                " tokens and a tail for every sequence"));
  }
  if (bit_width(keys_of(options).dtype) == 4 && config.head_dim % 2 != 0) {
    fail(concat("KvMemory: head_dim is ", config.head_dim, "; ", name(options.type),
                " puts two elements into a byte, so it must be even"));
  }
}

}  // namespace

int64_t kv_page_bytes(const ModelConfig& config, int64_t num_kv_heads, const KvOptions& options) {
  int64_t total = 0;
  for (const Storage& storage : {keys_of(options), values_of(options)}) {
    const Sizes sizes = sizes_of(storage, num_kv_heads, options.page_size, config.head_dim);
    total += sizes.data_bytes + sizes.scale_elements * int64_t{sizeof(F16)};
  }
  return total * config.num_layers;
}

int64_t kv_tail_bytes(const ModelConfig& config, int64_t num_kv_heads, const KvOptions& options) {
  if (!has_tails(options.type)) return 0;
  return config.num_layers *
         storage_bytes(options.dtype, kKvGroup * num_kv_heads * config.head_dim);
}

KvMemory::KvMemory(const ModelConfig& config, int64_t num_kv_heads, const KvOptions& options,
                   Device device)
    : options_(options),
      num_layers_(config.num_layers),
      num_kv_heads_(num_kv_heads),
      head_dim_(config.head_dim) {
  check(config, num_kv_heads, options);
  page_bytes_ = kv_page_bytes(config, num_kv_heads, options);
  int64_t layer_bytes = 0;
  for (const Storage& storage : {keys_of(options), values_of(options)}) {
    const Sizes sizes = sizes_of(storage, num_kv_heads, options.page_size, head_dim_);
    layer_bytes += data_section(sizes, options.num_pages) + scale_section(sizes, options.num_pages);
  }
  memory_ = Tensor(DType::u8, {num_layers_, layer_bytes}, device);
  if (has_tails(options.type)) {
    tails_ = Tensor(options.dtype,
                    {options.num_tails, num_layers_, kKvGroup, num_kv_heads, head_dim_}, device);
  }
  copy_lists_ = Tensor(DType::i32, {2, kMaxCopies}, device);
  for (const Tensor* memory : {&memory_, &tails_}) {
    fill_bytes(memory->view().data, device, 0, static_cast<size_t>(memory->size_bytes()));
  }
  synchronize(device);
}

PagedKv KvMemory::layer(int64_t layer) const {
  if (layer < 0 || layer >= num_layers_)
    fail(concat("KvMemory: layer ", layer, " of ", num_layers_));
  const TensorView& all = memory_.view();
  const Storage keys = keys_of(options_), values = values_of(options_);
  const Sizes key_sizes = sizes_of(keys, num_kv_heads_, options_.page_size, head_dim_);
  const Sizes value_sizes = sizes_of(values, num_kv_heads_, options_.page_size, head_dim_);
  std::byte* const k_data = all.as<std::byte>() + layer * all.stride(0);
  std::byte* const v_data = k_data + data_section(key_sizes, options_.num_pages);
  std::byte* const k_scales = v_data + data_section(value_sizes, options_.num_pages);
  std::byte* const v_scales = k_scales + scale_section(key_sizes, options_.num_pages);
  const auto pages = [&](std::byte* data, DType dtype) {
    return TensorView::contiguous(
        data, dtype, {options_.num_pages, options_.page_size, num_kv_heads_, head_dim_},
        all.device);
  };
  PagedKv kv{.k_pages = pages(k_data, keys.dtype),
             .v_pages = pages(v_data, values.dtype),
             .page_table = {},
             .seq_lens = {},
             .k_scales = scales_view(k_scales, keys, key_sizes, options_, num_kv_heads_, head_dim_,
                                     all.device),
             .v_scales = scales_view(v_scales, values, value_sizes, options_, num_kv_heads_,
                                     head_dim_, all.device)};
  if (has_tails(options_.type)) {
    const TensorView one = tails_.view().slice(1, layer, layer + 1);
    kv.k_tail = one;
    kv.k_tail.rank = 4;
    kv.k_tail.shape = {one.size(0), one.size(2), one.size(3), one.size(4)};
    kv.k_tail.strides = {one.stride(0), one.stride(2), one.stride(3), one.stride(4)};
  }
  return kv;
}

void KvMemory::copy_pages(std::span<const std::pair<int32_t, int32_t>> copies, const Context& ctx) {
  for (const auto& [source, target] : copies) {
    if (std::min(source, target) >= 0 && std::max(source, target) < num_pages()) continue;
    fail(concat("KvMemory: page ", source, " to page ", target, "; there are ", num_pages()));
  }
  std::array<int32_t, 2 * kMaxCopies> lists{};
  for (size_t begin = 0; begin < copies.size(); begin += kMaxCopies) {
    const auto part = copies.subspan(begin, std::min<size_t>(kMaxCopies, copies.size() - begin));
    for (size_t i = 0; i < part.size(); ++i) {
      lists[i] = part[i].first;
      lists[kMaxCopies + i] = part[i].second;
    }
    // The lists are ordinary memory, so a copy to a GPU has read them when it returns.
    copy_bytes(copy_lists_.view().data, copy_lists_.view().device, lists.data(), cpu_device(),
               sizeof(lists), ctx.stream);
    const auto count = static_cast<int64_t>(part.size());
    const auto list = [&](int64_t which) {
      return TensorView::contiguous(copy_lists_.view().as<int32_t>() + which * kMaxCopies,
                                    DType::i32, {count}, copy_lists_.view().device);
    };
    for (int64_t i = 0; i < num_layers_; ++i) {
      const PagedKv kv = layer(i);
      kv_copy_pages({.k_pages = kv.k_pages,
                     .v_pages = kv.v_pages,
                     .sources = list(0),
                     .targets = list(1),
                     .k_scales = kv.k_scales,
                     .v_scales = kv.v_scales},
                    ctx);
    }
  }
}

void KvMemory::copy_tail(int32_t source, int32_t target, const Context& ctx) {
  const TensorView& all = tails_.view();
  if (std::min(source, target) < 0 || std::max(source, target) >= options_.num_tails) {
    fail(
        concat("KvMemory: tail ", source, " to tail ", target, "; there are ", options_.num_tails));
  }
  const int64_t bytes = storage_bytes(all.dtype, all.stride(0));
  copy_bytes(all.as<std::byte>() + target * bytes, all.device, all.as<std::byte>() + source * bytes,
             all.device, static_cast<size_t>(bytes), ctx.stream);
}

}  // namespace tessera::model
