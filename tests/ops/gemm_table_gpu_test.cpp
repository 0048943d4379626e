// Products with a weight's table on a GPU: its values are rounded once, to the type of the
// activations, and everything after that has the bits of a dense product.
// SPDX-License-Identifier: MIT
#include <cmath>
#include <random>
#include <string>

#include "tessera/core/convert.h"
#include "tessera/ops/gemm.h"
#include "tests/gpu.h"

namespace tessera::testing {
namespace {

constexpr Context kBatchInvariant{.batch_invariant = true};

// Of both signs, out of order, and exact in no 16-bit type.
float uneven_value(int64_t code) { return std::sin(0.9f * static_cast<float>(code) + 0.3f); }

void set(const TensorView& view, int64_t i, float value) {
  if (view.dtype == DType::bf16) {
    view.as<Bf16>()[i] = from_float<Bf16>(value);
  } else {
    view.as<F16>()[i] = from_float<F16>(value);
  }
}

class GemmTableOnGpu : public GpuTest, public ::testing::WithParamInterface<DType> {
 protected:
  static DType type() { return GetParam(); }

  // As f32, on the host. The row is named, so that Hopper's do not serve the dense product.
  static Tensor product(const TensorView& a, const WeightArg& b, const std::string& row) {
    const Tensor out(DType::f32, {a.size(0), b.n()}, cuda_device());
    Context ctx = kBatchInvariant;
    ctx.row = row;
    gemm({.a = a, .b = b, .out = out}, ctx);
    synchronize(cuda_device());
    return out.to(cpu_device());
  }
};

// With scales of 1 a row of out is the same chain of tensor-core products as the dense one of the
// rounded values, so not a bit may differ.
TEST_P(GemmTableOnGpu, RoundsEachValueOnceToTheTypeOfTheActivations) {
  const std::string prefix = "gemm_" + std::string(name(type()));
  std::mt19937_64 random(3);
  for (const int64_t k : {32, 64, 160, 1024}) {
    constexpr int64_t n = 96;
    const Tensor codes(DType::i4, {n, k}), dense(type(), {n, k}), scale(DType::f32, {n});
    const Tensor table(DType::f32, {kTableSize});
    for (int64_t i = 0; i < kTableSize; ++i) table.view().as<float>()[i] = uneven_value(i);
    for (int64_t i = 0; i < n; ++i) scale.view().as<float>()[i] = 1.0f;
    for (int64_t i = 0; i < n * k; i += 2) {
      const auto byte = static_cast<uint8_t>(random());
      codes.view().as<uint8_t>()[i / 2] = byte;
      set(dense, i, uneven_value(byte & 15));
      set(dense, i + 1, uneven_value(byte >> 4));
    }
    const Tensor codes_there = codes.to(cuda_device()), dense_there = dense.to(cuda_device());
    const Tensor scale_there = scale.to(cuda_device()), table_there = table.to(cuda_device());
    const Weight weight{
        .values = codes_there, .scale = scale_there.view(), .table = table_there.view()};
    for (const int64_t m : {1, 16, 17, 70}) {
      SCOPED_TRACE(::testing::Message() << prefix << " m " << m << " k " << k);
      const Tensor a(type(), {m, k});
      std::normal_distribution<float> normal;
      for (int64_t i = 0; i < m * k; ++i) set(a, i, normal(random));
      const Tensor a_there = a.to(cuda_device());
      const Tensor got = product(a_there, weight, prefix + "_wi4_f32_table");
      const Tensor want = product(a_there, dense_there, prefix + "_f32");
      for (int64_t i = 0; i < m * n; ++i) {
        ASSERT_EQ(got.view().as<float>()[i], want.view().as<float>()[i])
            << "row " << i / n << ", column " << i % n;
      }
    }
  }
}

// Without a row's name: the table decides which one serves, and none takes another type of it.
TEST_P(GemmTableOnGpu, IsServedAndRefusedByItsKey) {
  const Tensor a = Tensor(type(), {4, 64}).to(cuda_device());
  const Tensor codes = Tensor(DType::i4, {32, 64}).to(cuda_device());
  const Tensor scale(DType::f32, {32, 2}, cuda_device());
  const Tensor table(DType::f32, {kTableSize}, cuda_device()), out(type(), {4, 32}, cuda_device());
  const Tensor out_codes(DType::i8, {4, 32}, cuda_device()), one(DType::f32, {1}, cuda_device());
  GemmArgs args{.a = a,
                .b = Weight{.values = codes, .scale = scale.view(), .table = table.view()},
                .out = out};
  EXPECT_TRUE(supports(args, kBatchInvariant));
  EXPECT_EQ(preferred_packing(args, kBatchInvariant), Packing::rows);
  args.out = out_codes;
  args.out_scale = one.view();
  EXPECT_FALSE(supports(args));
}

INSTANTIATE_TEST_SUITE_P(Types, GemmTableOnGpu, ::testing::Values(DType::bf16, DType::f16),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace tessera::testing
