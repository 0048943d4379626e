// Attention over DLPack tensors: one struct of arguments, because most of them are optional.
// SPDX-License-Identifier: MIT
#include "tessera/ops/attention.h"

#include <string_view>

#include "c_api/call.h"
#include "c_api/dlpack.h"
#include "c_api/paged_kv.h"
#include "c_api/status.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::c_api {
namespace {

constexpr std::string_view kOp = "attention_prefill";
constexpr std::string_view kDecode = "attention_decode";
constexpr std::string_view kMerge = "attention_merge";
constexpr std::string_view kCascade = "attention_cascade";

void check_struct(const TesseraAttentionArgs* args) {
  check_struct_size(args, kOp, "TesseraAttentionArgs");
  constexpr int32_t kKnown = TESSERA_ATTENTION_LEFT | TESSERA_ATTENTION_RIGHT;
  if ((args->bounds & ~kKnown) != 0) {
    fail(concat(kOp, ": bounds is ", args->bounds, "; this library knows the bits of ", kKnown));
  }
}

// A bound that holds counts keys. In C++ a negative one means none, which here is a bit's matter.
int64_t bound_of(const TesseraAttentionArgs& args, int32_t bit, int64_t value,
                 std::string_view name) {
  if ((args.bounds & bit) == 0) return -1;
  if (value < 0) {
    fail(concat(kOp, ": ", name, " is ", value,
                "; want 0 or more, or no bit of it in bounds for a mask without it"));
  }
  return value;
}

AttentionArgs to_args(const TesseraAttentionArgs& c) {
  const auto optional = [](const DLTensor* tensor, std::string_view name) {
    return view_or_empty(tensor, {kOp, name});
  };
  return {.q = required_view(c.q, {kOp, "q"}, c.format),
          .k = required_view(c.k, {kOp, "k"}, c.format),
          .v = required_view(c.v, {kOp, "v"}, c.format),
          .out = required_view(c.out, {kOp, "out"}),
          .lse = optional(c.lse, "lse"),
          .scale = c.scale,
          .mask = {.left = bound_of(c, TESSERA_ATTENTION_LEFT, c.left, "left"),
                   .right = bound_of(c, TESSERA_ATTENTION_RIGHT, c.right, "right"),
                   .intervals = optional(c.intervals, "intervals")},
          .softcap = c.softcap,
          .sinks = optional(c.sinks, "sinks"),
          .alibi_slopes = optional(c.alibi_slopes, "alibi_slopes"),
          .q_starts = optional(c.q_starts, "q_starts"),
          .kv_starts = optional(c.kv_starts, "kv_starts"),
          .kv_lens = optional(c.kv_lens, "kv_lens"),
          .k_page_table = optional(c.k_page_table, "k_page_table"),
          .v_page_table = optional(c.v_page_table, "v_page_table"),
          .q_scale = optional(c.q_scale, "q_scale"),
          .k_scale = optional(c.k_scale, "k_scale"),
          .v_scale = optional(c.v_scale, "v_scale"),
          .sums_in_float = c.sums_in_float != 0,
          .dropout = {.rate = c.dropout_rate, .seed = c.dropout_seed}};
}

// What decode attention takes whether or not sequences begin with the same keys.
template <class Args>
DecodeAttentionArgs to_decode_args(const Args& c, std::string_view op) {
  const auto optional = [&](const DLTensor* tensor, std::string_view name) {
    return view_or_empty(tensor, {op, name});
  };
  return {.q = required_view(c.q, {op, "q"}),
          .kv = to_paged_kv(c, op),
          .out = required_view(c.out, {op, "out"}),
          .scale = c.scale,
          .softcap = c.softcap,
          .lse = optional(c.lse, "lse"),
          .sinks = optional(c.sinks, "sinks"),
          .tree = optional(c.tree, "tree"),
          .blocks = optional(c.blocks, "blocks"),
          .num_blocks = optional(c.num_blocks, "num_blocks"),
          .keys = optional(c.keys, "keys"),
          .num_keys = optional(c.num_keys, "num_keys"),
          .longest = c.longest};
}

DecodeAttentionArgs to_args(const TesseraDecodeAttentionArgs& c) {
  DecodeAttentionArgs args = to_decode_args(c, kDecode);
  args.window = c.window;
  args.alibi_slopes = view_or_empty(c.alibi_slopes, {kDecode, "alibi_slopes"});
  args.shares_pages = c.shares_pages != 0;
  return args;
}

MergeAttentionArgs to_args(const TesseraMergeAttentionArgs& c) {
  return {.parts = required_view(c.parts, {kMerge, "parts"}),
          .part_lses = required_view(c.part_lses, {kMerge, "part_lses"}),
          .out = required_view(c.out, {kMerge, "out"}),
          .lse = view_or_empty(c.lse, {kMerge, "lse"})};
}

CascadeAttentionArgs to_args(const TesseraCascadeAttentionArgs& c) {
  return {.own = to_decode_args(c, kCascade),
          .k_pages = required_view(c.shared_k_pages, {kCascade, "shared_k_pages"}),
          .v_pages = required_view(c.shared_v_pages, {kCascade, "shared_v_pages"}),
          .page_table = view_or_empty(c.shared_page_table, {kCascade, "shared_page_table"}),
          .piece_lens = required_view(c.piece_lens, {kCascade, "piece_lens"}),
          .parts = required_view(c.parts, {kCascade, "parts"}),
          .part_lses = required_view(c.part_lses, {kCascade, "part_lses"})};
}

}  // namespace
}  // namespace tessera::c_api

using namespace tessera;
using namespace tessera::c_api;

TesseraStatus tessera_attention_prefill(const TesseraAttentionArgs* args,
                                        const TesseraContext* ctx) {
  return guarded([&] {
    check_struct(args);
    call(kOp, &attention_prefill, to_args(*args), ctx);
  });
}

TesseraStatus tessera_attention_decode(const TesseraDecodeAttentionArgs* args,
                                       const TesseraContext* ctx) {
  return guarded([&] {
    check_struct_size(args, kDecode, "TesseraDecodeAttentionArgs");
    call(kDecode, &attention_decode, to_args(*args), ctx);
  });
}

TesseraStatus tessera_attention_merge(const TesseraMergeAttentionArgs* args,
                                      const TesseraContext* ctx) {
  return guarded([&] {
    check_struct_size(args, kMerge, "TesseraMergeAttentionArgs");
    call(kMerge, &attention_merge, to_args(*args), ctx);
  });
}

TesseraStatus tessera_attention_cascade(const TesseraCascadeAttentionArgs* args,
                                        const TesseraContext* ctx) {
  return guarded([&] {
    check_struct_size(args, kCascade, "TesseraCascadeAttentionArgs");
    call(kCascade, &attention_cascade, to_args(*args), ctx);
  });
}
