// Packed weights on the CPU: where codes lie, exact round trips, and products with them.
// SPDX-License-Identifier: MIT
#include "tessera/ops/weight_packing.h"

#include <set>

#include "cpu/gemm.h"
#include "tessera/core/convert.h"
#include "tests/cpu/tensors.h"

namespace tessera::testing {
namespace {

// A weight with all codes, in rows.
struct RowsWeight {
  Tensor values, scale, zero_point;
  Weight weight;

  RowsWeight(int64_t n, int64_t k, int64_t group, bool has_zero_points)
      : values(DType::i4, {n, k}),
        scale(DType::f32, {n, group == 0 ? 1 : k / group}),
        zero_point(DType::i32, {n, group == 0 ? 1 : k / group}) {
    std::mt19937_64 random(11);
    for (int64_t i = 0; i < values.size_bytes(); ++i) {
      values.view().as<uint8_t>()[i] = static_cast<uint8_t>(random());
    }
    fill(scale, [&] { return std::ldexp(1.0, static_cast<int>(random() % 4) - 2); });
    fill(zero_point, [&] { return static_cast<double>(random() % 16); });
    weight = {.values = values, .scale = scale};
    if (has_zero_points) weight.zero_point = zero_point;
  }
};

// Memory for the same weight in another packing.
struct Twin {
  Tensor values, scale, zero_point;
  Weight weight;

  Twin(const Weight& like, Packing packing, DType zero_type, DType scale_type = DType::f32)
      : values(DType::i4, {like.n(), like.k()}),
        scale(scale_type, {like.scale->size(0), like.scale->size(1)}),
        zero_point(zero_type, {like.scale->size(0), like.scale->size(1)}) {
    weight = {.values = values, .scale = scale, .packing = packing};
    if (like.zero_point) weight.zero_point = zero_point;
  }
};

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.size_bytes() == b.size_bytes() &&
         std::memcmp(a.view().data, b.view().data, static_cast<size_t>(a.size_bytes())) == 0;
}

TEST(FragmentPlace, IsWhereTheHandComputedWordsHaveIt) {
  struct Case {
    int64_t row, col, byte;
    int shift;
  };
  // k = 128: two blocks of 2048 bytes for each 64 rows.
  for (const Case& c :
       {Case{0, 0, 0, 0}, Case{8, 0, 0, 4}, Case{0, 8, 1, 0}, Case{8, 8, 1, 4}, Case{0, 1, 2, 0},
        Case{0, 2, 16, 0}, Case{0, 16, 4, 0}, Case{1, 0, 64, 0}, Case{16, 0, 512, 0},
        Case{0, 64, 2048, 0}, Case{64, 0, 4096, 0}, Case{63, 63, 3 * 512 + 31 * 16 + 12 + 3, 4}}) {
    const NibblePlace place = fragment_place(c.row, c.col, 128);
    EXPECT_EQ(place.byte, c.byte) << "row " << c.row << " column " << c.col;
    EXPECT_EQ(place.shift, c.shift) << "row " << c.row << " column " << c.col;
  }
}

TEST(FragmentPlace, GivesEveryCodeANibbleOfItsOwn) {
  std::set<int64_t> taken;
  for (int64_t row = 0; row < 128; ++row) {
    for (int64_t col = 0; col < 192; ++col) {
      const NibblePlace place = fragment_place(row, col, 192);
      EXPECT_TRUE(taken.insert(2 * place.byte + place.shift / 4).second);
    }
  }
  EXPECT_EQ(*taken.begin(), 0);
  EXPECT_EQ(*taken.rbegin(), 128 * 192 - 1);
}

TEST(CpuPackWeight, PackingAndUnpackingGivesTheSameBytes) {
  for (const int64_t group : {0, 32, 64, 128}) {
    for (const bool has_zero_points : {false, true}) {
      for (const DType scale_type : {DType::f32, DType::bf16, DType::f16}) {
        SCOPED_TRACE(::testing::Message() << "group " << group << " zero points " << has_zero_points
                                          << " scales of " << name(scale_type));
        const RowsWeight rows(192, 256, group, has_zero_points);
        const Twin packed(rows.weight, Packing::fragments, DType::u8, scale_type);
        const Twin again(rows.weight, Packing::rows, DType::i32);
        cpu::pack_weight(rows.weight, packed.weight);
        cpu::pack_weight(packed.weight, again.weight);
        EXPECT_TRUE(same_bytes(rows.values, again.values));
        EXPECT_TRUE(same_bytes(rows.scale, again.scale));
        EXPECT_TRUE(!has_zero_points || same_bytes(rows.zero_point, again.zero_point));
        EXPECT_FALSE(same_bytes(rows.values, packed.values));
      }
    }
  }
}

// Scales that neither 16-bit type holds become the nearest number, the even one if two are as near.
TEST(CpuPackWeight, RoundsScalesToNearestEven) {
  const RowsWeight rows(64, 128, 64, true);
  std::mt19937_64 random(12);
  fill(rows.scale, [&] { return std::ldexp(1.0 + static_cast<double>(random() % 999) / 999, -4); });
  auto* scales = rows.scale.view().as<float>();
  scales[0] = 1.0f + 0x1p-8f;          // halfway, to 1 in bf16; exact in f16
  scales[1] = 1.0f + 3 * 0x1p-8f;      // halfway, to 1 + 2^-6 in bf16
  scales[2] = 1.0f + 0x1p-11f;         // halfway, to 1 in f16
  scales[3] = -(1.0f + 3 * 0x1p-11f);  // a negative one, as GGUF has them
  for (const DType scale_type : {DType::bf16, DType::f16}) {
    const Twin packed(rows.weight, Packing::fragments, DType::u8, scale_type);
    const Twin again(rows.weight, Packing::rows, DType::i32);
    cpu::pack_weight(rows.weight, packed.weight);
    cpu::pack_weight(packed.weight, again.weight);
    for (int64_t i = 0; i < rows.scale.view().num_elements(); ++i) {
      const float want = scale_type == DType::bf16 ? to_float(from_float<Bf16>(scales[i]))
                                                   : to_float(from_float<F16>(scales[i]));
      ASSERT_EQ(again.scale.view().as<float>()[i], want) << name(scale_type) << " " << scales[i];
    }
  }
}

TEST(CpuPackWeight, AProductWithThePackedWeightHasTheSameBits) {
  for (const int64_t group : {0, 32, 64, 128}) {
    for (const bool has_zero_points : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "group " << group << " zero points " << has_zero_points);
      const RowsWeight rows(64, 256, group, has_zero_points);
      const Tensor a(DType::f32, {3, 256}), out(DType::f32, {3, 64}), want(DType::f32, {3, 64});
      fill_integers(a, 5, -4, 4);
      cpu::gemm({.a = a, .b = rows.weight, .out = want});
      for (const DType scale_type : {DType::f32, DType::bf16, DType::f16}) {
        const Twin packed(rows.weight, Packing::fragments, DType::u8, scale_type);
        cpu::pack_weight(rows.weight, packed.weight);
        cpu::gemm({.a = a, .b = packed.weight, .out = out});
        EXPECT_TRUE(all_equal(values_of(out), values_of(want))) << name(scale_type);
      }
    }
  }
}

TEST(CpuGemmWeight, AnOrderOfColumnsMeetsTheColumnsOfA) {
  const RowsWeight rows(64, 128, 32, true);
  Tensor order(DType::i32, {128}), a(DType::bf16, {5, 128}), sorted(DType::bf16, {5, 128});
  fill_integers(a, 3, -8, 8);
  for (int64_t i = 0; i < 128; ++i) {
    const auto column = static_cast<int32_t>(i * 37 % 128);
    order.view().as<int32_t>()[i] = column;
    for (int64_t row = 0; row < 5; ++row) {
      sorted.view().as<Bf16>()[row * 128 + i] = a.view().as<Bf16>()[row * 128 + column];
    }
  }
  const Tensor out(DType::bf16, {5, 64}), want(DType::bf16, {5, 64});
  cpu::gemm({.a = sorted, .b = rows.weight, .out = want});
  Weight ordered = rows.weight;
  ordered.order = order;
  cpu::gemm({.a = a, .b = ordered, .out = out});
  EXPECT_TRUE(all_equal(values_of(out), values_of(want)));
}

}  // namespace
}  // namespace tessera::testing
