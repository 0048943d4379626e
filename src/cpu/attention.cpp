// Attention on the CPU: what the tensors hold is checked, cut into items and shared out.
// SPDX-License-Identifier: MIT
#include "cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "core/text.h"
#include "cpu/attention_rows.h"
#include "cpu/parallel.h"
#include "tessera/core/error.h"

namespace tessera::cpu {
namespace {

// Below this many multiply-adds a call takes some microseconds, and waking threads costs as much.
constexpr int64_t kParallelWork = int64_t{1} << 18;

// Both operations, as one: a decode is a chunk of one token for each sequence.
struct Call {
  std::string_view op;
  const TensorView& q;
  const PagedKv& kv;
  const TensorView& out;
  const AttentionScores& scores;
  const int32_t* query_starts;  // [batch + 1]; null: token s is of sequence s

  int64_t batch() const { return kv.seq_lens.size(0); }
  int64_t query_start(int64_t s) const { return query_starts == nullptr ? s : query_starts[s]; }
  int64_t num_queries(int64_t s) const { return query_start(s + 1) - query_start(s); }
  int64_t seq_len(int64_t s) const { return kv.seq_lens.as<int32_t>()[s]; }
  const int32_t* pages(int64_t s) const {
    return kv.page_table.as<int32_t>() + s * kv.page_table.stride(0);
  }
  // The first key that any query of the sequence sees.
  int64_t first_key(int64_t s) const {
    const int64_t first_position = seq_len(s) - num_queries(s);
    return scores.window == 0 ? 0 : std::max<int64_t>(0, first_position - scores.window + 1);
  }
};

void check_starts(const Call& call) {
  if (call.query_starts == nullptr) return;
  const int64_t tokens = call.q.size(0);
  if (call.query_start(0) != 0) {
    fail(concat(call.op, ": query_starts[0] is ", call.query_start(0), "; it must be 0"));
  }
  for (int64_t s = 0; s < call.batch(); ++s) {
    if (call.num_queries(s) >= 0) continue;
    fail(concat(call.op, ": query_starts[", s + 1, "] is ", call.query_start(s + 1), " after ",
                call.query_start(s), "; the starts must ascend"));
  }
  if (call.query_start(call.batch()) == tokens) return;
  fail(concat(call.op, ": query_starts[", call.batch(), "] is ", call.query_start(call.batch()),
              " and q has ", tokens, " tokens; the last start must be their number"));
}

void check_sequence(const Call& call, int64_t s) {
  const int64_t page_size = call.kv.k_pages.size(1);
  const int64_t num_pages = call.kv.k_pages.size(0);
  const int64_t max_pages = call.kv.page_table.size(1);
  const int64_t seq_len = call.seq_len(s);
  if (seq_len < 0 || seq_len > max_pages * page_size) {
    fail(concat(call.op, ": seq_lens[", s, "] is ", seq_len, "; a row of page_table holds ",
                max_pages, " pages of ", page_size, " tokens, so it may be 0 to ",
                max_pages * page_size));
  }
  if (seq_len == 0 || call.num_queries(s) == 0) return;
  if (call.num_queries(s) > seq_len) {
    fail(concat(call.op, ": sequence ", s, " has ", call.num_queries(s),
                " query tokens and seq_lens[", s, "] is ", seq_len,
                "; the queries are its last tokens, so append their keys first and count them"));
  }
  const int32_t* pages = call.pages(s);
  for (int64_t i = call.first_key(s) / page_size; i <= (seq_len - 1) / page_size; ++i) {
    if (pages[i] >= 0 && pages[i] < num_pages) continue;
    fail(concat(call.op, ": page_table[", s, ", ", i, "] is ", pages[i], "; k_pages has ",
                num_pages, " pages, and seq_lens[", s, "] of ", seq_len, " needs this one"));
  }
}

AttentionParams params_of(const Call& call) {
  constexpr double kLog2E = 1.4426950408889634;
  AttentionParams params;
  params.dtype = call.q.dtype;
  params.q = call.q.data;
  params.out = call.out.data;
  params.k_pages = call.kv.k_pages.data;
  params.v_pages = call.kv.v_pages.data;
  params.q_token_stride = call.q.stride(0);
  params.q_head_stride = call.q.stride(1);
  params.out_token_stride = call.out.stride(0);
  params.out_head_stride = call.out.stride(1);
  params.page_size = call.kv.k_pages.size(1);
  params.num_kv_heads = call.kv.k_pages.size(2);
  params.heads_per_kv = call.q.size(1) / params.num_kv_heads;
  params.head_dim = call.q.size(2);
  // Lengths are 32 bits wide, so a window beyond them bounds nothing.
  constexpr int64_t kWidest = std::numeric_limits<int32_t>::max();
  params.window = call.scores.window > kWidest ? 0 : call.scores.window;
  const double scale = call.scores.scale != 0.0f
                           ? static_cast<double>(call.scores.scale)
                           : 1.0 / std::sqrt(static_cast<double>(params.head_dim));
  const double softcap = static_cast<double>(call.scores.softcap);
  if (softcap == 0.0) {
    params.factor = static_cast<float>(scale * kLog2E);
  } else {
    params.factor = static_cast<float>(2.0 * kLog2E * scale / softcap);
    params.cap_log2 = static_cast<float>(softcap * kLog2E);
  }
  return params;
}

// Appends the items of sequence s, the last rows first, because they see the most keys and the
// short items then fill the gaps between threads. Returns the multiply-adds of all.
int64_t plan_sequence(const Call& call, const AttentionParams& params, int64_t s,
                      std::vector<AttentionItem>& items) {
  const int64_t num_rows = call.num_queries(s) * params.heads_per_kv;
  const int64_t num_keys = call.seq_len(s) - (call.seq_len(s) == 0 ? 0 : call.first_key(s));
  const int64_t num_parts = (num_rows + kRowsPerItem - 1) / kRowsPerItem;
  for (int64_t part = num_parts - 1; part >= 0; --part) {
    for (int64_t kv_head = 0; kv_head < params.num_kv_heads; ++kv_head) {
      AttentionItem item;
      item.pages = call.pages(s);
      item.first_token = call.query_start(s);
      item.first_position = call.seq_len(s) - call.num_queries(s);
      item.kv_head = kv_head;
      item.first_row = part * kRowsPerItem;
      item.num_rows = std::min(kRowsPerItem, num_rows - item.first_row);
      items.push_back(item);
    }
  }
  return 2 * num_rows * params.num_kv_heads * num_keys * params.head_dim;
}

void run(const Call& call, SimdLevel level) {
  check_starts(call);
  for (int64_t s = 0; s < call.batch(); ++s) check_sequence(call, s);
  const AttentionParams params = params_of(call);
  thread_local std::vector<AttentionItem> plan;  // keeps its memory from call to call
  plan.clear();
  int64_t work = 0;
  for (int64_t s = 0; s < call.batch(); ++s) work += plan_sequence(call, params, s, plan);
  const auto attend = attend_builds().at(level);
  const int64_t scratch_floats = attention_scratch_floats(params.head_dim);
  const AttentionItem* items = plan.data();
  const int64_t num_items = static_cast<int64_t>(plan.size());
  // Which thread computes an item cannot change it, so the threads take the next one as they come
  // free.
#pragma omp parallel for schedule(dynamic) if (num_items > 1 && work > kParallelWork)
  for (int64_t i = 0; i < num_items; ++i) {
    attend(params, items[i], thread_scratch(scratch_floats));
  }
}

}  // namespace

void attention_prefill(const PrefillAttentionArgs& args, SimdLevel level) {
  run({"attention_prefill", args.q, args.kv, args.out, args.scores,
       args.query_starts.as<int32_t>()},
      level);
}

void attention_decode(const DecodeAttentionArgs& args, SimdLevel level) {
  run({"attention_decode", args.q, args.kv, args.out, args.scores, nullptr}, level);
}

void attention_prefill(const PrefillAttentionArgs& args) {
  attention_prefill(args, simd_levels().back());
}

void attention_decode(const DecodeAttentionArgs& args) {
  attention_decode(args, simd_levels().back());
}

}  // namespace tessera::cpu
