// Decode attention through the C ABI, on numbers small enough to check by hand.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/c_api/dl_tensor.h"
#include "tests/c_api/expect.h"

namespace tessera::testing {
namespace {

using Floats = std::vector<float>;

// Two sequences of one head in pages of 2 tokens, with all scores 0: a query returns the mean of
// the values it sees, which are powers of two. The first has 3 tokens, the second 1.
struct DecodeCase {
  Array<float> q{{2, 1, 2}};
  Array<float> k{{3, 2, 1, 2}};
  Array<float> v{{3, 2, 1, 2}, {48, 1, 96, 2, 12, 4, 24, 8, 36, 16, 72, 32}};
  Array<float> out{{2, 1, 2}};
  Array<int32_t> lens{{2}, {3, 1}};
  Array<int32_t> table{{2, 2}, {1, 0, 2, -1}};
  TesseraDecodeAttentionArgs args{};

  DecodeCase() {
    args.struct_size = sizeof args;
    args.q = q;
    args.k_pages = k;
    args.v_pages = v;
    args.out = out;
    args.seq_lens = lens;
    args.page_table = table;
  }
  TesseraStatus run(const TesseraContext* ctx = nullptr) {
    return tessera_attention_decode(&args, ctx);
  }
};

TEST(CApiDecode, AttendsToTheTokensOfASequence) {
  DecodeCase c;
  expect_ok(c.run());
  EXPECT_NEAR(c.out.values[0], (12 + 24 + 48) / 3.0f, 1e-5);
  EXPECT_NEAR(c.out.values[1], (4 + 8 + 1) / 3.0f, 1e-5);
  EXPECT_EQ(c.out.values[2], 36);
  c.args.window = 2;
  c.args.longest = 3;
  expect_ok(c.run());
  EXPECT_NEAR(c.out.values[0], (24 + 48) / 2.0f, 1e-5);
}

TEST(CApiDecode, TakesSinksListsAndGivesTheLogarithm) {
  DecodeCase c;
  Array<float> sinks({1}, {std::log(3.0f)}), lse({2, 1});  // weighs as much as the three keys
  Array<int32_t> keys({2, 1, 2}, {0, 2, 0, 7}), num_keys({2, 1}, {2, 1});
  c.args.sinks = sinks;
  c.args.lse = lse;
  expect_ok(c.run());
  EXPECT_NEAR(c.out.values[0], 14.0f, 1e-5);
  EXPECT_NEAR(lse.values[0], std::log(6.0f), 1e-6);
  c.args.sinks = nullptr;
  c.args.keys = keys;
  c.args.num_keys = num_keys;
  expect_ok(c.run());
  EXPECT_NEAR(c.out.values[0], (12 + 48) / 2.0f, 1e-5);
  EXPECT_NEAR(lse.values[0], std::log(2.0f), 1e-6);
}

TEST(CApiDecode, TakesCodesInBytesWithTheirScales) {
  DecodeCase c;
  // Keys as e4m3, all 0. Values as i4, two to a byte, with scale 2 and low 5: codes 1 and 3 are 7
  // and 11.
  Array<uint8_t> k({3, 2, 1, 2}), v({3, 2, 1, 1}, std::vector<uint8_t>(6, 0x31));
  Array<uint16_t> scales({3, 2, 1, 2});
  for (size_t i = 0; i < scales.values.size(); ++i) scales.values[i] = i % 2 == 0 ? 0x4000 : 0x4500;
  scales.dl.dtype = {kDLFloat, 16, 1};
  c.args.k_pages = k;
  c.args.v_pages = v;
  c.args.v_scales = scales;
  c.args.k_format = TESSERA_E4M3;
  c.args.v_format = TESSERA_I4;
  expect_ok(c.run());
  EXPECT_EQ(c.out.values, (Floats{7, 11, 7, 11}));
}

TEST(CApiDecode, RefusesWhatIsMissing) {
  expect_refused(tessera_attention_decode(nullptr, nullptr), "attention_decode: args is NULL");
  DecodeCase c;
  c.args.seq_lens = nullptr;
  expect_refused(c.run(), "attention_decode: seq_lens is NULL");
  c.args.seq_lens = c.lens;
  c.args.window = -1;
  expect_refused(c.run(), "attention_decode: window is -1");
  c.args.struct_size = 8;
  expect_refused(c.run(), "TesseraDecodeAttentionArgs.struct_size is 8; set it to sizeof");
}

}  // namespace
}  // namespace tessera::testing
