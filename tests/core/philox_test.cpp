// Philox 4x32-10 against its authors' known answers.
// SPDX-License-Identifier: MIT
#include "core/philox.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

constexpr uint32_t kOnes = 0xffffffff;

TEST(Philox, MatchesThePublishedAnswers) {
  EXPECT_EQ(philox({{0, 0, 0, 0}}, 0),
            (PhiloxWords{{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}));
  EXPECT_EQ(philox({{kOnes, kOnes, kOnes, kOnes}}, ~uint64_t{0}),
            (PhiloxWords{{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}));
  EXPECT_EQ(philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0x299f31d0a4093822),
            (PhiloxWords{{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}));
}

TEST(Philox, IsAConstantExpression) {
  static_assert(philox({{0, 0, 0, 0}}, 0).words[0] == 0x6627e8d5);
}

}  // namespace
}  // namespace tessera
