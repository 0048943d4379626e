// Rows of a KV cache as floats, 64 tokens of a sequence at a time, by vectors.
// SPDX-License-Identifier: MIT
#include "cpu/attention_rows.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kv_read.cpp"
#include "hwy/foreach_target.h"  // must precede highway.h
#include "hwy/highway.h"
#include "cpu/attention_block.h"  // of this instruction set: after both
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

void read_run(const KvPages& pages, const KvRun& run, float* floats) {
  const int64_t stride = kv_run_stride(run.head_dim);
  PagedRows rows(pages, run.table, run.page_size, run.head, run.head_dim);
  rows.enter(run.begin, 0, run.begin + run.count);
  rows.read({0, run.count}, floats, stride, floats + kKvRun * stride);
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

static_assert(kKvRun == kKeyBlock);

int64_t kv_run_stride(int64_t head_dim) {
  return (head_dim + kSumLanes - 1) / kSumLanes * kSumLanes;
}

int64_t kv_run_floats(int64_t head_dim) { return (kKvRun + 2) * kv_run_stride(head_dim); }

SimdBuilds<void(const KvPages&, const KvRun&, float*)> kv_read_builds() {
  return {HWY_STATIC_DISPATCH(read_run), HWY_CHOOSE_AVX2(read_run), HWY_CHOOSE_AVX3(read_run)};
}

}  // namespace tessera::cpu
#endif  // HWY_ONCE
