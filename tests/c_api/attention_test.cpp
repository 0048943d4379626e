// Attention through the C ABI, on numbers small enough to check by hand.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/c_api/dl_tensor.h"
#include "tests/c_api/expect.h"
#include "tests/c_api/plain_c.h"

namespace tessera::testing {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;

// Four tokens of one head, with all scores 0: a query returns the mean of the values it sees. They
// are powers of two, so their sum shows which ones were seen. Each test sets the arguments it is
// about.
struct AttentionCase {
  Array<float> q{{1, 4, 1, 2}};
  Array<float> k{{1, 4, 1, 2}};
  Array<float> v{{1, 4, 1, 1}, {12, 24, 48, 96}};
  Array<float> out{{1, 4, 1, 1}};
  TesseraAttentionArgs args{};

  AttentionCase() {
    args.struct_size = sizeof args;
    args.q = q;
    args.k = k;
    args.v = v;
    args.out = out;
  }
  TesseraStatus run(const TesseraContext* ctx = nullptr) {
    return tessera_attention_prefill(&args, ctx);
  }
};

TEST(CApiAttention, IsServedFromPlainC) {
  float result = 0;
  EXPECT_EQ(attention_from_c(&result), 0) << tessera_last_error();
  EXPECT_EQ(result, 2.5f);
}

TEST(CApiAttention, LetsEveryQuerySeeEveryKeyWhereAllIsZero) {
  AttentionCase c;
  expect_ok(c.run());
  EXPECT_EQ(c.out.values, Floats(4, 45));
}

TEST(CApiAttention, TakesBoundsOnEitherSide) {
  AttentionCase c;
  c.args.bounds = TESSERA_ATTENTION_RIGHT;
  expect_ok(c.run());
  EXPECT_EQ(c.out.values, (Floats{12, 18, 28, 45}));
  c.args.bounds = TESSERA_ATTENTION_LEFT | TESSERA_ATTENTION_RIGHT;
  c.args.left = 1;
  expect_ok(c.run());
  EXPECT_EQ(c.out.values, (Floats{12, 18, 36, 72}));
  c.args.bounds = TESSERA_ATTENTION_LEFT;
  c.args.left = 0;
  expect_ok(c.run());
  EXPECT_EQ(c.out.values, (Floats{45, 56, 72, 96}));
}

TEST(CApiAttention, TakesIntervalsAndGivesTheLogarithm) {
  AttentionCase c;
  Array<int32_t> intervals({1, 4, 2, 2}, {0, 1, 3, 4, 0, 2, 0, 0, 1, 1, 2, 2, 0, 3, 1, 4});
  Array<float> lse({1, 1, 4});
  c.args.intervals = intervals;
  c.args.lse = lse;
  expect_ok(c.run());
  EXPECT_EQ(c.out.values, (Floats{54, 18, 0, 45}));
  EXPECT_NEAR(lse.values[0], std::log(2.0f), 1e-6);
  EXPECT_EQ(lse.values[2], -std::numeric_limits<float>::infinity());
  EXPECT_NEAR(lse.values[3], std::log(4.0f), 1e-6);
}

TEST(CApiAttention, TakesSinksScaleAndSoftcap) {
  AttentionCase c;
  Array<float> sinks({1}, {std::log(4.0f)});  // weighs as much as the four keys
  c.args.sinks = sinks;
  expect_ok(c.run());
  for (const float value : c.out.values) EXPECT_NEAR(value, 22.5f, 1e-4);
  c.args.sinks = nullptr;
  // Scores 4, 0, 0, 0 after the scale, capped to tanh(4) < 1.
  c.q.values.assign(8, 1.0f);
  c.k.values[0] = c.k.values[1] = 4.0f;
  c.args.scale = 0.5f;
  c.args.softcap = 1.0f;
  expect_ok(c.run());
  const float first = std::exp(std::tanh(4.0f));
  EXPECT_NEAR(c.out.values[0], (first * 12 + 168) / (first + 3), 1e-3);
}

TEST(CApiAttention, TakesRaggedSequences) {
  AttentionCase c;
  Array<int32_t> q_starts({3}, {0, 1, 4}), kv_starts({3}, {0, 3, 4});
  for (Array<float>* tensor : {&c.q, &c.k, &c.v, &c.out}) {
    tensor->dl.ndim = 3;
    tensor->dl.shape = tensor->shape.data() + 1;
  }
  c.args.q_starts = q_starts;
  c.args.kv_starts = kv_starts;
  expect_ok(c.run());
  EXPECT_EQ(c.out.values, (Floats{28, 96, 96, 96}));
}

TEST(CApiAttention, TakesPagesOfKeysAndOfValues) {
  AttentionCase c;
  Array<float> k_pages({4, 2, 1, 2}), v_pages({4, 2, 1, 1}, {3, 3, 48, 96, 3, 3, 12, 24});
  Array<int32_t> k_table({1, 2}, {0, 2}), v_table({1, 2}, {3, 1}), lens({1}, {3});
  c.args.k = k_pages;
  c.args.v = v_pages;
  c.args.k_page_table = k_table;
  c.args.v_page_table = v_table;
  c.args.kv_lens = lens;
  expect_ok(c.run());
  EXPECT_EQ(c.out.values, Floats(4, 28));
}

TEST(CApiAttention, TakesCodesInBytesWithTheirScales) {
  Array<uint8_t> zeros({1, 2, 1, 1}), v({1, 2, 1, 1}, {0x38, 0x44});  // 1 and 3 as e4m3
  Array<uint16_t> out({1, 2, 1, 1});
  out.dl.dtype = {kDLFloat, 16, 1};
  Array<float> v_scale({1, 1}, {4});
  TesseraAttentionArgs args{};
  args.struct_size = sizeof args;
  args.q = args.k = zeros;
  args.v = v;
  args.out = out;
  args.v_scale = v_scale;
  args.bounds = TESSERA_ATTENTION_RIGHT;
  expect_refused(tessera_attention_prefill(&args, nullptr), "attention_prefill: q");
  args.format = TESSERA_E4M3;
  expect_ok(tessera_attention_prefill(&args, nullptr));
  EXPECT_EQ(out.values, (std::vector<uint16_t>{0x4400, 0x4800}));  // 4 and 8
}

TEST(CApiAttention, DropsWeightsByASeed) {
  AttentionCase c;
  c.args.dropout_rate = 0.5f;
  const auto dropped_by = [&](uint64_t seed) {
    c.args.dropout_seed = seed;
    expect_ok(c.run());
    return c.out.values;
  };
  const Floats first = dropped_by(1);
  for (const float value : first) EXPECT_EQ(std::fmod(value, 6.0f), 0.0f);  // 2 * (1/4) * a sum
  EXPECT_NE(first, Floats(4, 45));
  EXPECT_NE(dropped_by(2), first);
  EXPECT_EQ(dropped_by(1), first);
}

TEST(CApiAttention, ChecksWithoutRunning) {
  AttentionCase c;
  TesseraContext ctx{};
  ctx.struct_size = sizeof ctx;
  ctx.check_only = 1;
  expect_ok(c.run(&ctx));
  EXPECT_EQ(c.out.values, Floats(4));
  c.args.softcap = -1;
  EXPECT_EQ(c.run(&ctx), TESSERA_NOT_SUPPORTED);
}

TEST(CApiAttention, RefusesWhatItDoesNotKnow) {
  expect_refused(tessera_attention_prefill(nullptr, nullptr), "attention_prefill: args is NULL");
  AttentionCase c;
  c.args.bounds = 4;
  expect_refused(c.run(), "attention_prefill: bounds is 4");
  c.args.bounds = TESSERA_ATTENTION_LEFT;
  c.args.left = -1;
  expect_refused(c.run(), "attention_prefill: left is -1; want 0 or more");
  c.args.bounds = 0;
  c.args.v = nullptr;
  expect_refused(c.run(), "attention_prefill: v is NULL");
  c.args.struct_size = 8;
  expect_refused(c.run(), "TesseraAttentionArgs.struct_size is 8; set it to sizeof");
}

TEST(CApiAttention, NamesTheTensorThatIsWrong) {
  AttentionCase c;
  Array<float> short_sinks({2});
  c.args.sinks = short_sinks;
  expect_refused(c.run(), "attention_prefill: sinks");
  c.args.sinks = nullptr;
  Array<float> other_heads({1, 4, 1, 3});
  c.args.k = other_heads;
  expect_refused(c.run(), "attention_prefill: k has head_dim 3 and q has 2");
}

}  // namespace
}  // namespace tessera::testing
