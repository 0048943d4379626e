// WGMMA on 16-bit types against the exact product: every n, both sources of A.
// SPDX-License-Identifier: MIT
#include "tests/tile/wgmma_case.cuh"

namespace tessera::testing {
namespace {

class WgmmaFloatTest : public HopperTest {};

TEST_F(WgmmaFloatTest, Bf16IsExactForEveryNFromSharedMemory) {
  [&]<int... kIdx>(std::integer_sequence<int, kIdx...>) {
    (expect_exact_wgmma<Bf16, Bf16, WgmmaShape{.n = 8 * (kIdx + 1)}>(), ...);
  }
  (std::make_integer_sequence<int, 32>{});
}

TEST_F(WgmmaFloatTest, Bf16IsExactWithAInRegisters) {
  [&]<int... kNs>(std::integer_sequence<int, kNs...>) {
    (expect_exact_wgmma<Bf16, Bf16, WgmmaShape{.n = kNs, .source = WgmmaSource::registers}>(), ...);
  }
  (std::integer_sequence<int, 8, 24, 64, 104, 128, 176, 256>{});
}

TEST_F(WgmmaFloatTest, F16IsExactForEachSourceOfA) {
  expect_exact_wgmma_for_each_n<F16, F16, 8, 24, 64, 104, 128, 256>();
}

TEST_F(WgmmaFloatTest, NegatedOperandsChangeTheSign) {
  constexpr auto kRegisters = WgmmaSource::registers;
  expect_exact_wgmma<Bf16, Bf16, WgmmaShape{.n = 64, .flags = {.negate_a = true}}>();
  expect_exact_wgmma<Bf16, Bf16,
                     WgmmaShape{.n = 64, .source = kRegisters, .flags = {.negate_b = true}}>();
  expect_exact_wgmma<F16, F16,
                     WgmmaShape{.n = 64, .flags = {.negate_a = true, .negate_b = true}}>();
}

}  // namespace
}  // namespace tessera::testing
