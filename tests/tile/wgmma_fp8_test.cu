// WGMMA on FP8 against the exact product, in the four combinations of e4m3 and e5m2.
// SPDX-License-Identifier: MIT
#include "tests/tile/wgmma_case.cuh"

namespace tessera::testing {
namespace {

class WgmmaFp8Test : public HopperTest {};

TEST_F(WgmmaFp8Test, E4m3TimesE4m3IsExact) {
  expect_exact_wgmma_for_each_n<E4m3, E4m3, 8, 24, 64, 104, 128, 256>();
}
TEST_F(WgmmaFp8Test, E4m3TimesE5m2IsExact) {
  expect_exact_wgmma_for_each_n<E4m3, E5m2, 8, 64, 128>();
}
TEST_F(WgmmaFp8Test, E5m2TimesE4m3IsExact) {
  expect_exact_wgmma_for_each_n<E5m2, E4m3, 24, 64, 104>();
}
TEST_F(WgmmaFp8Test, E5m2TimesE5m2IsExact) {
  expect_exact_wgmma_for_each_n<E5m2, E5m2, 8, 64, 256>();
}
TEST_F(WgmmaFp8Test, SignsCanBeNegated) {
  expect_exact_wgmma<E4m3, E4m3, WgmmaShape{.n = 64, .flags = {.negate_b = true}}>();
}

}  // namespace
}  // namespace tessera::testing
