// WGMMA on INT8 against the exact product: every n from shared memory, a set of them from
// registers.
// SPDX-License-Identifier: MIT
#include "tests/tile/wgmma_case.cuh"

namespace tessera::testing {
namespace {

class WgmmaInt8Test : public HopperTest {};

TEST_F(WgmmaInt8Test, IsExactForEveryNFromSharedMemory) {
  [&]<int... kNs>(std::integer_sequence<int, kNs...>) {
    (expect_exact_wgmma<int8_t, int8_t, WgmmaShape{.n = kNs}>(), ...);
  }
  (std::integer_sequence<int, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224,
                         240, 256>{});
}

TEST_F(WgmmaInt8Test, IsExactWithAInRegisters) {
  [&]<int... kNs>(std::integer_sequence<int, kNs...>) {
    (expect_exact_wgmma<int8_t, int8_t, WgmmaShape{.n = kNs, .source = WgmmaSource::registers}>(),
     ...);
  }
  (std::integer_sequence<int, 8, 24, 64, 112, 128, 256>{});
}

}  // namespace
}  // namespace tessera::testing
