// attention_append: checks, dispatch, and the rows that are made of kv_append and attention_decode.
// SPDX-License-Identifier: MIT
#include "tessera/ops/attention_append.h"

#include "core/text.h"
#include "cpu/attention.h"
#include "cpu/kv_cache.h"
#include "kernels/attention/rows.h"
#include "ops/attention_check.h"
#include "ops/attention_rows.h"
#include "ops/dispatch.h"
#include "ops/kv_check.h"

namespace tessera {
namespace ops {
namespace {

void check_attention_append(const AppendAttentionArgs& args) {
  const auto& [append, decode, is_settled] = args;
  check_kv_append(append);
  check_attention_decode(decode);
  const Named out{"attention_append: decode.out", decode.out};
  if (decode.q.rank != 3 || decode.q.size(0) != append.k.size(0)) {
    fail(concat("attention_append: append.k is ", to_string(append.k), " and decode.q is ",
                to_string(decode.q), "; there must be one new token for each sequence"));
  }
  expect_same_tensor({"attention_append: append.k_pages", append.k_pages},
                     {"decode.kv.k_pages", decode.kv.k_pages});
  expect_same_tensor({"attention_append: append.v_pages", append.v_pages},
                     {"decode.kv.v_pages", decode.kv.v_pages});
  expect_same_tensor({"attention_append: append.k_scales", append.k_scales},
                     {"decode.kv.k_scales", decode.kv.k_scales});
  expect_same_tensor({"attention_append: append.v_scales", append.v_scales},
                     {"decode.kv.v_scales", decode.kv.v_scales});
  expect_same_tensor({"attention_append: append.k_tail", append.k_tail},
                     {"decode.kv.k_tail", decode.kv.k_tail});
  if (append.rope) {
    expect_same_tensor({"attention_append: append.rope.q", append.rope->q}, {"decode.q", decode.q});
  }
  expect_apart(out, {"attention_append: append.k", append.k});
  expect_apart(out, {"attention_append: append.v", append.v});
}

void run_append_on_cpu(const AppendAttentionArgs& args) {
  cpu::kv_append(args.append);
  cpu::attention_decode(args.decode);
}

void launch_both(const AppendAttentionArgs& args, const Context& ctx) {
  Context rest = ctx;
  rest.row = {};  // each call chooses its own
  kv_append(args.append, rest);
  attention_decode(args.decode, rest);
}

bool accepts_both(const AppendAttentionArgs& args) {
  return supports(args.append) && supports(args.decode);
}

template <class T>
constexpr Row<AppendAttentionArgs> kAppendRow{
    "attention_append", Library::portable, {dtype_of<T>, dtype_of<T>}, &launch_both, {},
    &accepts_both};
constexpr Row<AppendAttentionArgs> kAppendRows[] = {kAppendRow<Bf16>, kAppendRow<F16>,
                                                    kAppendRow<float>};

const Op<AppendAttentionArgs>& append_op() {
  static const Op<AppendAttentionArgs> op{"attention_append", &check_attention_append,
                                          &run_append_on_cpu, kernels::attention_append_rows_sm90(),
                                          attention_append_rows()};
  return op;
}

}  // namespace

std::span<const Row<AppendAttentionArgs>> attention_append_rows() {
  if (kernels::attention_decode_rows().empty()) return {};
  return kAppendRows;
}

}  // namespace ops

void attention_append(const AppendAttentionArgs& args, const Context& ctx) {
  ops::run(ops::append_op(), args, args.decode.q.device, ctx);
}

bool supports(const AppendAttentionArgs& args, const Context& ctx) {
  return ops::is_supported(ops::append_op(), args, args.decode.q.device, ctx);
}

}  // namespace tessera
