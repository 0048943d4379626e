// The matrix product on a GPU as a caller sees it, whichever rows serve: bits that do not depend on
// m, special values that stay in their rows and columns, exact sums, repeatable runs.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/core/convert.h"
#include "tessera/ops/gemm.h"
#include "tests/gpu.h"

namespace tessera::testing {
namespace {

constexpr Context kBatchInvariant{.batch_invariant = true};
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

void set(const TensorView& view, int64_t i, float value) {
  if (view.dtype == DType::bf16) {
    view.as<Bf16>()[i] = from_float<Bf16>(value);
  } else {
    view.as<F16>()[i] = from_float<F16>(value);
  }
}
float get(const TensorView& view, int64_t i) {
  return view.dtype == DType::bf16 ? to_float(view.as<Bf16>()[i]) : to_float(view.as<F16>()[i]);
}

uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Values of (-1, 1) with all their mantissa bits, so that sums round at every step.
Tensor random_matrix(DType dtype, int64_t rows, int64_t cols, uint64_t seed) {
  Tensor tensor(dtype, {rows, cols});
  for (int64_t i = 0; i < rows * cols; ++i) {
    const auto bits = mixed(static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15ULL + seed);
    set(tensor, i, static_cast<float>(static_cast<int64_t>(bits >> 40)) * 0x1p-23f - 1.0f);
  }
  return tensor;
}

// 1, 0 and -1: sums of their products are exact in any order.
Tensor small_integers(DType dtype, int64_t rows, int64_t cols, uint64_t seed) {
  Tensor tensor(dtype, {rows, cols});
  for (int64_t i = 0; i < rows * cols; ++i) {
    const uint64_t bits = mixed(static_cast<uint64_t>(i) + (seed << 40) + 1);
    set(tensor, i, static_cast<float>(static_cast<int>((bits >> 20) % 3) - 1));
  }
  return tensor;
}

// run() adds the output.
GemmArgs product(const TensorView& a, const TensorView& b) { return {.a = a, .b = b, .out = {}}; }

bool have_same_bytes(const Tensor& a, const Tensor& b) {
  return a.size_bytes() == b.size_bytes() &&
         std::memcmp(a.view().data, b.view().data, static_cast<size_t>(a.size_bytes())) == 0;
}

// Whether the bytes of `part` are the first of `whole`.
bool begins_with(const Tensor& whole, const Tensor& part) {
  return part.size_bytes() <= whole.size_bytes() &&
         std::memcmp(whole.view().data, part.view().data, static_cast<size_t>(part.size_bytes())) ==
             0;
}

// Poisoned with NaN, so that what is not written is seen.
Tensor poisoned(DType dtype, std::initializer_list<int64_t> shape, Device device) {
  Tensor tensor(dtype, shape, device);
  if (tensor.size_bytes() > 0) {
    fill_bytes(tensor.view().data, device, 0xff, static_cast<size_t>(tensor.size_bytes()));
  }
  return tensor;
}

using GemmParam = std::tuple<DType, int64_t, int64_t>;  // type, n, k

class GemmOnGpu : public GpuTest, public ::testing::WithParamInterface<GemmParam> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const Tensor a = random_matrix(type(), 1, 64, 1).to(cuda_device());
    const Tensor out(type(), {1, 1}, cuda_device());
    if (!supports({.a = a, .b = a, .out = out}, kBatchInvariant)) {
      GTEST_SKIP() << "this build has no batch-invariant row for " << name(type());
    }
  }

  static DType type() { return std::get<0>(GetParam()); }
  static int64_t n() { return std::get<1>(GetParam()); }
  static int64_t k() { return std::get<2>(GetParam()); }

  // out, on the host.
  static Tensor run(GemmArgs args, DType out_type, const Context& ctx = kBatchInvariant) {
    const int64_t num_cols = args.is_gated ? args.b.n() / 2 : args.b.n();
    const Tensor out = poisoned(out_type, {args.a.size(0), num_cols}, cuda_device());
    args.out = out;
    gemm(args, ctx);
    synchronize(cuda_device());
    return out.to(cpu_device());
  }
};

constexpr int64_t kMost = 4096;

// The first rows and the last of a product of m rows against the same rows of 4096.
TEST_P(GemmOnGpu, ARowHasTheSameBitsInEveryBatch) {
  const Tensor a = random_matrix(type(), kMost, k(), 1).to(cuda_device());
  const Tensor b = random_matrix(type(), n(), k(), 2).to(cuda_device());
  for (const DType out_type : {type(), DType::f32}) {
    const Tensor all = run(product(a, b), out_type);
    const int64_t row_bytes = storage_bytes(out_type, n());
    for (const int64_t m : {1, 2, 8, 9, 16, 17, 33, 64, 65, 128, 129, 256, 300, 1024}) {
      for (const int64_t begin : {int64_t{0}, kMost - m}) {
        const Tensor some = run(product(a.view().slice(0, begin, begin + m), b), out_type);
        for (int64_t row = 0; row < m; ++row) {
          const char* want = all.view().as<char>() + (begin + row) * row_bytes;
          const char* got = some.view().as<char>() + row * row_bytes;
          ASSERT_EQ(std::memcmp(got, want, static_cast<size_t>(row_bytes)), 0)
              << "row " << begin + row << " of " << kMost << " is row " << row << " of " << m
              << ", out " << name(out_type);
        }
      }
    }
  }
}

// The same with the epilogues that an engine uses: they must not change which kernel computes a
// row.
TEST_P(GemmOnGpu, ARowHasTheSameBitsInEveryBatchWithAnEpilogue) {
  if (n() % 16 != 0) GTEST_SKIP() << "n = " << n() << " cannot be gated";
  const Tensor a = random_matrix(type(), 300, k(), 1).to(cuda_device());
  const Tensor b = random_matrix(type(), n(), k(), 2).to(cuda_device());
  const Tensor residual = random_matrix(type(), 300, n(), 3).to(cuda_device());
  const auto args_of = [&](int64_t m, bool is_gated) {
    GemmArgs args = product(a.view().slice(0, 0, m), b);
    args.is_gated = is_gated;
    if (is_gated) args.activation = Activation::silu;
    if (!is_gated) args.residual = residual.view().slice(0, 0, m);
    return args;
  };
  for (const bool is_gated : {false, true}) {
    const Tensor all = run(args_of(300, is_gated), type());
    for (const int64_t m : {1, 7, 16, 48, 64, 65, 128, 200}) {
      const Tensor some = run(args_of(m, is_gated), type());
      EXPECT_TRUE(begins_with(all, some))
          << "m = " << m << (is_gated ? ", gated" : ", with a residual");
    }
  }
}

TEST_P(GemmOnGpu, ASecondRunHasTheSameBits) {
  const Tensor a = random_matrix(type(), 300, k(), 1).to(cuda_device());
  const Tensor b = random_matrix(type(), n(), k(), 2).to(cuda_device());
  for (const int64_t m : {1, 16, 64, 300}) {
    for (const Context& ctx : {Context{}, kBatchInvariant}) {
      const GemmArgs args = product(a.view().slice(0, 0, m), b);
      const Tensor first = run(args, type(), ctx);
      for (int again = 0; again < 3; ++again) {
        EXPECT_TRUE(have_same_bytes(first, run(args, type(), ctx)))
            << "m = " << m << (ctx.batch_invariant ? ", batch-invariant" : "");
      }
    }
  }
}

// Ones everywhere else, so that every other element is exactly k or, if b is marked there,
// infinite.
TEST_P(GemmOnGpu, NanAndInfinityReachTheirRowsAndColumnsOnly) {
  const int64_t inf_col = n() - 2;
  Tensor b(type(), {n(), k()});
  for (int64_t i = 0; i < n() * k(); ++i) set(b, i, 0.125f);
  set(b, inf_col * k() + k() / 2, -kInf);
  const Tensor device_b = b.to(cuda_device());
  for (const int64_t m : {1, 7, 16, 40, 64, 130, 300}) {
    const int64_t nan_row = m / 2, inf_row = m - 1;
    Tensor a(type(), {m, k()});
    for (int64_t i = 0; i < m * k(); ++i) set(a, i, i / k() % 2 == 0 ? 1.0f : 0.5f);
    set(a, inf_row * k() + k() - 1, kInf);
    set(a, nan_row * k(), kNotANumber);
    const Tensor out = run(product(a.to(cuda_device()), device_b), type());
    int num_wrong = 0;
    for (int64_t row = 0; row < m; ++row) {
      for (int64_t col = 0; col < n(); ++col) {
        const float got = get(out, row * n() + col);
        const float plain = static_cast<float>(k()) * (row % 2 == 0 ? 0.125f : 0.0625f);
        bool is_right = std::fabs(got - plain) <= plain * 0x1p-7f;
        if (col == inf_col) is_right = got == -kInf;
        if (row == inf_row) is_right = col == inf_col ? got != got : got == kInf;
        if (row == nan_row) is_right = got != got;
        num_wrong += is_right ? 0 : 1;
        if (!is_right && num_wrong == 1) {
          ADD_FAILURE() << "row " << row << " column " << col << " is " << got << ", m = " << m;
        }
      }
    }
    EXPECT_EQ(num_wrong, 0) << "m = " << m;
  }
}

TEST_P(GemmOnGpu, IsExactOnSmallIntegersWhicheverRowServes) {
  const Tensor a = small_integers(type(), 300, k(), 1), b = small_integers(type(), n(), k(), 2);
  const Tensor want = poisoned(DType::f32, {300, n()}, cpu_device());
  gemm({.a = a, .b = b, .out = want});
  const Tensor device_a = a.to(cuda_device()), device_b = b.to(cuda_device());
  for (const Context& ctx : {Context{}, kBatchInvariant}) {
    for (const int64_t m : {1, 5, 16, 33, 64, 100, 128, 257, 300}) {
      const Tensor got = run(product(device_a.view().slice(0, 0, m), device_b), DType::f32, ctx);
      EXPECT_TRUE(begins_with(want, got))
          << "m = " << m << (ctx.batch_invariant ? ", batch-invariant" : "");
    }
  }
}

TEST_P(GemmOnGpu, PackedGateAndUpGiveTheGatedProductOfThePair) {
  const int64_t inter = n() / 16 * 8, m = 33;
  const Tensor a = small_integers(type(), m, k(), 1).to(cuda_device());
  const Tensor gate = small_integers(type(), inter, k(), 2).to(cuda_device());
  const Tensor up = small_integers(type(), inter, k(), 3).to(cuda_device());
  const Tensor packed = poisoned(type(), {2 * inter, k()}, cuda_device());
  pack_gate_up({.gate = gate, .up = up, .out = packed});
  GemmArgs args = product(a, packed);
  args.activation = Activation::relu;
  args.is_gated = true;
  const Tensor got = run(args, DType::f32);
  const Tensor gates = run(product(a, gate), DType::f32);
  const Tensor ups = run(product(a, up), DType::f32);
  for (int64_t i = 0; i < m * inter; ++i) {
    const float g = std::max(gates.view().as<float>()[i], 0.0f), u = ups.view().as<float>()[i];
    ASSERT_EQ(got.view().as<float>()[i], g * u) << "row " << i / inter << " column " << i % inter;
  }
}

std::string gemm_param_name(const ::testing::TestParamInfo<GemmParam>& info) {
  return std::string(name(std::get<0>(info.param))) + "_n" +
         std::to_string(std::get<1>(info.param)) + "_k" + std::to_string(std::get<2>(info.param));
}

// n of many tiles and of few; k of whole steps, of whole 16-byte vectors, and of neither.
INSTANTIATE_TEST_SUITE_P(Shapes, GemmOnGpu,
                         ::testing::Combine(::testing::Values(DType::bf16, DType::f16),
                                            ::testing::Values(4096, 320),
                                            ::testing::Values(4096, 1000, 1001)),
                         gemm_param_name);

}  // namespace
}  // namespace tessera::testing
