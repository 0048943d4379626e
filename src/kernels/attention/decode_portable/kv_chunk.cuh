// Eight elements of one row of a KV cache as floats, in every format.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/decode_portable/params.h"
#include "tile/vec.cuh"

namespace tessera::kernels {

inline constexpr int kChunk = 8;  // elements a lane holds of a row

// One head of keys, or values, as a block reads it.
struct KvHead {
  const uint8_t* data;  // row 0 of page 0
  int64_t page_bytes;
  int64_t row_bytes;
  const uint16_t* scales;  // of row 0 of page 0, in f16; null: none of these
  int64_t scale_page;
  int64_t scale_row;
  int64_t scale_column;
  float scale;  // of all its rows
  bool has_vectors;

  __device__ KvHead(const KvSource& s, int head)
      : data(s.data + head * s.head_bytes),
        page_bytes(s.page_bytes),
        row_bytes(s.row_bytes),
        scales(nullptr),
        scale_page(s.scale_page),
        scale_row(s.scale_row),
        scale_column(s.scale_column),
        scale(1.0f),
        has_vectors(s.has_vectors) {
    if (s.scales == nullptr) return;
    if (s.code == KvCode::e4m3 || s.code == KvCode::e5m2) {
      scale = static_cast<const float*>(s.scales)[head * s.scale_head];
    } else {
      scales = static_cast<const uint16_t*>(s.scales) + head * s.scale_head;
    }
  }
};

// Where the row of a token is.
struct KvPlace {
  int page;
  int row;
};

// Which elements of a row a lane holds.
struct KvColumns {
  int first;
  int count;  // at most kChunk; 0 or less: none
};

__device__ __forceinline__ float half_at(const uint16_t* at) {
  return tile::to_float(F16{__ldg(at)});
}

// Product and sum, each rounded.
__device__ __forceinline__ float scaled(float code, float scale, float low) {
  return __fadd_rn(__fmul_rn(code, scale), low);
}

// Unsigned integers below 2^23 as the low bits of a float that begins at 2^23: an addition in place
// of a conversion, of which an SM does fewer a clock.
inline constexpr uint32_t kIntegerBits = 0x4b000000u;
inline constexpr float kIntegerOffset = 8388608.0f;
__device__ __forceinline__ float byte_to_float(uint32_t word, int idx) {
  const uint32_t selector = 0x7540u + static_cast<uint32_t>(idx);
  return __uint_as_float(__byte_perm(word, kIntegerBits, selector)) - kIntegerOffset;
}
__device__ __forceinline__ float nibble_to_float(uint32_t word, int idx) {
  return __uint_as_float((word >> (4 * idx) & 15u) | kIntegerBits) - kIntegerOffset;
}

// How codes become floats before they are scaled, and what a row or a column brings with it.
template <KvCode kCode>
struct KvCodeTraits;
template <class Element>
struct FloatCode {
  using Stored = Element;
  static constexpr int kStored = kChunk;  // elements of Stored in a chunk
  static constexpr bool kHasRowScale = false;
  static constexpr bool kHasLow = false;
  __device__ static void to_floats(const tile::Vec<Element, kChunk>& raw, float (&out)[kChunk]) {
    raw.to_floats(out);
  }
};
template <>
struct KvCodeTraits<KvCode::f32> : FloatCode<float> {};
template <>
struct KvCodeTraits<KvCode::f16> : FloatCode<F16> {};
template <>
struct KvCodeTraits<KvCode::bf16> : FloatCode<Bf16> {};
template <>
struct KvCodeTraits<KvCode::e4m3> : FloatCode<E4m3> {};
template <>
struct KvCodeTraits<KvCode::e5m2> : FloatCode<E5m2> {};

template <bool kIsSigned>
struct ByteCode {
  using Stored = uint8_t;
  static constexpr int kStored = kChunk;
  static constexpr bool kHasRowScale = true;
  static constexpr bool kHasLow = !kIsSigned;
  __device__ static void to_floats(const tile::Vec<uint8_t, kChunk>& raw, float (&out)[kChunk]) {
    uint32_t words[2];
    memcpy(words, raw.values, sizeof(words));
    TESSERA_UNROLL
    for (int i = 0; i < kChunk; ++i) {
      const uint32_t word = kIsSigned ? words[i / 4] ^ 0x80808080u : words[i / 4];
      out[i] = byte_to_float(word, i % 4) - (kIsSigned ? 128.0f : 0.0f);
    }
  }
};
template <>
struct KvCodeTraits<KvCode::i8> : ByteCode<true> {};
template <>
struct KvCodeTraits<KvCode::u8> : ByteCode<false> {};

struct NibbleCode {
  using Stored = uint8_t;
  static constexpr int kStored = kChunk / 2;
  static constexpr bool kHasLow = true;
  __device__ static void to_floats(const tile::Vec<uint8_t, kChunk / 2>& raw,
                                   float (&out)[kChunk]) {
    uint32_t word;
    memcpy(&word, raw.values, sizeof(word));
    TESSERA_UNROLL
    for (int i = 0; i < kChunk; ++i) out[i] = nibble_to_float(word, i);
  }
};
template <>
struct KvCodeTraits<KvCode::i4> : NibbleCode {
  static constexpr bool kHasRowScale = true;
};
template <>
struct KvCodeTraits<KvCode::i4_columns> : NibbleCode {
  static constexpr bool kHasRowScale = false;
};

// Scales and lows of a lane's columns, kept as long as rows of one group come.
class KvColumnScales {
 public:
  __device__ void hold(const KvHead& head, KvPlace place, KvColumns columns) {
    const int group = place.row / static_cast<int>(kKvGroup);
    if (place.page == page_ && group == group_) return;
    page_ = place.page;
    group_ = group;
    const uint16_t* at = head.scales + place.page * head.scale_page + group * head.scale_row +
                         columns.first * head.scale_column;
    TESSERA_UNROLL
    for (int i = 0; i < kChunk; ++i) {
      if (i >= columns.count) continue;
      scales_[i] = __ldg(at + i * head.scale_column);
      lows_[i] = __ldg(at + i * head.scale_column + 1);
    }
  }
  __device__ void apply(float (&codes)[kChunk]) const {
    TESSERA_UNROLL
    for (int i = 0; i < kChunk; ++i) {
      codes[i] = scaled(codes[i], tile::to_float(F16{scales_[i]}), tile::to_float(F16{lows_[i]}));
    }
  }

 private:
  int page_ = -1;
  int group_ = -1;
  uint16_t scales_[kChunk] = {};
  uint16_t lows_[kChunk] = {};
};

// A lane's part of a row, first as it is stored, so that several are on their way at once.
template <KvCode kCode>
class KvChunk {
  using Traits = KvCodeTraits<kCode>;
  using Raw = tile::Vec<typename Traits::Stored, Traits::kStored>;

 public:
  __device__ void load(const KvHead& head, KvPlace place, KvColumns columns) {
    if (columns.count <= 0) return;
    const uint8_t* row = head.data + place.page * head.page_bytes + place.row * head.row_bytes;
    constexpr int kBytes = sizeof(typename Traits::Stored) * Traits::kStored;
    const auto* at = reinterpret_cast<const typename Traits::Stored*>(
        row + static_cast<int64_t>(columns.first / kChunk) * kBytes);
    if (head.has_vectors) {
      raw_ = Raw::load(at);
    } else {
      raw_ = Raw::load_part(at, (columns.count * Traits::kStored + kChunk - 1) / kChunk);
    }
    if constexpr (Traits::kHasRowScale) {
      const uint16_t* scale =
          head.scales + place.page * head.scale_page + place.row * head.scale_row;
      scale_ = half_at(scale);
      if constexpr (Traits::kHasLow) low_ = half_at(scale + 1);
    }
  }

  __device__ void to_floats(const KvHead& head, float (&out)[kChunk]) const {
    Traits::to_floats(raw_, out);
    if constexpr (Traits::kHasRowScale) {
      TESSERA_UNROLL
      for (int i = 0; i < kChunk; ++i) {
        out[i] = Traits::kHasLow ? scaled(out[i], scale_, low_) : out[i] * scale_;
      }
    } else if constexpr (kCode == KvCode::e4m3 || kCode == KvCode::e5m2) {
      TESSERA_UNROLL
      for (int i = 0; i < kChunk; ++i) out[i] *= head.scale;
    }
  }

 private:
  Raw raw_ = {};
  float scale_ = 0.0f;
  float low_ = 0.0f;
};

}  // namespace tessera::kernels
