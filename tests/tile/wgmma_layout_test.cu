// WGMMA operands in every layout of shared memory: each swizzle, K-major and MN-major.
// SPDX-License-Identifier: MIT
#include "tests/tile/wgmma_case.cuh"

namespace tessera::testing {
namespace {

class WgmmaLayoutTest : public HopperTest {};

template <class A, class B, int kN, WgmmaFlags kFlags = WgmmaFlags{}>
void expect_exact_for_each_swizzle() {
  expect_exact_wgmma<A, B, WgmmaShape{.n = kN, .swizzle = Swizzle::none, .flags = kFlags}>();
  expect_exact_wgmma<A, B, WgmmaShape{.n = kN, .swizzle = Swizzle::b32, .flags = kFlags}>();
  expect_exact_wgmma<A, B, WgmmaShape{.n = kN, .swizzle = Swizzle::b64, .flags = kFlags}>();
  expect_exact_wgmma<A, B, WgmmaShape{.n = kN, .swizzle = Swizzle::b128, .flags = kFlags}>();
}

TEST_F(WgmmaLayoutTest, KMajorOperandsWorkInEachSwizzle) {
  expect_exact_for_each_swizzle<Bf16, Bf16, 8>();
  expect_exact_for_each_swizzle<Bf16, Bf16, 104>();
  expect_exact_for_each_swizzle<F16, F16, 64>();
  expect_exact_for_each_swizzle<E4m3, E4m3, 64>();
  expect_exact_for_each_swizzle<E5m2, E4m3, 24>();
  expect_exact_for_each_swizzle<int8_t, int8_t, 128>();
}

TEST_F(WgmmaLayoutTest, MnMajorBWorksInEachSwizzle) {
  constexpr WgmmaFlags kFlags{.b_is_mn_major = true};
  expect_exact_for_each_swizzle<Bf16, Bf16, 8, kFlags>();
  expect_exact_for_each_swizzle<Bf16, Bf16, 64, kFlags>();
  expect_exact_for_each_swizzle<Bf16, Bf16, 104, kFlags>();
  expect_exact_for_each_swizzle<Bf16, Bf16, 256, kFlags>();
  expect_exact_for_each_swizzle<F16, F16, 128, kFlags>();
}

TEST_F(WgmmaLayoutTest, MnMajorBWorksWithAInRegisters) {
  constexpr auto kRegisters = WgmmaSource::registers;
  constexpr WgmmaFlags kFlags{.b_is_mn_major = true};
  expect_exact_wgmma<Bf16, Bf16, WgmmaShape{.n = 128, .source = kRegisters, .flags = kFlags}>();
  expect_exact_wgmma<
      F16, F16,
      WgmmaShape{.n = 24, .source = kRegisters, .swizzle = Swizzle::b64, .flags = kFlags}>();
}

TEST_F(WgmmaLayoutTest, MnMajorAWorksInEachSwizzle) {
  constexpr WgmmaFlags kFlags{.a_is_mn_major = true};
  expect_exact_for_each_swizzle<Bf16, Bf16, 64, kFlags>();
  constexpr WgmmaFlags kBoth{.a_is_mn_major = true, .b_is_mn_major = true};
  expect_exact_for_each_swizzle<F16, F16, 96, kBoth>();
}

}  // namespace
}  // namespace tessera::testing
