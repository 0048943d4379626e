// Weights with a table of 16 values: what gemm refuses of them, and what pack_gate_up makes.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <limits>

#include "tessera/ops/gemm.h"
#include "tests/ops/refusal.h"

namespace tessera::testing {
namespace {

// Code i of a table stands for first + i.
Tensor table_from(float first) {
  Tensor table(DType::f32, {kTableSize});
  for (int i = 0; i < kTableSize; ++i) {
    table.view().as<float>()[i] = first + static_cast<float>(i);
  }
  return table;
}

class RefusedTable : public ::testing::Test {
 protected:
  Tensor a{DType::bf16, {4, 64}}, codes{DType::i4, {64, 64}}, scale{DType::f32, {64, 2}};
  Tensor table = table_from(-3), out{DType::bf16, {4, 64}};
  GemmArgs good{.a = a,
                .b = Weight{.values = codes, .scale = scale.view(), .table = table.view()},
                .out = out};

  ::testing::AssertionResult refused_with(const std::function<void(GemmArgs&)>& change,
                                          const Words& words) {
    return testing::refused_with<GemmArgs>(good, &gemm, change, words);
  }
};

TEST_F(RefusedTable, OfAnotherShapeTypeOrPlace) {
  const Tensor few(DType::f32, {15}), halves(DType::f16, {16}), square(DType::f32, {4, 4});
  const Tensor wide(DType::f32, {16, 2});
  EXPECT_TRUE(refused_with([&](auto& g) { g.b.table = few; },
                           {"weight: table is f32[15]", "must have 16", "code of 4 bits"}));
  EXPECT_TRUE(
      refused_with([&](auto& g) { g.b.table = halves; }, {"weight: table is f16[16]", "f32"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.b.table = square; },
                           {"weight: table is f32[4, 4]", "must be 1"}));
  EXPECT_TRUE(refused_with(
      [&](auto& g) {
        g.b.table = with_stride(TensorView::contiguous(wide.view().data, DType::f32, {16}), 0, 2);
      },
      {"weight: table", "contiguous"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.b.table = on_gpu(table); },
                           {"weight: table is on cuda:3", "one device"}));
  EXPECT_TRUE(refused_with(
      [&](auto& g) { g.b.table = TensorView::contiguous(g.out.data, DType::f32, {16}); },
      {"gemm: out", "shares memory with weight: table"}));
}

TEST_F(RefusedTable, BesideOtherCodesZeroPointsAnOrderOrAPacking) {
  const Tensor bytes(DType::i8, {64, 64}), dense(DType::bf16, {64, 64}), zero(DType::i32, {64, 2});
  Tensor order(DType::i32, {64});
  for (int32_t i = 0; i < 64; ++i) order.view().as<int32_t>()[i] = i;
  EXPECT_TRUE(refused_with([&](auto& g) { g.b.values = bytes; },
                           {"gemm: b is i8[64, 64] on cpu with a table", "for i4"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.b.zero_point = zero; },
                           {"gemm: b is i4[64, 64] on cpu with a table and zero points"}));
  EXPECT_TRUE(refused_with([&](auto& g) { g.b.order = order; },
                           {"gemm: b is i4[64, 64] on cpu with a table and an order"}));
  EXPECT_TRUE(refused_with(
      [&](auto& g) { g.b.packing = Packing::fragments; },
      {"gemm: b is i4[64, 64] on cpu with a table and packed as 'fragments'", "in rows"}));
  EXPECT_TRUE(refused_with(
      [&](auto& g) {
        g.b = dense;
        g.b.table = table;
      },
      {"a weight without codes has neither zero points, a table"}));
}

TEST_F(RefusedTable, ThatIsNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    table.view().as<float>()[3] = 0.0f;
    EXPECT_NO_THROW(gemm(good));
    table.view().as<float>()[3] = bad;
    EXPECT_TRUE(refused([&] { gemm(good); }, {"weight: table[3] is", "must be finite"}));
  }
}

TEST_F(RefusedTable, BesideCodesOfA) {
  const Tensor bytes(DType::i8, {4, 64}), one(DType::f32, {1});
  good.b.table.reset();
  good.a = bytes;
  good.a_scale = one.view();
  EXPECT_TRUE(refused_with([&](auto& g) { g.b.table = table; },
                           {"gemm: a is i8[4, 64]", "without zero points or a table"}));
}

// Gate and up under one table; code c of row r is (r + c) % 16.
struct Halves {
  Tensor gate{DType::i4, {8, 32}}, up{DType::i4, {8, 32}}, both{DType::i4, {16, 32}};
  Tensor gate_scale{DType::f32, {8}}, up_scale{DType::f32, {8}}, scale{DType::f32, {16}};
  Tensor gate_table = table_from(-3), up_table = table_from(-3), table{DType::f32, {kTableSize}};

  Halves() {
    for (int64_t i = 0; i < 8 * 16; ++i) {
      const int64_t code = i / 16 + 2 * (i % 16);
      const auto byte = static_cast<uint8_t>(code % 16 | (code + 1) % 16 << 4);
      gate.view().as<uint8_t>()[i] = byte;
      up.view().as<uint8_t>()[i] = static_cast<uint8_t>(byte ^ 0xff);
    }
    for (int64_t i = 0; i < 8; ++i) {
      gate_scale.view().as<float>()[i] = 1.0f;
      up_scale.view().as<float>()[i] = 0.5f;
    }
  }
  PackGateUpArgs args() const {
    return {.gate = Weight{.values = gate, .scale = gate_scale.view(), .table = gate_table.view()},
            .up = Weight{.values = up, .scale = up_scale.view(), .table = up_table.view()},
            .out = Weight{.values = both, .scale = scale.view(), .table = table.view()}};
  }
};

TEST(PackGateUpTable, GivesTheWeightOfAGatedProduct) {
  const Halves h;
  const PackGateUpArgs packed = h.args();
  pack_gate_up(packed);
  const Tensor a(DType::f32, {1, 32}), gate(DType::f32, {1, 8}), up(DType::f32, {1, 8});
  const Tensor got(DType::f32, {1, 8});
  for (int64_t i = 0; i < 32; ++i) a.view().as<float>()[i] = static_cast<float>(i % 3 - 1);
  gemm({.a = a, .b = packed.gate, .out = gate, .activation = Activation::relu});
  gemm({.a = a, .b = packed.up, .out = up});
  gemm({.a = a, .b = packed.out, .out = got, .activation = Activation::relu, .is_gated = true});
  bool is_positive = false;
  for (int64_t i = 0; i < 8; ++i) {
    const float want = gate.view().as<float>()[i] * up.view().as<float>()[i];
    EXPECT_EQ(got.view().as<float>()[i], want) << i;
    is_positive = is_positive || want != 0.0f;
  }
  EXPECT_TRUE(is_positive);
}

TEST(PackGateUpTable, LeavesATableThatBothShareInItsPlace) {
  const Halves h;
  PackGateUpArgs args = h.args();
  args.up.table = args.out.table = h.gate_table.view();
  EXPECT_NO_THROW(pack_gate_up(args));
  EXPECT_EQ(h.gate_table.view().as<float>()[0], -3.0f);
}

TEST(PackGateUpTable, RefusesTwoTables) {
  const Halves h;
  EXPECT_NO_THROW(pack_gate_up(h.args()));
  PackGateUpArgs one = h.args();
  one.up.table.reset();
  EXPECT_TRUE(refused([&] { pack_gate_up(one); }, {"must all have a table", "or none"}));
  const Tensor few(DType::f32, {8});
  PackGateUpArgs short_table = h.args();
  short_table.out.table = few.view();
  EXPECT_TRUE(
      refused([&] { pack_gate_up(short_table); }, {"table of out is f32[8]", "must have 16"}));
  h.up_table.view().as<float>()[5] = 9.0f;
  EXPECT_TRUE(refused([&] { pack_gate_up(h.args()); },
                      {"table[5] is 2 of gate and 9 of up", "multiply them apart"}));
}

}  // namespace
}  // namespace tessera::testing
