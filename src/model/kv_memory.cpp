// Pages of keys and values: one allocation for all layers.
// SPDX-License-Identifier: MIT
#include "model/kv_memory.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/text.h"
#include "tessera/core/error.h"
#include "tessera/ops/kv_cache.h"

namespace tessera::model {
namespace {

constexpr int64_t kMaxCopies = 256;  // pages copied by one launch a layer

}  // namespace

KvMemory::KvMemory(const ModelConfig& config, int64_t num_kv_heads, int64_t num_pages,
                   int64_t page_size, DType dtype, Device device)
    : num_pages_(num_pages), page_size_(page_size) {
  if (num_pages < 1 || page_size < 1 || num_kv_heads < 1) {
    fail(concat("KvMemory: num_pages is ", num_pages, ", page_size ", page_size, ", num_kv_heads ",
                num_kv_heads, "; each must be at least 1"));
  }
  memory_ = Tensor(
      dtype, {config.num_layers, 2, num_pages, page_size, num_kv_heads, config.head_dim}, device);
  copy_lists_ = Tensor(DType::i32, {2, kMaxCopies}, device);
  fill_bytes(memory_.view().data, device, 0, static_cast<size_t>(memory_.size_bytes()));
  synchronize(device);
}

TensorView KvMemory::pages(int64_t layer, int64_t which) const {
  const TensorView& all = memory_.view();
  if (layer < 0 || layer >= all.size(0)) {
    fail(concat("KvMemory: layer ", layer, " of ", all.size(0)));
  }
  const int64_t offset = layer * all.stride(0) + which * all.stride(1);
  return TensorView::contiguous(all.as<std::byte>() + storage_bytes(all.dtype, offset), all.dtype,
                                {all.size(2), all.size(3), all.size(4), all.size(5)}, all.device);
}

TensorView KvMemory::k_pages(int64_t layer) const { return pages(layer, 0); }
TensorView KvMemory::v_pages(int64_t layer) const { return pages(layer, 1); }

void KvMemory::copy_pages(std::span<const std::pair<int32_t, int32_t>> copies, const Context& ctx) {
  for (const auto& [source, target] : copies) {
    if (std::min(source, target) >= 0 && std::max(source, target) < num_pages_) continue;
    fail(concat("KvMemory: page ", source, " to page ", target, "; there are ", num_pages_));
  }
  std::array<int32_t, 2 * kMaxCopies> lists{};
  for (size_t begin = 0; begin < copies.size(); begin += kMaxCopies) {
    const auto part = copies.subspan(begin, std::min<size_t>(kMaxCopies, copies.size() - begin));
    for (size_t i = 0; i < part.size(); ++i) {
      lists[i] = part[i].first;
      lists[kMaxCopies + i] = part[i].second;
    }
    copy_bytes(copy_lists_.view().data, copy_lists_.view().device, lists.data(), cpu_device(),
               sizeof(lists), ctx.stream);
    const auto count = static_cast<int64_t>(part.size());
    const auto list = [&](int64_t which) {
      return TensorView::contiguous(copy_lists_.view().as<int32_t>() + which * kMaxCopies,
                                    DType::i32, {count}, copy_lists_.view().device);
    };
    for (int64_t layer = 0; layer < memory_.view().size(0); ++layer) {
      kv_copy_pages({.k_pages = k_pages(layer),
                     .v_pages = v_pages(layer),
                     .sources = list(0),
                     .targets = list(1)},
                    ctx);
    }
  }
}

}  // namespace tessera::model
