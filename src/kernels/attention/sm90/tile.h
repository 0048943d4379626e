// The shapes the Hopper prefill kernel is compiled for.
// SPDX-License-Identifier: MIT
#pragma once

namespace tessera::kernels {

// A block takes kRows queries of one head and walks blocks of kKeys keys. One warpgroup holds 64
// rows of scores and of results in registers.
// With kSumsInFloat the tensor cores add up the products of one block of keys alone, and blocks are
// added by ordinary instructions: their own sums of FP8 products keep fewer digits than a float.
template <int kKeyDim_, int kValueDim_, int kWarpgroups_, int kKeys_, int kQueryBuffers_,
          int kStages_, bool kSumsInFloat_ = false>
struct PrefillTile {
  static constexpr int kKeyDim = kKeyDim_;
  static constexpr int kValueDim = kValueDim_;
  static constexpr int kWarpgroups = kWarpgroups_;
  static constexpr int kRows = 64 * kWarpgroups_;
  static constexpr int kKeys = kKeys_;
  static constexpr int kQueryBuffers = kQueryBuffers_;
  static constexpr int kStages = kStages_;  // of k, and of v
  static constexpr bool kSumsInFloat = kSumsInFloat_;
  static constexpr int kThreads = 128 * (kWarpgroups_ + 1);
  // A scheduler's registers go to the warps it has in turn: what the producers give away, the
  // consumers get.
  static constexpr int kProducerRegisters = kWarpgroups_ == 3 ? 32 : 40;
  static constexpr int kConsumerRegisters = kWarpgroups_ == 3 ? 160 : 232;
  static_assert(kKeys % 16 == 0 && kKeys <= 256 && kValueDim % 32 == 0);
};

// The tile of a pair of head dimensions, for 16-bit types. A general one changes scores or drops
// weights, for which it needs registers. docs/kernels/attention.md has what was tried.
template <int kKeyDim, int kValueDim, bool kIsGeneral, int kBits = 16>
struct ChoosePrefillTile;
template <>
struct ChoosePrefillTile<128, 128, false> {
  using type = PrefillTile<128, 128, 2, 128, 2, 2>;
};
template <>
struct ChoosePrefillTile<64, 64, false> {
  using type = PrefillTile<64, 64, 3, 96, 2, 3>;
};
template <>
struct ChoosePrefillTile<96, 96, false> {
  using type = PrefillTile<96, 96, 2, 128, 2, 2>;
};
template <>
struct ChoosePrefillTile<256, 256, false> {
  using type = PrefillTile<256, 256, 2, 64, 1, 2>;
};
template <>
struct ChoosePrefillTile<192, 128, false> {
  using type = PrefillTile<192, 128, 2, 128, 1, 2>;
};
template <>
struct ChoosePrefillTile<32, 64, false> {
  using type = PrefillTile<32, 64, 3, 96, 2, 3>;
};
// 8-bit scores are half as long in the making: deeper rings hide the turning of values.
template <>
struct ChoosePrefillTile<128, 128, false, 8> {
  using type = PrefillTile<128, 128, 2, 128, 2, 3>;
};
template <>
struct ChoosePrefillTile<64, 64, false, 8> {
  using type = PrefillTile<64, 64, 3, 128, 2, 3>;
};
template <>
struct ChoosePrefillTile<256, 256, false, 8> {
  using type = PrefillTile<256, 256, 2, 64, 1, 2>;
};
// The same with sums in float.
template <int kDim>
using PrefillTileInFloat =
    PrefillTile<kDim, kDim, 2, kDim == 64 ? 128 : 64, (kDim > 128 ? 1 : 2), 2, kDim != 256>;
template <int kKeyDim, int kValueDim, int kBits>
struct ChoosePrefillTile<kKeyDim, kValueDim, true, kBits> {
  static constexpr bool kIsLarge = kKeyDim > 128;
  using type =
      PrefillTile<kKeyDim, kValueDim, 2, (kIsLarge && kBits == 16 ? 48 : 64), kIsLarge ? 1 : 2, 2>;
};

}  // namespace tessera::kernels
