// The rows of the KV cache operations: what they take and what they refuse; no kernel runs.
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "kernels/kv/rows.h"
#include "ops/dispatch.h"
#include "ops/registry.h"
#include "tests/ops/refusal.h"

namespace tessera::testing {
namespace {

using namespace ops;

template <class Args>
void ignore(const Args&) {}

class KvRowsFor : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kernels::kv_cache_rows().append.empty()) GTEST_SKIP() << "this build has no CUDA rows";
  }
  template <class Args>
  Op<Args> op_of(std::string_view name, std::span<const Row<Args>> kernels::KvCacheRows::*rows) {
    return {name, &ignore<Args>, &ignore<Args>, kernels::kv_cache_rows_sm90().*rows,
            kernels::kv_cache_rows().*rows};
  }
  template <class Args>
  static std::string found(const Op<Args>& op, const Args& args, const Target& target) {
    const Row<Args>* row = find_row(op, args, target, {});
    return row == nullptr ? "none" : row->name();
  }

  Target hopper{cuda_device(), 90}, ampere{cuda_device(), 80};
  Tensor k{DType::bf16, {3, 2, 8}}, halves{DType::f16, {3, 2, 8}}, slots{DType::i64, {3}};
  Tensor bytes{DType::i8, {4, 5, 2, 8}}, codes{DType::i4, {4, 5, 2, 8}};
};

TEST_F(KvRowsFor, AppendGoByTheTypeOfTheTokensAlone) {
  const Op<KvAppendArgs> op = op_of("kv_append", &kernels::KvCacheRows::append);
  KvAppendArgs args{.k = k, .v = k, .slots = slots, .k_pages = bytes, .v_pages = codes};
  EXPECT_EQ(found(op, args, hopper), "kv_append_sm90_bf16");
  EXPECT_EQ(found(op, args, ampere), "kv_append_bf16");
  args.k_pages = codes;
  EXPECT_EQ(found(op, args, hopper), "kv_append_sm90_bf16");
  args.k = args.v = halves;
  EXPECT_EQ(found(op, args, ampere), "kv_append_f16");
  EXPECT_TRUE(refused([&] { refuse(op, args, ampere, {.row = "kv_append_f32"}); },
                      {"'kv_append_f32' is for f32", "the arguments are f16"}));
  args.k_pages.shape = {int64_t{1} << 30, 4, 2, 8};
  EXPECT_EQ(found(op, args, hopper), "none");
  EXPECT_TRUE(refused([&] { refuse(op, args, hopper, {.row = "kv_append_sm90_f16"}); },
                      {"'kv_append_sm90_f16'", "does not take these arguments"}));
}

TEST_F(KvRowsFor, GatherGoByTheTypeOfTheResult) {
  const Op<KvGatherArgs> op = op_of("kv_gather", &kernels::KvCacheRows::gather);
  KvGatherArgs args{.kv = {}, .starts = slots, .k = halves, .v = halves};
  args.kv.k_pages = args.kv.v_pages = bytes;
  EXPECT_EQ(found(op, args, hopper), "kv_gather_sm90_f16");
  args.k = args.v = k;
  EXPECT_EQ(found(op, args, ampere), "kv_gather_bf16");
  args.k = args.v = bytes;
  EXPECT_EQ(found(op, args, hopper), "none");
}

TEST_F(KvRowsFor, CopiesOfPagesTakeEveryType) {
  const Op<KvCopyPagesArgs> op = op_of("kv_copy_pages", &kernels::KvCacheRows::copy_pages);
  for (const Tensor* pages : {&bytes, &codes}) {
    const KvCopyPagesArgs args{
        .k_pages = *pages, .v_pages = *pages, .sources = slots, .targets = slots};
    EXPECT_EQ(found(op, args, hopper), "kv_copy_pages_sm90_bytes");
    EXPECT_EQ(found(op, args, ampere), "kv_copy_pages_bytes");
  }
}

TEST_F(KvRowsFor, AreAllInTheRegistry) {
  const std::vector<RowInfo> rows = all_rows();
  for (const char* name : {"kv_append_sm90_bf16", "kv_append_f32", "kv_gather_sm90_f16",
                           "kv_gather_bf16", "kv_copy_pages_sm90_bytes", "kv_copy_pages_bytes"}) {
    const auto it = std::ranges::find(rows, name, &RowInfo::name);
    ASSERT_NE(it, rows.end()) << name;
    EXPECT_EQ(it->family, "kv");
    EXPECT_TRUE(it->is_batch_invariant);
  }
  EXPECT_EQ(std::ranges::count(rows, "kv", &RowInfo::family), 14);
}

}  // namespace
}  // namespace tessera::testing
