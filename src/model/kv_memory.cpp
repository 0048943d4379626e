// Pages of keys and values, with their scales, and tails; and copies of them.
// SPDX-License-Identifier: MIT
#include "model/kv_memory.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

constexpr int64_t kMaxCopies = 256;  // pages copied by one launch a layer

}  // namespace

KvMemory::KvMemory(const ModelConfig& config, int64_t num_kv_heads, const KvOptions& options,
                   TensorPool pool)
    : options_(options),
      layout_(config, num_kv_heads, options),
      num_kv_heads_(num_kv_heads),
      pool_(std::move(pool)) {
  memory_ = pool_.make_zeros(DType::u8, {config.num_layers, layout_.layer_bytes()});
  if (has_tails(options.type)) {
    tails_ = pool_.make_zeros(options.dtype, {options.num_tails, config.num_layers, kKvGroup,
                                              num_kv_heads, config.head_dim});
  }
  if (pool_.is_dry()) return;
  copy_lists_ = Tensor(DType::i32, {2, kMaxCopies}, pool_.device());
  synchronize(pool_.device());
}

void KvMemory::set_scales(std::span<const KvScale> scales) {
  if (scales.empty() || traits(options_.type).scales != KvScales::head) return;
  if (std::ssize(scales) != num_layers()) {
    fail(concat("KvMemory: ", scales.size(), " scales for ", num_layers(), " layers"));
  }
  const Tensor host(DType::f32, {num_layers(), 2});
  for (int64_t i = 0; i < num_layers(); ++i) {
    host.view().as<float>()[2 * i] = scales[static_cast<size_t>(i)].k;
    host.view().as<float>()[2 * i + 1] = scales[static_cast<size_t>(i)].v;
  }
  fp8_scales_ = host.to(pool_.device());
}

PagedKv KvMemory::layer(int64_t layer) const {
  if (layer < 0 || layer >= num_layers()) {
    fail(concat("KvMemory: layer ", layer, " of ", num_layers()));
  }
  PagedKv kv = layout_.views(memory_.slice(0, layer, layer + 1));
  if (fp8_scales_.view().rank > 0) {
    float* const own = fp8_scales_.view().as<float>() + 2 * layer;
    kv.k_scales = TensorView::contiguous(own, DType::f32, {1}, fp8_scales_.view().device);
    kv.v_scales = TensorView::contiguous(own + 1, DType::f32, {1}, fp8_scales_.view().device);
  }
  if (has_tails(options_.type)) {
    const TensorView one = tails_.slice(1, layer, layer + 1);
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
    for (int64_t i = 0; i < num_layers(); ++i) {
      PagedKv kv = layer(i);
      if (traits(options_.type).scales == KvScales::head) kv.k_scales = kv.v_scales = {};
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
  const TensorView& all = tails_;
  if (std::min(source, target) < 0 || std::max(source, target) >= options_.num_tails) {
    fail(
        concat("KvMemory: tail ", source, " to tail ", target, "; there are ", options_.num_tails));
  }
  const int64_t bytes = storage_bytes(all.dtype, all.stride(0));
  copy_bytes(all.as<std::byte>() + target * bytes, all.device, all.as<std::byte>() + source * bytes,
             all.device, static_cast<size_t>(bytes), ctx.stream);
}

}  // namespace tessera::model
