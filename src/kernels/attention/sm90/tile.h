// The shapes the Hopper prefill kernel is compiled for.
// SPDX-License-Identifier: MIT
#pragma once

namespace tessera::kernels {

// A block takes kRows queries of one head and walks blocks of kKeys keys. One warpgroup holds 64
// rows of scores and of results in registers.
// With kSumsInFloat the tensor cores add up the products of one block of keys alone, and blocks are
// added by ordinary instructions: their own sums of FP8 products keep fewer digits than a float.
// With kIsPadded heads may have fewer elements than the tile: the copy engine brings zeros for the
// others and does not store them, as the tensor maps have the heads' own sizes.
template <int kKeyDim_, int kValueDim_, int kWarpgroups_, int kKeys_, int kQueryBuffers_,
          int kStages_, bool kSumsInFloat_ = false, bool kIsPadded_ = false>
struct PrefillTile {
  static constexpr int kKeyDim = kKeyDim_;
  static constexpr int kValueDim = kValueDim_;
  static constexpr int kWarpgroups = kWarpgroups_;
  static constexpr int kRows = 64 * kWarpgroups_;
  static constexpr int kKeys = kKeys_;
  static constexpr int kQueryBuffers = kQueryBuffers_;
  static constexpr int kStages = kStages_;  // of k, and of v
  static constexpr bool kSumsInFloat = kSumsInFloat_;
  static constexpr bool kIsPadded = kIsPadded_;
  // Whether a warpgroup takes the exponentials of one block under its own products of the one
  // before. That needs the weights of two blocks in registers; three or four warpgroups have longer
  // blocks or more rows instead, and work under each other's products.
  static constexpr bool kOverlaps = kWarpgroups == 2;
  // Whether a warpgroup leaves out blocks that only others of the tile see: tiles of many rows have
  // such blocks where masks begin.
  static constexpr bool kSkipsBlocks = kWarpgroups > 2;
  static constexpr int kThreads = 128 * (kWarpgroups + 1);
  // A block starts with as many registers for each thread as all can have; what the producers give
  // away, the consumers get.
  static constexpr int kStartRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kProducerRegisters = kWarpgroups == 2 ? 40 : 32;
  static constexpr int kConsumerRegisters =
      (kStartRegisters * (kWarpgroups + 1) - kProducerRegisters) / kWarpgroups / 8 * 8;
  static_assert(kKeys % 16 == 0 && kKeys <= 256 && kValueDim % 32 == 0);
};

// What of a tile is chosen by the head dimensions. docs/kernels/attention.md has what was tried.
struct PrefillShape {
  int warpgroups;
  int keys;
  int query_buffers;
  int stages;
};

// A general instance changes scores or drops weights, for which it needs registers, as does one
// that sums FP8 products in float. Where exponentials take longer than products, with small heads
// and 8-bit ones, more warpgroups keep their unit busy.
constexpr PrefillShape choose_prefill_shape(int key_dim, int value_dim, int bits, bool is_general,
                                            bool sums_in_float) {
  const bool is_large = key_dim > 128;
  if (is_general) return {2, is_large && bits == 16 ? 48 : 64, is_large ? 1 : 2, 2};
  if (sums_in_float) return {2, key_dim == 64 ? 128 : 96, 2, 3};
  if (key_dim == 256) return {2, bits == 8 ? 96 : 64, 1, 2};
  if (is_large) return {2, value_dim > 128 ? 96 : 128, 1, 2};
  if (key_dim <= 64 && bits == 16) return {4, 64, 2, 6};
  if (key_dim <= 64) return {3, 128, 2, 3};
  if (bits == 8) return {3, 96, 2, 3};
  if (key_dim == 96) return {3, 80, 2, 3};
  return {2, 128, 2, 2};
}

template <int kKeyDim, int kValueDim, int kBits, bool kIsGeneral, bool kSumsInFloat = false>
struct ChoosePrefillTile {
  static constexpr PrefillShape kShape =
      choose_prefill_shape(kKeyDim, kValueDim, kBits, kIsGeneral, kSumsInFloat);
  using type = PrefillTile<kKeyDim, kValueDim, kShape.warpgroups, kShape.keys, kShape.query_buffers,
                           kShape.stages, kSumsInFloat>;
};

// Of 16-bit heads of at most kDim elements.
template <int kDim>
struct ChoosePaddedTile {
  static constexpr PrefillShape kShape = choose_prefill_shape(kDim, kDim, 16, false, false);
  using type = PrefillTile<kDim, kDim, kShape.warpgroups, kShape.keys, kShape.query_buffers,
                           kShape.stages, false, true>;
};

}  // namespace tessera::kernels
