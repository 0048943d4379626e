// Appending tokens to, and copying pages of, a KV cache on the CPU.
// SPDX-License-Identifier: MIT
#include "cpu/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/text.h"
#include "cpu/parallel.h"
#include "tessera/core/error.h"

namespace tessera::cpu {
namespace {

int64_t slot_at(const TensorView& slots, int64_t token) {
  return slots.dtype == DType::i32 ? slots.as<int32_t>()[token] : slots.as<int64_t>()[token];
}

void check_slots(const KvAppendArgs& args) {
  const int64_t num_slots = args.k_pages.size(0) * args.k_pages.size(1);
  for (int64_t token = 0; token < args.k.size(0); ++token) {
    const int64_t slot = slot_at(args.slots, token);
    if (slot < num_slots) continue;
    fail(concat("kv_append: slots[", token, "] is ", slot, "; k_pages has ", args.k_pages.size(0),
                " pages of ", args.k_pages.size(1), " tokens, so slots run to ", num_slots - 1,
                "; a negative one is skipped"));
  }
}

// One token's heads, wherever they lie, to where they lie side by side.
void write_token(const TensorView& from, int64_t token, const TensorView& pages, int64_t slot) {
  const int64_t element_bytes = bit_width(from.dtype) / 8;
  const int64_t num_heads = from.size(1), head_dim = from.size(2);
  const char* source = from.as<char>() + token * from.stride(0) * element_bytes;
  char* target = pages.as<char>() + slot * num_heads * head_dim * element_bytes;
  const size_t head_bytes = static_cast<size_t>(head_dim * element_bytes);
  for (int64_t head = 0; head < num_heads; ++head) {
    std::memcpy(target + head * head_dim * element_bytes,
                source + head * from.stride(1) * element_bytes, head_bytes);
  }
}

// The first thing wrong with a list of copies, if any.
struct CopyFault {
  int64_t item = -1;  // negative: all is well
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
  // One mark a page, kept from call to call and clean between calls.
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

}  // namespace

void kv_append(const KvAppendArgs& args) {
  check_slots(args);
  const int64_t token_elements = args.k.size(1) * args.k.size(2);
  if (token_elements == 0) return;
  parallel_for(args.k.size(0), 2 * token_elements, [&](int64_t token) {
    const int64_t slot = slot_at(args.slots, token);
    if (slot < 0) return;
    write_token(args.k, token, args.k_pages, slot);
    write_token(args.v, token, args.v_pages, slot);
  });
}

void kv_copy_pages(const KvCopyPagesArgs& args) {
  check_copies(args);
  const TensorView& pages = args.k_pages;
  const int64_t page_elements = pages.size(1) * pages.size(2) * pages.size(3);
  const int64_t page_bytes = storage_bytes(pages.dtype, page_elements);
  if (page_bytes == 0) return;
  parallel_for(args.sources.num_elements(), 2 * page_elements, [&](int64_t i) {
    const int64_t source = args.sources.as<int32_t>()[i] * page_bytes;
    const int64_t target = args.targets.as<int32_t>()[i] * page_bytes;
    for (const TensorView* pool : {&args.k_pages, &args.v_pages}) {
      std::memcpy(pool->as<char>() + target, pool->as<char>() + source,
                  static_cast<size_t>(page_bytes));
    }
  });
}

}  // namespace tessera::cpu
