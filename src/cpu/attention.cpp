// Attention on the CPU: chooses between the vectorised and the double-precision implementation, and
// divides vectorised calls into items for the threads.
// SPDX-License-Identifier: MIT
#include "cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cpu/attention_rows.h"
#include "cpu/attention_sequences.h"
#include "cpu/kv_rows.h"
#include "cpu/parallel.h"

namespace tessera::cpu {
namespace {

// Below this many multiply-adds a call takes a few microseconds, as long as waking threads.
constexpr int64_t kParallelWork = int64_t{1} << 18;

AttentionParams params_of(const AttentionArgs& args, const PagedKv& kv) {
  constexpr double kLog2E = 1.4426950408889634;
  AttentionParams params;
  params.dtype = args.q.dtype;
  params.q = args.q.data;
  params.out = args.out.data;
  params.k = kv_pages(args.k, kv.k_scales);
  params.v = kv_pages(args.v, kv.v_scales);
  if (traits(params.k.format).has_tail()) params.tail = kv_pages(kv.k_tail, {});
  params.q_token_stride = args.q.stride(-3);
  params.q_head_stride = args.q.stride(-2);
  params.out_token_stride = args.out.stride(-3);
  params.out_head_stride = args.out.stride(-2);
  params.page_size = args.k.size(1);
  params.num_kv_heads = args.k.size(2);
  params.heads_per_kv = args.q.size(-2) / params.num_kv_heads;
  params.head_dim = args.q.size(-1);
  // Lengths have 32 bits, so a larger window is no limit.
  constexpr int64_t kWidest = std::numeric_limits<int32_t>::max();
  const int64_t left = args.mask.left;
  params.window = left < 0 || left >= kWidest ? 0 : left + 1;
  const double scale = args.scale != 0.0f ? static_cast<double>(args.scale)
                                          : 1.0 / std::sqrt(static_cast<double>(params.head_dim));
  const double softcap = static_cast<double>(args.softcap);
  if (softcap == 0.0) {
    params.factor = static_cast<float>(scale * kLog2E);
  } else {
    params.factor = static_cast<float>(2.0 * kLog2E * scale / softcap);
    params.cap_log2 = static_cast<float>(softcap * kLog2E);
  }
  return params;
}

// Offset of a sequence's first query, in elements.
int64_t first_row(const TensorView& rows, const AttentionSequence& sequence) {
  const int64_t batch_stride = rows.rank == 4 ? rows.stride(0) : 0;
  return sequence.index * batch_stride + sequence.q_begin * rows.stride(-3);
}

// Appends the items of a sequence, the last rows first: they see the most keys, and short items at
// the end balance the threads. Returns the number of multiply-adds.
int64_t plan_sequence(const AttentionArgs& args, const PagedKv& kv, const AttentionParams& params,
                      const AttentionSequence& sequence, std::vector<AttentionItem>& items) {
  const TensorView& v_table = v_table_of(args);
  const int64_t num_rows = sequence.q_len * params.heads_per_kv;
  const int64_t num_parts = (num_rows + kRowsPerItem - 1) / kRowsPerItem;
  for (int64_t part = num_parts - 1; part >= 0; --part) {
    for (int64_t kv_head = 0; kv_head < params.num_kv_heads; ++kv_head) {
      AttentionItem item;
      item.k_table = args.k_page_table.as<int32_t>() + sequence.index * args.k_page_table.stride(0);
      item.v_table = v_table.as<int32_t>() + sequence.index * v_table.stride(0);
      if (params.tail.data != nullptr && sequence.kv_len > 0) {
        item.tail = kv.tails.as<int32_t>()[sequence.index];
        item.tail_begin = (sequence.kv_len - 1) / kKvGroup * kKvGroup;
      }
      item.q_begin = first_row(args.q, sequence);
      item.out_begin = first_row(args.out, sequence);
      item.first_position = sequence.position(0);
      item.kv_head = kv_head;
      item.first_row = part * kRowsPerItem;
      item.num_rows = std::min(kRowsPerItem, num_rows - item.first_row);
      items.push_back(item);
    }
  }
  const KeyRange keys = band_hull(args, sequence);
  const int64_t num_keys = keys.is_empty() ? 0 : keys.end - keys.begin;
  return 2 * num_rows * params.num_kv_heads * num_keys * params.head_dim;
}

// `kv` has what the pages of args have besides: scales and tails.
void run_by_vectors(const AttentionArgs& args, const PagedKv& kv, const AttentionNames& names,
                    SimdLevel level) {
  check_sequences(args, names);
  check_tails(names.op, kv);
  const AttentionParams params = params_of(args, kv);
  thread_local std::vector<AttentionItem> plan;  // keeps its memory between calls
  plan.clear();
  int64_t work = 0;
  for (int64_t s = 0; s < batch_of(args); ++s) {
    work += plan_sequence(args, kv, params, sequence_of(args, s), plan);
  }
  const auto attend = attend_builds().at(level);
  const int64_t scratch_floats = attention_scratch_floats(params.head_dim);
  const AttentionItem* items = plan.data();
  const int64_t num_items = static_cast<int64_t>(plan.size());
  parallel_shares(num_items, work > kParallelWork ? 1 : num_items, [&](Share& share) {
    float* scratch = thread_scratch(scratch_floats);
    while (share.next()) {
      for (int64_t i = share.begin(); i < share.end(); ++i) attend(params, items[i], scratch);
    }
  });
}

// Views tokens with heads as sequences of one token each.
TensorView one_token_each(const TensorView& tokens) {
  TensorView view = tokens;
  view.rank = 4;
  view.shape = {tokens.size(0), 1, tokens.size(1), tokens.size(2)};
  view.strides = {tokens.stride(0), tokens.stride(0), tokens.stride(1), tokens.stride(2)};
  return view;
}

}  // namespace

bool runs_by_vectors(const AttentionArgs& args) {
  const bool is_causal = args.mask.right == 0 && args.mask.intervals.rank == 0;
  const bool is_plain = args.lse.data == nullptr && args.sinks.data == nullptr &&
                        args.alibi_slopes.data == nullptr && args.dropout.rate == 0.0f;
  return is_paged(args) && is_causal && is_plain && args.q.dtype != DType::e4m3 &&
         args.q.size(-1) == args.v.size(-1);
}

void attention_prefill(const AttentionArgs& args, SimdLevel level) {
  if (runs_by_vectors(args)) return run_by_vectors(args, {}, {}, level);
  attention_in_double(args);
}

bool runs_by_vectors(const DecodeAttentionArgs& args) {
  const bool has_lists = args.tree.data != nullptr || args.blocks.rank == 2 || args.keys.rank == 3;
  return !has_lists && args.q.rank == 3 && args.kv.page_table.rank == 2 &&
         args.lse.data == nullptr && args.sinks.data == nullptr &&
         args.alibi_slopes.data == nullptr;
}

void attention_decode(const DecodeAttentionArgs& args, SimdLevel level) {
  if (!runs_by_vectors(args)) return decode_in_double(args);
  run_by_vectors({.q = one_token_each(args.q),
                  .k = args.kv.k_pages,
                  .v = args.kv.v_pages,
                  .out = one_token_each(args.out),
                  .scale = args.scale,
                  .mask = {.left = args.window - 1, .right = 0},
                  .softcap = args.softcap,
                  .kv_lens = args.kv.seq_lens,
                  .k_page_table = args.kv.page_table},
                 args.kv, {"attention_decode", "k_pages", "seq_lens", "page_table"}, level);
}

void attention_prefill(const AttentionArgs& args) { attention_prefill(args, simd_levels().back()); }

void attention_decode(const DecodeAttentionArgs& args) {
  attention_decode(args, simd_levels().back());
}

}  // namespace tessera::cpu
