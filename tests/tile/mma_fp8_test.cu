// mma.sync on FP8 against the exact product, in the four combinations of e4m3 and e5m2.
// SPDX-License-Identifier: MIT
#include "tests/tile/mma_case.cuh"
#include "tile/ptx/mma_fp8.cuh"

namespace tessera::testing {
namespace {

class MmaFp8Test : public HopperTest {};

template <class A, class B>
struct MultiplyFp8 {
  __device__ void operator()(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) const {
    tile::ptx::mma_fp8<A, B>(d, a, b);
  }
};

template <class A, class B>
void expect_exact_fp8() {
  expect_exact_mma<A, B, float, MultiplyFp8<A, B>>(2, 2);
}

TEST_F(MmaFp8Test, E4m3TimesE4m3IsExact) { expect_exact_fp8<E4m3, E4m3>(); }
TEST_F(MmaFp8Test, E4m3TimesE5m2IsExact) { expect_exact_fp8<E4m3, E5m2>(); }
TEST_F(MmaFp8Test, E5m2TimesE4m3IsExact) { expect_exact_fp8<E5m2, E4m3>(); }
TEST_F(MmaFp8Test, E5m2TimesE5m2IsExact) { expect_exact_fp8<E5m2, E5m2>(); }

}  // namespace
}  // namespace tessera::testing
