// attention_prefill and attention_decode: dispatch.
// SPDX-License-Identifier: MIT
#include "tessera/ops/attention.h"

#include "cpu/attention.h"
#include "kernels/attention/rows.h"
#include "ops/attention_check.h"
#include "ops/dispatch.h"

namespace tessera {

namespace {

using namespace ops;

const Op<AttentionArgs>& prefill_op() {
  static const Op<AttentionArgs> op{"attention_prefill", &check_attention, &cpu::attention_prefill,
                                    kernels::attention_prefill_rows_sm90(),
                                    kernels::attention_prefill_rows()};
  return op;
}

const Op<DecodeAttentionArgs>& decode_op() {
  static const Op<DecodeAttentionArgs> op{
      "attention_decode", &check_attention_decode, &cpu::attention_decode,
      kernels::attention_decode_rows_sm90(), kernels::attention_decode_rows()};
  return op;
}

}  // namespace

void attention_prefill(const AttentionArgs& args, const Context& ctx) {
  run(prefill_op(), args, args.q.device, ctx);
}

void attention_decode(const DecodeAttentionArgs& args, const Context& ctx) {
  run(decode_op(), args, args.q.device, ctx);
}

bool supports(const AttentionArgs& args, const Context& ctx) {
  return is_supported(prefill_op(), args, args.q.device, ctx);
}

bool supports(const DecodeAttentionArgs& args, const Context& ctx) {
  return is_supported(decode_op(), args, args.q.device, ctx);
}

}  // namespace tessera
