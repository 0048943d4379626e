// KV caches over DLPack tensors: tokens appended, pages copied, pages read back.
// SPDX-License-Identifier: MIT
#include "tessera/ops/kv_cache.h"

#include <optional>
#include <string_view>

#include "c_api/call.h"
#include "c_api/dlpack.h"
#include "c_api/paged_kv.h"
#include "c_api/status.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::c_api {
namespace {

constexpr std::string_view kAppend = "kv_append";
constexpr std::string_view kGather = "kv_gather";
constexpr std::string_view kCopyPages = "kv_copy_pages";

TensorView rope_view(const DLTensor* tensor, std::string_view name) {
  if (tensor != nullptr) return required_view(tensor, {kAppend, name});
  fail(concat(kAppend, ": ", name, " is NULL; rotating takes rope_q, rope_positions and ",
              "rope_table: give all three, or none"));
}

std::optional<KvRope> to_rope(const TesseraKvAppendArgs& c) {
  if (c.rope_q == nullptr && c.rope_positions == nullptr && c.rope_table == nullptr) return {};
  return KvRope{.q = rope_view(c.rope_q, "rope_q"),
                .positions = rope_view(c.rope_positions, "rope_positions"),
                .table = rope_view(c.rope_table, "rope_table"),
                .style = to_enum(c.rope_style, RopeStyle::interleaved, "kv_append: rope_style")};
}

KvAppendArgs to_args(const TesseraKvAppendArgs& c) {
  return {.k = required_view(c.k, {kAppend, "k"}),
          .v = required_view(c.v, {kAppend, "v"}),
          .slots = required_view(c.slots, {kAppend, "slots"}),
          .k_pages = required_view(c.k_pages, {kAppend, "k_pages"}, c.k_format),
          .v_pages = required_view(c.v_pages, {kAppend, "v_pages"}, c.v_format),
          .k_scales = view_or_empty(c.k_scales, {kAppend, "k_scales"}),
          .v_scales = view_or_empty(c.v_scales, {kAppend, "v_scales"}),
          .k_tail = view_or_empty(c.k_tail, {kAppend, "k_tail"}),
          .tail_slots = view_or_empty(c.tail_slots, {kAppend, "tail_slots"}),
          .rope = to_rope(c)};
}

KvGatherArgs to_args(const TesseraKvGatherArgs& c) {
  return {.kv = to_paged_kv(c, kGather),
          .starts = required_view(c.starts, {kGather, "starts"}),
          .k = required_view(c.k, {kGather, "k"}),
          .v = required_view(c.v, {kGather, "v"})};
}

}  // namespace
}  // namespace tessera::c_api

using namespace tessera;
using namespace tessera::c_api;

TesseraStatus tessera_kv_append(const TesseraKvAppendArgs* args, const TesseraContext* ctx) {
  return guarded([&] {
    check_struct_size(args, kAppend, "TesseraKvAppendArgs");
    call(kAppend, &kv_append, to_args(*args), ctx);
  });
}

TesseraStatus tessera_kv_gather(const TesseraKvGatherArgs* args, const TesseraContext* ctx) {
  return guarded([&] {
    check_struct_size(args, kGather, "TesseraKvGatherArgs");
    call(kGather, &kv_gather, to_args(*args), ctx);
  });
}

TesseraStatus tessera_kv_copy_pages(const DLTensor* k_pages, const DLTensor* v_pages,
                                    const DLTensor* sources, const DLTensor* targets,
                                    const DLTensor* k_scales, const DLTensor* v_scales,
                                    int32_t k_format, int32_t v_format, const TesseraContext* ctx) {
  return guarded([&] {
    const KvCopyPagesArgs args{.k_pages = required_view(k_pages, {kCopyPages, "k_pages"}, k_format),
                               .v_pages = required_view(v_pages, {kCopyPages, "v_pages"}, v_format),
                               .sources = required_view(sources, {kCopyPages, "sources"}),
                               .targets = required_view(targets, {kCopyPages, "targets"}),
                               .k_scales = view_or_empty(k_scales, {kCopyPages, "k_scales"}),
                               .v_scales = view_or_empty(v_scales, {kCopyPages, "v_scales"})};
    call(kCopyPages, &kv_copy_pages, args, ctx);
  });
}
