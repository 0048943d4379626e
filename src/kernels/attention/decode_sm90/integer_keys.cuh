// Scores of keys that are integers with a scale a row: the queries become integers as well, once,
// and the products of a step are sums of integers.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/decode_sm90/products.cuh"

namespace tessera::kernels {

// A query is unit * (256 * high + low), with two signed bytes for each element. The unit is a power
// of two such that the largest element takes 15 bits: what is at least a 128th of it keeps all bits
// of a bf16, and nothing is off by more than 2^-15 of it (2^-14 where 15 bits are just not enough).
// Where four queries leave half of a product's columns free, these hold the low bytes, and the
// first half the high ones.
struct IntegerQuery {
  float unit;
  float sum;  // of the elements, in units
};

// Bytes of four elements: of 256 * high + low, which are the last bits of x * up + 1.5 * 2^23.
__device__ __forceinline__ uint32_t pack_bytes(const float (&x)[4], float up, bool is_high) {
  constexpr float kLastBits = 0x1.8p23f;
  const float base = is_high ? kLastBits + 128 : kLastBits;  // high rounds to the nearest 256
  const uint32_t which = is_high ? 0x51 : 0x40;
  uint32_t bits[4];
  TESSERA_UNROLL
  for (int i = 0; i < 4; ++i) bits[i] = __float_as_uint(fmaf(x[i], up, base));
  return __byte_perm(__byte_perm(bits[0], bits[1], which), __byte_perm(bits[2], bits[3], which),
                     0x5410);
}

// What is to be multiplied with a thread's codes: `words` hold its elements, 4 of every 16 for
// bytes, 8 of every 32 for four bits, whose even and odd codes are taken in turn.
template <class Tile, class Q>
__device__ __forceinline__ uint32_t query_bytes(const uint32_t (&words)[Tile::kD / 8], int step,
                                                int reg, float up, bool is_high) {
  float x[4];
  TESSERA_UNROLL
  for (int i = 0; i < 4; ++i) {
    if constexpr (Tile::K::kBits == 8) {
      const float2 pair = tile::pair_to_floats<Q>(words[4 * step + 2 * reg + i / 2]);
      x[i] = i % 2 == 0 ? pair.x : pair.y;
    } else {
      const float2 pair = tile::pair_to_floats<Q>(words[8 * (step / 2) + 4 * reg + i]);
      x[i] = step % 2 == 0 ? pair.x : pair.y;
    }
  }
  return pack_bytes(x, up, is_high);
}

template <class Tile, class Q>
__device__ __forceinline__ void load_elements(const Q* from, int lane,
                                              uint32_t (&words)[Tile::kD / 8]) {
  constexpr int kBits = Tile::K::kBits;
  TESSERA_UNROLL
  for (int i = 0; i < Tile::kD / 8; i += 16 / kBits) {
    if constexpr (kBits == 8) {
      const uint2 w = *reinterpret_cast<const uint2*>(from + 8 * i + 4 * (lane % 4));
      words[i] = w.x, words[i + 1] = w.y;
    } else {
      const uint4 w = *reinterpret_cast<const uint4*>(from + 8 * i + 8 * (lane % 4));
      words[i] = w.x, words[i + 1] = w.y, words[i + 2] = w.z, words[i + 3] = w.w;
    }
  }
}

// The largest magnitude in the words of the four lanes of a query. As integers 16-bit floats
// without their sign are in order, and what is not finite comes last.
template <class Q, int kWords>
__device__ __forceinline__ float largest_of(const uint32_t (&words)[kWords]) {
  uint32_t pairs = 0;
  TESSERA_UNROLL
  for (int i = 0; i < kWords; ++i) pairs = __vmaxu2(pairs, words[i] & 0x7fff7fffu);
  uint32_t most = max(pairs & 0xffff, pairs >> 16);
  TESSERA_UNROLL
  for (int lanes = 1; lanes < 4; lanes *= 2) {
    most = max(most, __shfl_xor_sync(~0u, most, lanes));
  }
  return tile::pair_to_floats<Q>(most).x;
}

template <class Tile, class Q>
__device__ __forceinline__ IntegerQuery make_integer_q(const Q* from, int lane,
                                                       uint32_t (&steps)[kQuerySteps<Tile>][2]) {
  constexpr int kD = Tile::kD, kBits = Tile::K::kBits;
  uint32_t words[kD / 8];
  load_elements<Tile>(from, lane, words);
  const float largest = largest_of<Q>(words);
  // Odd codes of four bits are worth 16 times even ones, and even ones are multiplied by 16. From
  // 255 / 128 of a power of two on, two bytes with a sign hold 14 bits.
  constexpr uint32_t kShift = kBits == 4 ? 4 : 0, kExponent = 1u << 23;
  const uint32_t exponent =
      max((__float_as_uint(largest) + kExponent / 128) & 0x7f800000u, (15 + kShift) * kExponent);
  const float up = __uint_as_float((127 + 127 + 14) * kExponent - exponent);
  IntegerQuery query;
  query.unit = isfinite(largest) ? __uint_as_float(exponent - (14 + kShift) * kExponent)
                                 : __uint_as_float(0x7fffffffu);
  int sum = 0;
  TESSERA_UNROLL
  for (int part = 0; part < kQueryParts<Tile>; ++part) {
    const bool is_high = Tile::kIsNarrow ? lane < 16 : part == 0;
    int part_sum = 0;
    TESSERA_UNROLL
    for (int i = 0; i < kD / 16; ++i) {
      uint32_t& bytes = steps[part * (kD / 32) + i / 2][i % 2];
      bytes = query_bytes<Tile, Q>(words, i / 2, i % 2, up, is_high);
      part_sum = __dp4a(static_cast<int>(bytes), 0x01010101, part_sum);
    }
    sum += part_sum * (is_high ? 256 : 1);
  }
  if constexpr (Tile::K::kNumScales == 2) {
    TESSERA_UNROLL
    for (int lanes = 1; lanes < 4; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    if constexpr (Tile::kIsNarrow) sum += __shfl_xor_sync(~0u, sum, 16);
    query.sum = static_cast<float>(sum << kShift);
  }
  return query;
}

// Products of a box's keys with each part of the queries; of four bits those of even codes come
// first.
template <class Tile>
using IntegerSums = int32_t[Tile::kTiles][kQueryParts<Tile>][8 / Tile::K::kBits][4];

template <class Tile>
__device__ __forceinline__ void multiply_integer_box(uint32_t half, uint32_t lane_place, int box,
                                                     const QueryOperands<Tile>& q,
                                                     IntegerSums<Tile>& sums) {
  using K = typename Tile::K;
  constexpr int kSums = 8 / K::kBits;
  TESSERA_UNROLL
  for (int group = 0; group < Tile::kRowBytes / 32; ++group) {
    uint32_t r[4];
    tile::ptx::ldmatrix(r, place_of_group<Tile>(half, lane_place, box, group));
    TESSERA_UNROLL
    for (int i = 0; i < kSums; ++i) {
      Operand a;
      K::integer_operand(r, i, a);
      TESSERA_UNROLL
      for (int part = 0; part < kQueryParts<Tile>; ++part) {
        TESSERA_UNROLL
        for (int t = 0; t < Tile::kTiles; ++t) {
          const auto& b = q[t][part * (Tile::kD / 32) + kSums * group + i];
          if constexpr (K::kHasSign) {
            tile::ptx::mma<int8_t>(sums[t][part][i], a, b);
          } else {
            tile::ptx::mma_u8_s8(sums[t][part][i], a, b);
          }
        }
      }
    }
  }
}

// Even and odd codes together: element i of a product.
template <int kSums>
__device__ __forceinline__ int32_t sum_of_codes(const int32_t (&sums)[kSums][4], int i) {
  if constexpr (kSums == 1) return sums[0][i];
  return sums[0][i] * 16 + sums[kSums - 1][i];
}

// x[box][t][i]: product of a key and column i % 2, in units of the query.
template <class Tile>
__device__ __forceinline__ void multiply_integer_keys(uint32_t half, int lane,
                                                      const QueryOperands<Tile>& q,
                                                      LaneScores<Tile>& x) {
  const uint32_t lane_place = place<Tile>(lane % 16, lane / 16);
  const bool has_high = lane % 4 < 2;  // where a product's columns hold both parts
  int32_t kept[Tile::kTiles][4];
  TESSERA_UNROLL
  for (int box = 0; box < 2; ++box) {
    IntegerSums<Tile> sums = {};
    multiply_integer_box<Tile>(half, lane_place, box, q, sums);
    TESSERA_UNROLL
    for (int t = 0; t < Tile::kTiles; ++t) {
      TESSERA_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int32_t first = sum_of_codes(sums[t][0], i);
        if constexpr (!Tile::kIsNarrow) {
          x[box][t][i] = static_cast<float>(first * 256 + sum_of_codes(sums[t][1], i));
        } else if (box == 0) {
          kept[t][i] = first;
        } else {
          // A lane with high parts takes the first box, one with low parts the second.
          const int32_t own = has_high ? kept[t][i] : first;
          const int32_t other = __shfl_xor_sync(~0u, has_high ? first : kept[t][i], 2);
          x[0][t][i] =
              static_cast<float>(own * (has_high ? 256 : 1) + other * (has_high ? 1 : 256));
        }
      }
    }
  }
}

}  // namespace tessera::kernels
