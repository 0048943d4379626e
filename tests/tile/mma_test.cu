// mma.sync of every portable type against the exact product.
// SPDX-License-Identifier: MIT
#include "tests/tile/mma_case.cuh"
#include "tile/ptx/mma.cuh"

namespace tessera::testing {
namespace {

class MmaTest : public GpuTest {};

template <class T>
struct Multiply {
  template <class D>
  __device__ void operator()(D (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) const {
    tile::ptx::mma<T>(d, a, b);
  }
};

// Accumulates in f16, two elements a register, and hands back floats.
struct MultiplyInHalf {
  __device__ void operator()(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) const {
    uint32_t halves[2] = {tile::pack_pair<F16>(d[0], d[1]), tile::pack_pair<F16>(d[2], d[3])};
    tile::ptx::mma_f16_accumulate(halves, a, b);
    TESSERA_UNROLL
    for (int i = 0; i < 4; ++i) {
      d[i] = __half2float(__ushort_as_half(static_cast<uint16_t>(halves[i / 2] >> 16 * (i % 2))));
    }
  }
};

TEST_F(MmaTest, Bf16IsExact) { expect_exact_mma<Bf16, Bf16, float, Multiply<Bf16>>(4, 4); }
TEST_F(MmaTest, F16IsExact) { expect_exact_mma<F16, F16, float, Multiply<F16>>(4, 4); }
TEST_F(MmaTest, F16AccumulatedInF16IsExact) {
  expect_exact_mma<F16, F16, float, MultiplyInHalf>(4, 4);
}
TEST_F(MmaTest, Tf32IsExact) {
  expect_exact_mma<float, float, float, Multiply<tile::ptx::Tf32>>(500, 50);
}
TEST_F(MmaTest, Int8IsExactOverItsWholeRange) {
  expect_exact_mma<int8_t, int8_t, int32_t, Multiply<int8_t>>(127, 127);
}

}  // namespace
}  // namespace tessera::testing
