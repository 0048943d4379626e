// Which row of attention serves which size of heads; no kernel runs.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <string>

#include "kernels/attention/rows.h"
#include "ops/dispatch.h"

namespace tessera::testing {
namespace {

using namespace ops;

template <class Args>
void ignore(const Args&) {}

// A view at an address that nothing reads.
TensorView view_of(DType dtype, std::initializer_list<int64_t> shape) {
  return TensorView::contiguous(reinterpret_cast<void*>(1 << 20), dtype, shape, cuda_device());
}

AttentionArgs prefill_of(DType dtype, int64_t d_k, int64_t d_v) {
  return {.q = view_of(dtype, {2, 16, 4, d_k}),
          .k = view_of(dtype, {2, 16, 2, d_k}),
          .v = view_of(dtype, {2, 16, 2, d_v}),
          .out = view_of(dtype, {2, 16, 4, d_v})};
}

DecodeAttentionArgs decode_of(DType dtype, DType pages, int64_t d) {
  DecodeAttentionArgs args;
  args.q = args.out = view_of(dtype, {2, 4, d});
  args.kv.k_pages = args.kv.v_pages = view_of(pages, {8, 32, 2, d});
  args.kv.page_table = view_of(DType::i32, {2, 4});
  args.kv.seq_lens = view_of(DType::i32, {2});
  return args;
}

class AttentionRows : public ::testing::Test {
 protected:
  void SetUp() override {
    if (prefill_.rows.empty()) GTEST_SKIP() << "this build has no CUDA rows";
  }
  std::string prefill(const AttentionArgs& args, const Target& target) const {
    const Row<AttentionArgs>* row = find_row(prefill_, args, target, {.batch_invariant = true});
    return row == nullptr ? "none" : row->name().substr(std::string("attention_prefill_").size());
  }
  std::string decode(const DecodeAttentionArgs& args, const Target& target) const {
    const Row<DecodeAttentionArgs>* row =
        find_row(decode_, args, target, {.batch_invariant = true});
    return row == nullptr ? "none" : row->name().substr(std::string("attention_decode_").size());
  }

  Op<AttentionArgs> prefill_{"attention_prefill", &ignore<AttentionArgs>, &ignore<AttentionArgs>,
                             kernels::attention_prefill_rows_sm90(),
                             kernels::attention_prefill_rows()};
  Op<DecodeAttentionArgs> decode_{
      "attention_decode", &ignore<DecodeAttentionArgs>, &ignore<DecodeAttentionArgs>,
      kernels::attention_decode_rows_sm90(), kernels::attention_decode_rows()};
  Target hopper{cuda_device(), 90}, ampere{cuda_device(), 80};
};

TEST_F(AttentionRows, ATileOfTheSizeComesBeforeAWiderOne) {
  for (const auto& [d, hopper_row, ampere_row] : {std::tuple{8, "up_to_d64", "up_to_d64"},
                                                  {64, "d64", "d64"},
                                                  {72, "up_to_d96", "up_to_d96"},
                                                  {80, "up_to_d96", "up_to_d96"},
                                                  {96, "d96", "d96"},
                                                  {112, "up_to_d128", "up_to_d128"},
                                                  {128, "d128", "d128"},
                                                  {160, "up_to_d192", "up_to_d256"},
                                                  {192, "up_to_d192", "up_to_d256"},
                                                  {200, "", "up_to_d256"},
                                                  {256, "d256", "d256"}}) {
    const AttentionArgs args = prefill_of(DType::bf16, d, d);
    const std::string portable = std::string("bf16_") + ampere_row;
    EXPECT_EQ(prefill(args, ampere), portable) << d;
    const std::string sm90 = std::string("sm90_bf16_") + hopper_row;
    EXPECT_EQ(prefill(args, hopper), *hopper_row == '\0' ? portable : sm90) << d;
  }
  EXPECT_EQ(prefill(prefill_of(DType::f16, 192, 128), hopper), "sm90_f16_d192_128");
  EXPECT_EQ(prefill(prefill_of(DType::f16, 96, 64), hopper), "sm90_f16_up_to_d96");
  EXPECT_EQ(prefill(prefill_of(DType::f16, 24, 72), hopper), "sm90_f16_up_to_d96");
  EXPECT_EQ(prefill(prefill_of(DType::f32, 80, 80), hopper), "f32_up_to_d128");
}

TEST_F(AttentionRows, WhatAPaddedHopperTileDeclinesThePortableOneTakes) {
  AttentionArgs args = prefill_of(DType::bf16, 80, 80);
  args.softcap = 30.0f;
  EXPECT_EQ(prefill(args, hopper), "bf16_up_to_d96");
  // Rows of 84 elements are aligned to 8 bytes, rows of 83 to 2.
  EXPECT_EQ(prefill(prefill_of(DType::bf16, 84, 84), hopper), "bf16_up_to_d96");
  EXPECT_EQ(prefill(prefill_of(DType::bf16, 258, 258), hopper), "none");
  EXPECT_EQ(prefill(prefill_of(DType::bf16, 83, 83), hopper), "none");
  EXPECT_EQ(prefill(prefill_of(DType::f32, 83, 83), hopper), "f32_up_to_d128");
}

TEST_F(AttentionRows, DecodeTakesEverySizeUpTo256) {
  EXPECT_EQ(decode(decode_of(DType::bf16, DType::bf16, 80), hopper), "sm90_bf16_d80");
  EXPECT_EQ(decode(decode_of(DType::f16, DType::f16, 192), hopper), "sm90_f16_d192");
  EXPECT_EQ(decode(decode_of(DType::bf16, DType::e4m3, 96), hopper), "sm90_bf16_e4m3_d96");
  EXPECT_EQ(decode(decode_of(DType::bf16, DType::e4m3, 80), hopper), "bf16");
  for (int64_t d = 8; d <= 256; d += 8) {
    EXPECT_EQ(decode(decode_of(DType::f16, DType::f16, d), ampere), "f16") << d;
    EXPECT_NE(decode(decode_of(DType::f16, DType::e5m2, d), hopper), "none") << d;
  }
  EXPECT_EQ(decode(decode_of(DType::f16, DType::f16, 264), hopper), "none");
}

}  // namespace
}  // namespace tessera::testing
