// attention_merge and attention_cascade: dispatch, and the calls of a cascade.
// SPDX-License-Identifier: MIT
#include "ops/attention_cascade.h"

#include <algorithm>

#include "cpu/attention.h"
#include "kernels/attention/rows.h"
#include "ops/attention_rows.h"
#include "ops/dispatch.h"

namespace tessera {
namespace ops {
namespace {

// The scratch memory of a cascade: `parts` is [num_parts, tokens, heads, d], with the sequences'
// tokens one after the other, and `part_lses` [num_parts, tokens, heads].
class CascadeParts {
 public:
  explicit CascadeParts(const CascadeAttentionArgs& args)
      : args_(args),
        num_pieces_(args.piece_lens.size(0)),
        heads_(args.own.q.size(-2)),
        d_(args.own.q.size(-1)),
        tokens_(args.own.q.size(0) * q_len()) {}

  // Every piece has the same queries.
  AttentionArgs shared_call() const {
    const TensorView& q = args_.own.q;
    AttentionArgs call{.q = q,
                       .k = args_.k_pages,
                       .v = args_.v_pages,
                       .out = TensorView::contiguous(args_.parts.data, q.dtype,
                                                     {num_pieces_, tokens_, heads_, d_}, q.device),
                       .lse = args_.part_lses,
                       .scale = args_.own.scale,
                       .softcap = args_.own.softcap,
                       .kv_lens = args_.piece_lens,
                       .k_page_table = args_.page_table};
    call.q.rank = 4;
    call.q.shape = {num_pieces_, tokens_, heads_, d_};
    call.q.strides = {0, q.stride(q_len() > 1 ? 1 : 0), q.stride(-2), q.stride(-1)};
    call.lse.rank = 3;
    call.lse.shape = {num_pieces_, heads_, tokens_};
    call.lse.strides = {tokens_ * heads_, 1, heads_};
    return call;
  }

  // As given, but written to the last part.
  DecodeAttentionArgs own_call() const {
    DecodeAttentionArgs call = args_.own;
    const auto [parts, lses] = views(num_pieces_);
    call.out = without_first_axis(parts);
    call.lse = without_first_axis(lses);
    return call;
  }

  MergeAttentionArgs merge_call() const {
    const auto [parts, lses] = views(0);
    return {.parts = parts, .part_lses = lses, .out = args_.own.out, .lse = args_.own.lse};
  }

 private:
  struct Views {
    TensorView parts;  // with the axes of q
    TensorView lses;   // with the tokens of a sequence after the heads
  };

  int64_t q_len() const { return args_.own.q.rank == 4 ? args_.own.q.size(1) : 1; }

  Views views(int64_t first) const {
    const TensorView& q = args_.own.q;
    const int64_t count = num_pieces_ + 1 - first, batch = q.size(0), part = tokens_ * heads_;
    char* parts = args_.parts.as<char>() + storage_bytes(q.dtype, first * part * d_);
    float* lses = args_.part_lses.as<float>() + first * part;
    if (q.rank == 3) {
      return {TensorView::contiguous(parts, q.dtype, {count, batch, heads_, d_}, q.device),
              TensorView::contiguous(lses, DType::f32, {count, batch, heads_}, q.device)};
    }
    const TensorView by_token =
        TensorView::contiguous(lses, DType::f32, {count, batch, q_len(), heads_}, q.device);
    return {TensorView::contiguous(parts, q.dtype, {count, batch, q_len(), heads_, d_}, q.device),
            by_token.transposed(2, 3)};
  }

  static TensorView without_first_axis(TensorView view) {
    std::shift_left(view.shape.begin(), view.shape.end(), 1);
    std::shift_left(view.strides.begin(), view.strides.end(), 1);
    --view.rank;
    return view;
  }

  const CascadeAttentionArgs& args_;
  int64_t num_pieces_, heads_, d_, tokens_;
};

void run_cascade_on_cpu(const CascadeAttentionArgs& args) {
  const CascadeCalls calls = cascade_calls(args);
  cpu::attention_prefill(calls.shared);
  cpu::attention_decode(calls.own);
  cpu::attention_merge(calls.merge);
}

// Each call chooses its own row.
Context without_row(const Context& ctx) {
  Context rest = ctx;
  rest.row = {};
  return rest;
}

void launch_cascade(const CascadeAttentionArgs& args, const Context& ctx) {
  const CascadeCalls calls = cascade_calls(args);
  const Context rest = without_row(ctx);
  attention_prefill(calls.shared, rest);
  attention_decode(calls.own, rest);
  attention_merge(calls.merge, rest);
}

bool accepts_cascade(const CascadeAttentionArgs& args) {
  const CascadeCalls calls = cascade_calls(args);
  return supports(calls.shared) && supports(calls.own) && supports(calls.merge);
}

template <class T>
constexpr Row<CascadeAttentionArgs> kCascadeRow{
    "attention_cascade", Library::portable, {dtype_of<T>, dtype_of<T>}, &launch_cascade, {},
    &accepts_cascade};
constexpr Row<CascadeAttentionArgs> kCascadeRows[] = {kCascadeRow<Bf16>, kCascadeRow<F16>,
                                                      kCascadeRow<float>};

const Op<MergeAttentionArgs>& merge_op() {
  static const Op<MergeAttentionArgs> op{
      "attention_merge", &check_attention_merge, &cpu::attention_merge,
      kernels::attention_merge_rows_sm90(), kernels::attention_merge_rows()};
  return op;
}

const Op<CascadeAttentionArgs>& cascade_op() {
  static const Op<CascadeAttentionArgs> op{"attention_cascade",
                                           &check_attention_cascade,
                                           &run_cascade_on_cpu,
                                           {},
                                           attention_cascade_rows()};
  return op;
}

}  // namespace

CascadeCalls cascade_calls(const CascadeAttentionArgs& args) {
  const CascadeParts parts(args);
  return {parts.shared_call(), parts.own_call(), parts.merge_call()};
}

std::span<const Row<CascadeAttentionArgs>> attention_cascade_rows() {
  if (kernels::attention_merge_rows().empty()) return {};
  return kCascadeRows;
}

}  // namespace ops

void attention_merge(const MergeAttentionArgs& args, const Context& ctx) {
  ops::run(ops::merge_op(), args, args.out.device, ctx);
}

void attention_cascade(const CascadeAttentionArgs& args, const Context& ctx) {
  ops::run(ops::cascade_op(), args, args.own.q.device, ctx);
}

bool supports(const MergeAttentionArgs& args, const Context& ctx) {
  return ops::is_supported(ops::merge_op(), args, args.out.device, ctx);
}

bool supports(const CascadeAttentionArgs& args, const Context& ctx) {
  return ops::is_supported(ops::cascade_op(), args, args.own.q.device, ctx);
}

}  // namespace tessera
