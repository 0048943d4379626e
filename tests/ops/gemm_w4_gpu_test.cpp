// Products with 4-bit weights on a GPU, as a loader and a caller see them: packing, bits that do
// not depend on m, and the error against a product in double.
// SPDX-License-Identifier: MIT
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/core/convert.h"
#include "tessera/ops/gemm.h"
#include "tests/gpu.h"

namespace tessera::testing {
namespace {

constexpr Context kInvariant{.batch_invariant = true};

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.size_bytes() == b.size_bytes() &&
         std::memcmp(a.view().data, b.view().data, static_cast<size_t>(a.size_bytes())) == 0;
}

// A weight with its memory.
struct Held {
  Tensor values, scale, zero_point;
  bool has_zero_points;
  Packing packing;

  Weight weight() const {
    Weight view{.values = values, .scale = scale, .packing = packing};
    if (has_zero_points) view.zero_point = zero_point;
    return view;
  }
};

using Param = std::tuple<DType, int64_t, bool>;  // of a, group, zero points

class W4OnGpu : public GpuTest, public ::testing::WithParamInterface<Param> {
 protected:
  static constexpr int64_t kN = 448, kK = 1536, kMost = 300;

  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    std::mt19937_64 random(3);
    for (int64_t i = 0; i < values_.size_bytes(); ++i) {
      values_.view().as<uint8_t>()[i] = static_cast<uint8_t>(random());
    }
    for (int64_t i = 0; i < kN * groups(); ++i) {
      scale_.view().as<float>()[i] = 0.001f * static_cast<float>(1 + random() % 1000);
      zero_.view().as<int32_t>()[i] = static_cast<int32_t>(random() % 16);
    }
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < kMost * kK; ++i) set(a_, i, normal(random));
    device_a_ = a_.to(cuda_device());
    const Held rows = rows_on(cuda_device());
    const Tensor out(DType::f32, {kMost, kN}, cuda_device());
    if (preferred_packing({.a = device_a_, .b = rows.weight(), .out = out}) != Packing::fragments) {
      GTEST_SKIP() << "no row of this device takes packed 4-bit weights";
    }
    held_ = packed(rows);
    packed_ = held_.weight();
  }

  static DType type() { return std::get<0>(GetParam()); }
  static int64_t groups() {
    return std::get<1>(GetParam()) == 0 ? 1 : kK / std::get<1>(GetParam());
  }
  static bool has_zero_points() { return std::get<2>(GetParam()); }
  static void set(const Tensor& tensor, int64_t i, float value) {
    if (type() == DType::bf16) {
      tensor.view().as<Bf16>()[i] = from_float<Bf16>(value);
    } else {
      tensor.view().as<F16>()[i] = from_float<F16>(value);
    }
  }
  float a_at(int64_t i) const {
    return type() == DType::bf16 ? to_float(a_.view().as<Bf16>()[i])
                                 : to_float(a_.view().as<F16>()[i]);
  }

  Held rows_on(Device device) const {
    return {values_.to(device), scale_.to(device), zero_.to(device), has_zero_points(),
            Packing::rows};
  }
  // Memory for a weight.
  static Held empty(Packing packing, DType zero_type, Device device,
                    DType scale_type = DType::f32) {
    return {Tensor(DType::i4, {kN, kK}, device), Tensor(scale_type, {kN, groups()}, device),
            Tensor(zero_type, {kN, groups()}, device), has_zero_points(), packing};
  }
  static Held packed(const Held& rows, DType scale_type = DType::f32) {
    Held out = empty(Packing::fragments, DType::u8, rows.values.view().device, scale_type);
    pack_weight({.weight = rows.weight(), .out = out.weight()});
    if (!rows.values.view().device.is_cpu()) synchronize(cuda_device());
    return out;
  }
  static Tensor run(const Tensor& a, const Weight& weight, int64_t begin, int64_t m) {
    const Tensor out(DType::f32, {m, kN}, cuda_device());
    fill_bytes(out.view().data, cuda_device(), 0xff, static_cast<size_t>(out.size_bytes()));
    gemm({.a = a.view().slice(0, begin, begin + m), .b = weight, .out = out}, kInvariant);
    synchronize(cuda_device());
    return out.to(cpu_device());
  }

  // (code - zero point) * scale in double.
  double weight_at(int64_t row, int64_t col) const {
    const int64_t at = row * kK + col, group = row * groups() + col / (kK / groups());
    const int nibble = values_.view().as<uint8_t>()[at / 2] >> (at % 2 * 4) & 15;
    const int code = has_zero_points() ? nibble - zero_.view().as<int32_t>()[group]
                                       : (nibble > 7 ? nibble - 16 : nibble);
    return code * double{scale_.view().as<float>()[group]};
  }

  Tensor values_{DType::i4, {kN, kK}}, scale_{DType::f32, {kN, groups()}};
  Tensor zero_{DType::i32, {kN, groups()}}, a_{type(), {kMost, kK}}, device_a_;
  Held held_{};
  Weight packed_;
};

TEST_P(W4OnGpu, PacksAsTheCpuAndUnpacksToTheSameBytes) {
  const Held on_cpu = packed(rows_on(cpu_device()));
  EXPECT_TRUE(same_bytes(held_.values.to(cpu_device()), on_cpu.values));
  EXPECT_TRUE(same_bytes(held_.scale.to(cpu_device()), on_cpu.scale));
  const Held again = empty(Packing::rows, DType::i32, cuda_device());
  pack_weight({.weight = packed_, .out = again.weight()});
  synchronize(cuda_device());
  EXPECT_TRUE(same_bytes(again.values.to(cpu_device()), values_));
  EXPECT_TRUE(same_bytes(again.scale.to(cpu_device()), scale_));
  if (!has_zero_points()) return;
  EXPECT_TRUE(same_bytes(held_.zero_point.to(cpu_device()), on_cpu.zero_point));
  EXPECT_TRUE(same_bytes(again.zero_point.to(cpu_device()), zero_));
}

// Packing rounds scales to 16 bits as the CPU does, and products have the same bits as with these
// scales in f32. The numbers of rows reach the tiles of 8, 16, 32, 64 and 128 tokens.
TEST_P(W4OnGpu, ScalesOf16BitsGiveTheBitsOfTheSameFloats) {
  for (const DType scale_type : {DType::bf16, DType::f16}) {
    SCOPED_TRACE(name(scale_type));
    const Held half = packed(rows_on(cuda_device()), scale_type);
    const Held on_cpu = packed(rows_on(cpu_device()), scale_type);
    ASSERT_TRUE(same_bytes(half.values.to(cpu_device()), on_cpu.values));
    ASSERT_TRUE(same_bytes(half.scale.to(cpu_device()), on_cpu.scale));
    const Held rounded = empty(Packing::rows, DType::i32, cuda_device());
    pack_weight({.weight = half.weight(), .out = rounded.weight()});
    const Held same = packed(rounded);
    for (const int64_t m : {1, 5, 12, 20, 40, 70}) {
      ASSERT_TRUE(
          same_bytes(run(device_a_, half.weight(), 0, m), run(device_a_, same.weight(), 0, m)))
          << "m = " << m;
    }
  }
}

TEST_P(W4OnGpu, ARowHasTheSameBitsInEveryBatch) {
  const Tensor all = run(device_a_, packed_, 0, kMost);
  for (const bool is_static : {false, true}) {
    packed_.is_static = is_static;
    for (const int64_t m : {1, 2, 7, 8, 9, 16, 17, 31, 32, 33, 64, 65, 100, 129, 256}) {
      for (const int64_t begin : {int64_t{0}, kMost - m}) {
        const Tensor some = run(device_a_, packed_, begin, m);
        ASSERT_EQ(std::memcmp(some.view().data, all.view().as<float>() + begin * kN,
                              static_cast<size_t>(some.size_bytes())),
                  0)
            << "rows from " << begin << ", m = " << m;
      }
    }
  }
}

// Products of a code and an element of a are exact. A group's sum and the sum over groups each err
// by at most 2^-22 of the sum of magnitudes for each of their terms, as gemm.h states.
TEST_P(W4OnGpu, IsWithinTheStatedErrorOfAProductInDouble) {
  constexpr int64_t kRows = 20;
  const Tensor out = run(device_a_, packed_, 0, kRows);
  for (int64_t j = 0; j < kN; ++j) {
    std::vector<double> weights(kK);
    for (int64_t i = 0; i < kK; ++i) weights[static_cast<size_t>(i)] = weight_at(j, i);
    for (int64_t row = 0; row < kRows; ++row) {
      double want = 0, magnitude = 0;
      for (int64_t i = 0; i < kK; ++i) {
        const double product = double{a_at(row * kK + i)} * weights[static_cast<size_t>(i)];
        want += product;
        magnitude += std::fabs(product);
      }
      const double got = out.view().as<float>()[row * kN + j];
      ASSERT_LE(std::fabs(got - want), static_cast<double>(kK) * 0x1p-22 * magnitude)
          << "row " << row << " column " << j << ": " << got << " for " << want;
    }
  }
}

std::string param_name(const ::testing::TestParamInfo<Param>& info) {
  return std::string(name(std::get<0>(info.param))) + "_g" +
         std::to_string(std::get<1>(info.param)) + (std::get<2>(info.param) ? "_zero" : "");
}
INSTANTIATE_TEST_SUITE_P(Forms, W4OnGpu,
                         ::testing::Combine(::testing::Values(DType::bf16, DType::f16),
                                            ::testing::Values(0, 32, 64, 128), ::testing::Bool()),
                         param_name);

// Shapes whose cuts differ: units of 16 and of 32 rows, 2, 4 and fewer parts of k, of which some
// end in the middle of a slot, blocks with all parts and clusters.
struct Shape {
  int64_t n, k;
};
class W4CutsOnGpu : public GpuTest, public ::testing::WithParamInterface<Shape> {};

// Codes, activations and scales are small integers and powers of two, so that sums are exact in any
// order: a product is right if and only if every addend is counted once, with its scale.
TEST_P(W4CutsOnGpu, AreExactOnSmallIntegersAndTheSameInEveryBatch) {
  constexpr int64_t kMost = 140, kStep = 37;
  const auto [n, k] = GetParam();
  const int64_t groups = k / 128;
  std::mt19937_64 random(5);
  const Tensor values(DType::i4, {n, k}), scale(DType::f32, {n, groups});
  const Tensor a(DType::bf16, {kMost, k});
  for (int64_t i = 0; i < values.size_bytes(); ++i) {
    values.view().as<uint8_t>()[i] = static_cast<uint8_t>(random());
  }
  for (int64_t i = 0; i < n * groups; ++i) {
    scale.view().as<float>()[i] = static_cast<float>(1 << random() % 3);
  }
  for (int64_t i = 0; i < kMost * k; ++i) {
    a.view().as<Bf16>()[i] = from_float<Bf16>(static_cast<float>(random() % 9) - 4);
  }
  const Device device = cuda_device();
  const Tensor device_values = values.to(device), device_scale = scale.to(device);
  const Tensor device_a = a.to(device), all(DType::f32, {kMost, n}, device);
  const Tensor packed_values(DType::i4, {n, k}, device),
      packed_scale(DType::f32, {n, groups}, device);
  const Weight rows{.values = device_values, .scale = device_scale};
  if (preferred_packing({.a = device_a, .b = rows, .out = all}) != Packing::fragments) {
    GTEST_SKIP() << "no row of this device takes packed 4-bit weights";
  }
  const Weight packed{.values = packed_values,
                      .scale = packed_scale,
                      .packing = Packing::fragments,
                      .is_static = true};
  pack_weight({.weight = rows, .out = packed});
  synchronize(device);
  gemm({.a = device_a, .b = packed, .out = all}, kInvariant);
  synchronize(device);
  const Tensor got = all.to(cpu_device());
  for (int64_t j = 0; j < n; j += kStep) {
    std::vector<float> weights(static_cast<size_t>(k));
    for (int64_t i = 0; i < k; ++i) {
      const int nibble = values.view().as<uint8_t>()[(j * k + i) / 2] >> (i % 2 * 4) & 15;
      weights[static_cast<size_t>(i)] = static_cast<float>(nibble > 7 ? nibble - 16 : nibble) *
                                        scale.view().as<float>()[j * groups + i / 128];
    }
    for (int64_t row = 0; row < kMost; ++row) {
      float want = 0;
      for (int64_t i = 0; i < k; ++i) {
        want += weights[static_cast<size_t>(i)] * to_float(a.view().as<Bf16>()[row * k + i]);
      }
      ASSERT_EQ(got.view().as<float>()[row * n + j], want) << "row " << row << " column " << j;
    }
  }
  for (const int64_t m : {1, 2, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65}) {
    const Tensor out(DType::f32, {m, n}, device);
    fill_bytes(out.view().data, device, 0xff, static_cast<size_t>(out.size_bytes()));
    gemm({.a = device_a.view().slice(0, kMost - m, kMost), .b = packed, .out = out}, kInvariant);
    synchronize(device);
    const Tensor some = out.to(cpu_device());
    ASSERT_EQ(std::memcmp(some.view().data, got.view().as<float>() + (kMost - m) * n,
                          static_cast<size_t>(some.size_bytes())),
              0)
        << "m = " << m;
  }
}
INSTANTIATE_TEST_SUITE_P(Shapes, W4CutsOnGpu,
                         ::testing::Values(Shape{64, 128}, Shape{192, 640}, Shape{4096, 2176},
                                           Shape{1088, 5760}, Shape{6144, 1152}, Shape{8256, 896},
                                           Shape{16448, 640}, Shape{28672, 1152}));

}  // namespace
}  // namespace tessera::testing
