// pack_gate_up: where each row goes, for every type, and what is refused.
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "tessera/ops/gemm.h"
#include "tests/ops/refusal.h"

namespace tessera::testing {
namespace {

// Row r of gate holds r, and of up 100 + r: representable, or at least distinct, in every type.
void number_rows(const TensorView& view, float first) {
  for (int64_t r = 0; r < view.size(0); ++r) {
    for (int64_t c = 0; c < view.size(1); ++c) {
      const int64_t index[] = {r, c};
      store_from_float(view, index, first + static_cast<float>(r));
    }
  }
}

float at(const TensorView& view, int64_t r, int64_t c) {
  const int64_t index[] = {r, c};
  return load_as_float(view, index);
}

void expect_interleaved(const TensorView& gate, const TensorView& up, const TensorView& out) {
  for (int64_t r = 0; r < out.size(0); ++r) {
    const TensorView& from = r / 8 % 2 == 0 ? gate : up;
    for (int64_t c = 0; c < out.size(1); ++c) {
      ASSERT_EQ(at(out, r, c), at(from, r / 16 * 8 + r % 8, c)) << "row " << r << " column " << c;
    }
  }
}

TEST(PackGateUp, AlternatesEightRowsOfEachInEveryType) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16, DType::e4m3, DType::i8}) {
    SCOPED_TRACE(name(type));
    const Tensor gate(type, {24, 5}), up(type, {24, 5}), out(type, {48, 5});
    number_rows(gate, 1.0f);
    number_rows(up, 64.0f);
    pack_gate_up({.gate = gate, .up = up, .out = out});
    expect_interleaved(gate, up, out);
  }
}

TEST(PackGateUp, MovesScalesAndZeroPointsWithTheirRows) {
  const Tensor gate(DType::i4, {16, 6}), up(DType::i4, {16, 6}), out(DType::i4, {32, 6});
  const Tensor gate_scale(DType::f32, {16, 3}), up_scale(DType::f32, {16, 3});
  const Tensor gate_zero(DType::i32, {16, 3}), up_zero(DType::i32, {16, 3});
  const Tensor scale(DType::f32, {32, 3}), zero(DType::i32, {32, 3});
  number_rows(gate, -8.0f);
  number_rows(up, -6.0f);
  number_rows(gate_scale, 1.0f);
  number_rows(up_scale, 64.0f);
  number_rows(gate_zero, 200.0f);
  number_rows(up_zero, 300.0f);
  pack_gate_up({.gate = Weight{.values = gate, .scale = gate_scale, .zero_point = gate_zero},
                .up = Weight{.values = up, .scale = up_scale, .zero_point = up_zero},
                .out = Weight{.values = out, .scale = scale, .zero_point = zero}});
  expect_interleaved(gate, up, out);
  expect_interleaved(gate_scale, up_scale, scale);
  expect_interleaved(gate_zero, up_zero, zero);
}

// From the two halves of one matrix into rows with gaps between them.
TEST(PackGateUp, TakesAnyStrides) {
  const Tensor both(DType::f32, {7, 32}), wide(DType::f32, {32, 9});
  const TensorView gate = both.view().slice(1, 0, 16).transposed(0, 1);
  const TensorView up = both.view().slice(1, 16, 32).transposed(0, 1);
  const TensorView out = wide.view().slice(1, 1, 8);
  number_rows(wide, -1000.0f);
  number_rows(gate, 1.0f);
  number_rows(up, 100.0f);
  pack_gate_up({.gate = gate, .up = up, .out = out});
  expect_interleaved(gate, up, out);
  for (int64_t r = 0; r < 32; ++r) {
    EXPECT_EQ(at(wide, r, 0), -1000.0f + static_cast<float>(r));
    EXPECT_EQ(at(wide, r, 8), -1000.0f + static_cast<float>(r));
  }
}

TEST(PackGateUp, TakesNoRows) {
  const Tensor none(DType::f32, {0, 5}), out(DType::f32, {0, 5});
  EXPECT_NO_THROW(pack_gate_up({.gate = none, .up = none, .out = out}));
}

TEST(PackGateUp, GivesTheWeightOfAGatedProduct) {
  const Tensor gate(DType::f32, {16, 3}), up(DType::f32, {16, 3}), packed(DType::f32, {32, 3});
  const Tensor a(DType::f32, {2, 3}), out(DType::f32, {2, 16});
  number_rows(gate, -8.0f);
  number_rows(up, 3.0f);
  number_rows(a, 1.0f);
  pack_gate_up({.gate = gate, .up = up, .out = packed});
  gemm({.a = a, .b = packed, .out = out, .activation = Activation::relu, .is_gated = true});
  for (int64_t r = 0; r < 2; ++r) {
    for (int64_t c = 0; c < 16; ++c) {
      const float x = static_cast<float>(3 * (r + 1)), column = static_cast<float>(c);
      EXPECT_EQ(at(out, r, c), std::max(x * (column - 8.0f), 0.0f) * (x * (column + 3.0f)));
    }
  }
}

TEST(PackGateUp, RefusesWhatItCannotInterleave) {
  const Tensor gate(DType::bf16, {16, 4}), up(DType::bf16, {16, 4}), out(DType::bf16, {32, 4});
  const Tensor odd(DType::bf16, {12, 4}), small(DType::bf16, {24, 4}), other(DType::f16, {16, 4});
  const PackGateUpArgs good{.gate = gate, .up = up, .out = out};
  EXPECT_NO_THROW(pack_gate_up(good));
  const auto refused_with = [&](auto&& change, std::initializer_list<std::string_view> words) {
    PackGateUpArgs args = good;
    change(args);
    return refused([&] { pack_gate_up(args); }, words);
  };
  EXPECT_TRUE(refused_with([&](auto& p) { p.gate = p.up = odd; },
                           {"gate is bf16[12, 4]", "multiple of 8", "rows of zeros"}));
  EXPECT_TRUE(refused_with([&](auto& p) { p.up = odd; }, {"pack_gate_up: up", "one shape"}));
  EXPECT_TRUE(
      refused_with([&](auto& p) { p.up = other; }, {"pack_gate_up: up is f16", "one type"}));
  EXPECT_TRUE(refused_with([&](auto& p) { p.out = small; },
                           {"pack_gate_up: out is bf16[24, 4]", "must be [32, 4]"}));
  EXPECT_TRUE(refused_with([&](auto& p) { p.gate = out.view().slice(0, 0, 16); },
                           {"pack_gate_up: out", "shares memory with pack_gate_up: gate"}));
  EXPECT_TRUE(refused_with([&](auto& p) { p.up = on_gpu(p.up.values); },
                           {"pack_gate_up: up is on cuda:3", "one device"}));
  EXPECT_TRUE(
      refused_with([&](auto& p) { p.gate.values.rank = 1; }, {"pack_gate_up: gate", "rank 1"}));
  const Tensor scale(DType::f32, {16}), scales(DType::f32, {32}), one(DType::f32, {1});
  const auto with_scales = [](auto& p, const TensorView& gate, const TensorView& up,
                              const TensorView& out) {
    p.gate.scale = gate;
    p.up.scale = up;
    p.out.scale = out;
  };
  EXPECT_TRUE(refused_with([&](auto& p) { p.gate.scale = scale; }, {"all have a scale", "none"}));
  EXPECT_TRUE(refused_with([&](auto& p) { with_scales(p, one, one, scales); },
                           {"scale of gate is f32[1]", "16 rows", "repeat a shared one"}));
  EXPECT_TRUE(refused_with([&](auto& p) { with_scales(p, scale, scale, scale); },
                           {"out is f32[16]", "must be [32]"}));
}

}  // namespace
}  // namespace tessera::testing
