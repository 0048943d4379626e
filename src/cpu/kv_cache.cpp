// The KV cache on the CPU: append tokens, copy pages, read pages back.
// SPDX-License-Identifier: MIT
#include "cpu/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/text.h"
#include "cpu/elementwise.h"
#include "cpu/float_row.h"
#include "cpu/kv_rows.h"
#include "cpu/parallel.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"

namespace tessera::cpu {
namespace {

int64_t slot_at(const TensorView& slots, int64_t token) {
  return slots.dtype == DType::i32 ? slots.as<int32_t>()[token] : slots.as<int64_t>()[token];
}

void check_slots(const KvAppendArgs& args) {
  const int64_t num_slots = args.k_pages.size(0) * args.k_pages.size(1);
  const bool has_tail = args.k_tail.rank == 4;
  const int64_t num_tail_slots = has_tail ? args.k_tail.size(0) * kKvGroup : 0;
  for (int64_t token = 0; token < args.k.size(0); ++token) {
    const int64_t slot = slot_at(args.slots, token);
    if (slot >= num_slots) {
      fail(concat("kv_append: slots[", token, "] is ", slot, "; k_pages has ", args.k_pages.size(0),
                  " pages of ", args.k_pages.size(1), " tokens, so slots run to ", num_slots - 1,
                  "; a negative one is skipped"));
    }
    if (!has_tail || slot < 0) continue;
    const int64_t tail_slot = slot_at(args.tail_slots, token);
    if (tail_slot >= 0 && tail_slot < num_tail_slots && tail_slot % kKvGroup == slot % kKvGroup) {
      continue;
    }
    fail(concat("kv_append: tail_slots[", token, "] is ", tail_slot, " and slots[", token, "] is ",
                slot, "; k_tail has ", args.k_tail.size(0), " tails of ", kKvGroup,
                " tokens, and a token has the same place among 32 in both"));
  }
}

// One head of a token, as floats.
void read_head(const TensorView& from, int64_t token, int64_t head, float* elements) {
  const int64_t first = token * from.stride(0) + head * from.stride(1);
  with_float_type(from.dtype, [&](auto type) {
    const auto* x = from.as<decltype(type)>() + first;
    for (int64_t i = 0; i < from.size(2); ++i) elements[i] = to_float(x[i]);
  });
}

void write_token(const TensorView& from, int64_t token, const KvRows& rows, int64_t page,
                 int64_t row) {
  if (rows.format() == KvFormat::plain) {  // in the type of `from`
    const size_t head_bytes = static_cast<size_t>(storage_bytes(from.dtype, from.size(2)));
    for (int64_t head = 0; head < from.size(1); ++head) {
      const int64_t first = token * from.stride(0) + head * from.stride(1);
      std::memcpy(rows.row(page, row, head),
                  from.as<std::byte>() + storage_bytes(from.dtype, first), head_bytes);
    }
    return;
  }
  float* elements = thread_scratch(from.size(2));
  for (int64_t head = 0; head < from.size(1); ++head) {
    read_head(from, token, head, elements);
    rows.write(page, row, head, elements);
  }
}

// Writes the group that `token` completes: its key and the 31 before it, from the call or the tail.
void write_group(const KvAppendArgs& args, int64_t token, int64_t slot) {
  const int64_t d = args.k.size(2), page_size = args.k_pages.size(1);
  const KvRows pages(args.k_pages, args.k_scales), tails(args.k_tail, {});
  const int64_t tail = slot_at(args.tail_slots, token) / kKvGroup;
  int64_t num_new = 1;
  while (num_new < kKvGroup && num_new <= token &&
         slot_at(args.slots, token - num_new) == slot - num_new) {
    ++num_new;
  }
  float* rows = thread_scratch(kKvGroup * d);
  for (int64_t head = 0; head < args.k.size(1); ++head) {
    for (int64_t row = 0; row < kKvGroup; ++row) {
      const int64_t before = kKvGroup - 1 - row;
      if (before < num_new) {
        read_head(args.k, token - before, head, rows + row * d);
      } else {
        tails.read(tail, row, head, rows + row * d);
      }
    }
    pages.write_group(slot / page_size, slot % page_size / kKvGroup, head, rows);
  }
}

// Groups first: they may need keys that were in the tail before the call.
void append_columns(const KvAppendArgs& args) {
  const int64_t num_tokens = args.k.size(0);
  parallel_for(num_tokens, args.k.size(1) * args.k.size(2), [&](int64_t token) {
    const int64_t slot = slot_at(args.slots, token);
    if (slot >= 0 && slot % kKvGroup == kKvGroup - 1) write_group(args, token, slot);
  });
  const KvRows tails(args.k_tail, {});
  for (int64_t token = 0; token < num_tokens; ++token) {  // in order: later tokens overwrite
    if (slot_at(args.slots, token) < 0) continue;
    const int64_t slot = slot_at(args.tail_slots, token);
    write_token(args.k, token, tails, slot / kKvGroup, slot % kKvGroup);
  }
}

// Views tokens with heads as one page.
TensorView one_page(const TensorView& tokens) {
  TensorView view = tokens;
  view.rank = 4;
  view.shape = {1, tokens.size(0), tokens.size(1), tokens.size(2)};
  view.strides = {tokens.size(0) * tokens.stride(0), tokens.stride(0), tokens.stride(1),
                  tokens.stride(2)};
  return view;
}

// Copies a page of data or of scales, whatever its strides.
void copy_page(const TensorView& pool, int64_t source, int64_t target) {
  const TensorView from = pool.slice(0, source, source + 1), to = pool.slice(0, target, target + 1);
  if (from.is_contiguous()) {
    std::memcpy(to.data, from.data,
                static_cast<size_t>(storage_bytes(pool.dtype, from.num_elements())));
    return;
  }
  const int64_t row_bytes = storage_bytes(pool.dtype, pool.size(-1));
  const int64_t num_rows = from.num_elements() / std::max<int64_t>(pool.size(-1), 1);
  for (int64_t row = 0; row < num_rows; ++row) {
    int64_t rest = row, offset = 0;
    for (int d = pool.rank - 2; d >= 1; --d) {
      offset += rest % pool.size(d) * pool.stride(d);
      rest /= pool.size(d);
    }
    const int64_t at = storage_bytes(pool.dtype, offset);
    std::memcpy(to.as<char>() + at, from.as<char>() + at, static_cast<size_t>(row_bytes));
  }
}

// The first thing wrong with a list of copies, if any.
struct CopyFault {
  int64_t item = -1;  // negative: none
  const char* list = "";
  const char* reason = "";
};

CopyFault find_fault(const KvCopyPagesArgs& args) {
  const int64_t num_pages = args.k_pages.size(0);
  const int32_t* sources = args.sources.as<int32_t>();
  const int32_t* targets = args.targets.as<int32_t>();
  const int64_t count = args.sources.num_elements();
  const auto is_page = [num_pages](int32_t page) { return page >= 0 && page < num_pages; };
  for (int64_t i = 0; i < count; ++i) {
    if (!is_page(sources[i])) return {i, "sources", "is not a page"};
    if (!is_page(targets[i])) return {i, "targets", "is not a page"};
  }
  // One mark per page; the memory is kept between calls and is all zeros then.
  enum : uint8_t { kUntouched, kRead, kWritten };
  thread_local std::vector<uint8_t> marks;
  if (marks.size() < static_cast<size_t>(num_pages)) marks.resize(static_cast<size_t>(num_pages));
  const auto mark_of = [](int32_t page) -> uint8_t& { return marks[static_cast<size_t>(page)]; };
  for (int64_t i = 0; i < count; ++i) mark_of(sources[i]) = kRead;
  CopyFault fault;
  for (int64_t i = 0; i < count && fault.item < 0; ++i) {
    const uint8_t mark = mark_of(targets[i]);
    if (mark == kRead) fault = {i, "targets", "is also a source"};
    if (mark == kWritten) fault = {i, "targets", "is written twice"};
    mark_of(targets[i]) = kWritten;
  }
  for (int64_t i = 0; i < count; ++i) {
    mark_of(sources[i]) = kUntouched;
    mark_of(targets[i]) = kUntouched;
  }
  return fault;
}

void check_copies(const KvCopyPagesArgs& args) {
  const CopyFault fault = find_fault(args);
  if (fault.item < 0) return;
  const bool is_source = fault.list[0] == 's';
  const int32_t page = (is_source ? args.sources : args.targets).as<int32_t>()[fault.item];
  fail(concat("kv_copy_pages: ", fault.list, "[", fault.item, "] is ", page, ", which ",
              fault.reason, "; pages run from 0 to ", args.k_pages.size(0) - 1,
              ", and each target must be written once and read by no copy of the call"));
}

// Reads rows back and stores them in the types of args.k and args.v.
class Gather {
 public:
  Gather(const KvGatherArgs& args, const KvTokens& tokens)
      : args_(args),
        tokens_(tokens),
        k_(kv_pages(args.kv.k_pages, args.kv.k_scales)),
        v_(kv_pages(args.kv.v_pages, args.kv.v_scales)),
        k_out_(one_page(args.k), {}),
        v_out_(one_page(args.v), {}),
        read_(kv_read_builds().best()) {}

  // Tokens of a sequence from a multiple of kKvRun on.
  void copy(int64_t sequence, int64_t begin) const {
    const PagedKv& kv = args_.kv;
    const int64_t d = args_.k.size(2), end = std::min(begin + kKvRun, tokens_.length(sequence));
    const int64_t k_end = std::clamp(tokens_.tail_begin(sequence), begin, end);
    const int64_t first = args_.starts.as<int32_t>()[sequence];
    const bool has_table = kv.page_table.rank == 2;
    const auto own_page = static_cast<int32_t>(sequence);
    KvRun run{.table = has_table ? kv.page_table.as<int32_t>() + sequence * kv.page_table.stride(0)
                                 : &own_page,
              .page_size = kv.k_pages.size(1),
              .head_dim = d,
              .begin = begin};
    float* rows = thread_scratch(kv_run_floats(d));
    for (; run.head < args_.k.size(1); ++run.head) {
      run.count = k_end - begin;
      read_(k_, run, rows);
      store(k_out_, rows, first, run);
      for (int64_t token = k_end; token < end; ++token) {
        tokens_.read_k(sequence, token, run.head, rows);
        k_out_.write(0, first + token, run.head, rows);
      }
      run.count = end - begin;
      read_(v_, run, rows);
      store(v_out_, rows, first, run);
    }
  }

 private:
  static void store(const KvRows& out, const float* rows, int64_t first, const KvRun& run) {
    for (int64_t i = 0; i < run.count; ++i) {
      out.write(0, first + run.begin + i, run.head, rows + i * kv_run_stride(run.head_dim));
    }
  }

  const KvGatherArgs& args_;
  const KvTokens& tokens_;
  KvPages k_, v_;
  KvRows k_out_, v_out_;
  void (*read_)(const KvPages&, const KvRun&, float*);
};

}  // namespace

void kv_append(const KvAppendArgs& args) {
  check_slots(args);
  if (args.rope) {
    rope({.q = args.rope->q,
          .k = args.k,
          .positions = args.rope->positions,
          .table = args.rope->table,
          .style = args.rope->style});
  }
  const int64_t token_elements = args.k.size(1) * args.k.size(2);
  if (token_elements == 0) return;
  const KvRows k(args.k_pages, args.k_scales), v(args.v_pages, args.v_scales);
  const bool by_column = traits(k.format()).has_tail();
  const int64_t page_size = args.k_pages.size(1);
  parallel_for(args.k.size(0), 2 * token_elements, [&](int64_t token) {
    const int64_t slot = slot_at(args.slots, token);
    if (slot < 0) return;
    if (!by_column) write_token(args.k, token, k, slot / page_size, slot % page_size);
    write_token(args.v, token, v, slot / page_size, slot % page_size);
  });
  if (by_column) append_columns(args);
}

void kv_copy_pages(const KvCopyPagesArgs& args) {
  check_copies(args);
  const TensorView& pages = args.k_pages;
  const int64_t page_elements = pages.size(1) * pages.size(2) * pages.size(3);
  if (page_elements == 0) return;
  parallel_for(args.sources.num_elements(), 2 * page_elements, [&](int64_t i) {
    const int64_t source = args.sources.as<int32_t>()[i], target = args.targets.as<int32_t>()[i];
    for (const TensorView* pool : {&args.k_pages, &args.v_pages, &args.k_scales, &args.v_scales}) {
      if (pool->rank >= 4) copy_page(*pool, source, target);
    }
  });
}

void kv_gather(const KvGatherArgs& args) {
  check_tokens("kv_gather", args.kv);
  const KvTokens tokens(args.kv);
  const int32_t* starts = args.starts.as<int32_t>();
  const int64_t batch = args.starts.size(0), num_rows = args.k.size(0);
  for (int64_t s = 0; s < batch; ++s) {
    if (starts[s] >= 0 && starts[s] + tokens.length(s) <= num_rows) continue;
    fail(concat("kv_gather: starts[", s, "] is ", starts[s], " and seq_lens[", s, "] is ",
                tokens.length(s), "; k has ", num_rows, " tokens"));
  }
  const Gather gather(args, tokens);
  for (int64_t s = 0; s < batch; ++s) {
    const int64_t num_runs = (tokens.length(s) + kKvRun - 1) / kKvRun;
    parallel_for(num_runs, 2 * kKvRun * args.k.size(1) * args.k.size(2),
                 [&](int64_t run) { gather.copy(s, run * kKvRun); });
  }
}

}  // namespace tessera::cpu
