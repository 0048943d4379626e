// Attention over DLPack tensors: one struct of arguments, because most of them are optional.
// SPDX-License-Identifier: MIT
#include "tessera/ops/attention.h"

#include <string_view>

#include "c_api/call.h"
#include "c_api/dlpack.h"
#include "c_api/status.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::c_api {
namespace {

constexpr std::string_view kOp = "attention_prefill";

void check_struct(const TesseraAttentionArgs* args) {
  if (args == nullptr) fail(concat(kOp, ": args is NULL"));
  if (args->struct_size < sizeof(TesseraAttentionArgs)) {
    fail(concat("TesseraAttentionArgs.struct_size is ", args->struct_size, "; set it to sizeof, ",
                sizeof(TesseraAttentionArgs)));
  }
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

TensorView view_if_given(const DLTensor* tensor, std::string_view name) {
  return optional_view(tensor, {kOp, name}).value_or(TensorView{});
}

AttentionArgs to_args(const TesseraAttentionArgs& c) {
  return {.q = required_view(c.q, {kOp, "q"}, c.format),
          .k = required_view(c.k, {kOp, "k"}, c.format),
          .v = required_view(c.v, {kOp, "v"}, c.format),
          .out = required_view(c.out, {kOp, "out"}),
          .lse = view_if_given(c.lse, "lse"),
          .scale = c.scale,
          .mask = {.left = bound_of(c, TESSERA_ATTENTION_LEFT, c.left, "left"),
                   .right = bound_of(c, TESSERA_ATTENTION_RIGHT, c.right, "right"),
                   .intervals = view_if_given(c.intervals, "intervals")},
          .softcap = c.softcap,
          .sinks = view_if_given(c.sinks, "sinks"),
          .alibi_slopes = view_if_given(c.alibi_slopes, "alibi_slopes"),
          .q_starts = view_if_given(c.q_starts, "q_starts"),
          .kv_starts = view_if_given(c.kv_starts, "kv_starts"),
          .kv_lens = view_if_given(c.kv_lens, "kv_lens"),
          .k_page_table = view_if_given(c.k_page_table, "k_page_table"),
          .v_page_table = view_if_given(c.v_page_table, "v_page_table"),
          .q_scale = view_if_given(c.q_scale, "q_scale"),
          .k_scale = view_if_given(c.k_scale, "k_scale"),
          .v_scale = view_if_given(c.v_scale, "v_scale"),
          .sums_in_float = c.sums_in_float != 0,
          .dropout = {.rate = c.dropout_rate, .seed = c.dropout_seed}};
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
