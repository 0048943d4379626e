// Products of queries and keys on the tensor cores, for every format. Keys are the rows of a
// product and queries its columns, so that eight queries fill it.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_fp16.h>

#include <type_traits>

#include "kernels/attention/decode/sm90/formats.cuh"
#include "kernels/attention/decode/sm90/tile.cuh"
#include "tile/convert.cuh"
#include "tile/fragment.cuh"
#include "tile/ptx/ldmatrix.cuh"
#include "tile/ptx/mma.cuh"
#include "tile/ptx/shared.cuh"
#include "tile/swizzle.cuh"

namespace tessera::kernels::decode_sm90 {

// Queries as columns: two registers for every 16 elements, or for 32 as bytes. Integer queries have
// two parts, which lie side by side if four queries leave columns free.
template <class Tile>
inline constexpr int kQueryParts = Tile::K::kHasIntegerKeys && !Tile::kIsNarrow ? 2 : 1;
template <class Tile>
inline constexpr int kQuerySteps = kQueryParts<Tile>* Tile::kD /
                                   (Tile::K::kHasIntegerKeys ? 32 : 16);
template <class Tile>
using QueryOperands = uint32_t[Tile::kTiles][kQuerySteps<Tile>][2];
// Accumulators of a step, [box][tile][i]: products of 16 keys and 8 queries.
template <class Tile>
using StepScores = float[2][Tile::kTiles][4];

// Loads the elements of a query that meet a thread's codes, in the order in which codes are taken
// apart: for 16-bit keys two pairs 8 apart in a step of 16, for bytes 4 in a row, for 4 bits 8 in a
// row over two steps, in pairs 4 apart.
template <class Tile, class Q>
__device__ __forceinline__ void order_q(const Q* from, int lane,
                                        uint32_t (&steps)[Tile::kD / 16][2]) {
  constexpr int kD = Tile::kD, kBits = Tile::K::kBits;
  const int c = lane % 4;
  TESSERA_UNROLL
  for (int step = 0; step < kD / 16; ++step) {
    if constexpr (kBits == 16) {
      TESSERA_UNROLL
      for (int reg = 0; reg < 2; ++reg) {
        steps[step][reg] = *reinterpret_cast<const uint32_t*>(from + 16 * step + 8 * reg + 2 * c);
      }
    } else if constexpr (kBits == 8) {
      const uint2 words = *reinterpret_cast<const uint2*>(from + 16 * step + 4 * c);
      steps[step][0] = words.x;
      steps[step][1] = words.y;
    } else if (step % 2 == 0) {
      const uint4 words = *reinterpret_cast<const uint4*>(from + 16 * step + 8 * c);
      steps[step][0] = __byte_perm(words.x, words.z, 0x5410);
      steps[step][1] = __byte_perm(words.x, words.z, 0x7632);
      steps[step + 1][0] = __byte_perm(words.y, words.w, 0x5410);
      steps[step + 1][1] = __byte_perm(words.y, words.w, 0x7632);
    }
  }
}

// A query as operands, converted to the type of the products.
template <class Tile, class Q>
__device__ __forceinline__ void make_q(const Q* from, int lane,
                                       uint32_t (&steps)[Tile::kD / 16][2]) {
  using T = typename Tile::K::T;
  order_q<Tile>(from, lane, steps);
  if constexpr (!std::is_same_v<Q, T>) {
    TESSERA_UNROLL
    for (int i = 0; i < Tile::kD / 8; ++i) {
      uint32_t& word = steps[i / 2][i % 2];
      const float2 pair = tile::pair_to_floats<Q>(word);
      word = tile::pack_pair<T>(pair.x, pair.y);
    }
  }
}

// Offset of 16-byte chunk `chunk` of a row in a box.
template <class Tile>
__device__ __forceinline__ uint32_t place(int row, int chunk) {
  return chunk / Tile::kPanelChunks * Tile::kPanelSize +
         tile::swizzled(Tile::kSwizzle,
                        row * Tile::kPanelBytes + 16 * (chunk % Tile::kPanelChunks));
}
// Address of chunk 2 * group + upper of a lane's row; `lane_place` is place(row, upper). Within a
// panel the swizzle is an xor with a constant.
template <class Tile>
__device__ __forceinline__ uint32_t place_of_group(uint32_t half, uint32_t lane_place, int box,
                                                   int group) {
  const int in_panel = Tile::kPanelChunks > 1 ? 2 * group % Tile::kPanelChunks : 0;
  const int panel = 2 * group / Tile::kPanelChunks;
  return ((half + lane_place) ^ (16 * in_panel)) + panel * Tile::kPanelSize + box * Tile::kBoxBytes;
}

// Keys as floats. scores[box][t][i]: product of key lane / 4 + 8 * (i / 2) of a box and column
// i % 2.
template <class Tile>
__device__ __forceinline__ void multiply_keys(uint32_t half, int lane, const QueryOperands<Tile>& q,
                                              StepScores<Tile>& scores) {
  using K = typename Tile::K;
  using T = typename K::T;
  constexpr int kD = Tile::kD, kTiles = Tile::kTiles, kBits = K::kBits;
  constexpr int kSteps = 16 / kBits;  // steps of 16 elements per ldmatrix
  // Independent accumulators, if there are registers for two.
  constexpr int kChains = kD <= 128 ? 2 : 1;
  const uint32_t lane_place = place<Tile>(lane % 16, lane / 16);
  TESSERA_UNROLL
  for (int box = 0; box < 2; ++box) {
    float parts[kTiles][kChains][4] = {};
    TESSERA_UNROLL
    for (int group = 0; group < kD / 16 / kSteps; ++group) {
      uint32_t r[4];
      tile::ptx::ldmatrix(r, place_of_group<Tile>(half, lane_place, box, group));
      TESSERA_UNROLL
      for (int i = 0; i < kSteps; ++i) {
        Operand a;
        K::key_operand(r, i, a);
        const int step = group * kSteps + i;
        TESSERA_UNROLL
        for (int t = 0; t < kTiles; ++t) {
          tile::ptx::mma<T>(parts[t][step % kChains], a, q[t][step]);
        }
      }
    }
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      TESSERA_UNROLL
      for (int i = 0; i < 4; ++i) {
        scores[box][t][i] = parts[t][0][i] + (kChains > 1 ? parts[t][kChains - 1][i] : 0.0f);
      }
    }
  }
}

// If only half of the columns are queries, the lanes of the other half take the second box's
// scores.
template <class Tile>
using LaneScores = float[Tile::kBoxesOfLane][Tile::kTiles][4];
template <class Tile>
__device__ __forceinline__ void share_out(const StepScores<Tile>& products, int lane,
                                          LaneScores<Tile>& x) {
  TESSERA_UNROLL
  for (int t = 0; t < Tile::kTiles; ++t) {
    TESSERA_UNROLL
    for (int i = 0; i < 4; ++i) {
      x[0][t][i] = products[0][t][i];
      if constexpr (Tile::kIsNarrow) {
        const float other = __shfl_xor_sync(~0u, products[1][t][i], 2);
        if (lane % 4 >= 2) x[0][t][i] = other;
      } else {
        x[1][t][i] = products[1][t][i];
      }
    }
  }
}

// Integer keys with a scale per row: the queries become integers too, once per call, and the
// products of a step are sums of integers. docs/decisions/013-integer-keys.md

// A query is unit * (256 * high + low), with two signed bytes per element. The unit is a power of
// two such that the largest element takes 15 bits: elements of at least 1/128 of it keep all bits
// of a bf16, and no element is off by more than 2^-15 of it (2^-14 if 15 bits are just not enough).
// With four queries, the first half of a product's columns holds the high bytes and the other half
// the low ones.
struct IntegerQuery {
  float unit;
  float sum;  // of the elements, in units
};

// The high or the low bytes of four elements. 256 * high + low are the last bits of
// x * up + 1.5 * 2^23.
__device__ __forceinline__ uint32_t pack_bytes(const float (&x)[4], float up, bool is_high) {
  constexpr float kLastBits = 0x1.8p23f;
  const float base = is_high ? kLastBits + 128 : kLastBits;  // rounds high to the nearest 256
  const uint32_t which = is_high ? 0x51 : 0x40;
  uint32_t bits[4];
  TESSERA_UNROLL
  for (int i = 0; i < 4; ++i) bits[i] = __float_as_uint(fmaf(x[i], up, base));
  return __byte_perm(__byte_perm(bits[0], bits[1], which), __byte_perm(bits[2], bits[3], which),
                     0x5410);
}

// The bytes that meet a thread's codes. `words` holds its elements: 4 of every 16 for bytes, 8 of
// every 32 for nibbles, whose even and odd codes go into alternate steps.
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

// The largest magnitude of a query, over its four lanes. 16-bit floats without their sign are
// ordered like integers, and infinities and NaN come last.
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
  // Odd nibbles are worth 16 times even ones, so the sums of even ones are multiplied by 16. From
  // 255/128 of a power of two on, two signed bytes hold only 14 bits.
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

// Products of a box's keys with each part of the queries; for nibbles first those of even codes.
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

// Element i of a product, over even and odd codes.
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
  const bool has_high = lane % 4 < 2;  // narrow tiles: this lane's columns are high parts
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

// Keys with scales by column, and the newest 32 keys, which lie in a tail in 16 bits until their
// columns have scales.

// Products of two pairs of halves.
__device__ __forceinline__ uint32_t multiply_halves(uint32_t x, uint32_t y) {
  const __half2 product =
      __hmul2(*reinterpret_cast<const __half2*>(&x), *reinterpret_cast<const __half2*>(&y));
  return *reinterpret_cast<const uint32_t*>(&product);
}

// Scale and low of eight neighbouring columns, in the order of multiply_columns: pairs are 4 apart.
struct ColumnScales {
  uint32_t scale[4], low[4];

  __device__ __forceinline__ void load(uint32_t address) {
    const float4 front = tile::ptx::load_shared_v4(address);
    const float4 back = tile::ptx::load_shared_v4(address + 16);
    take(0, front.x, back.x);
    take(1, front.y, back.y);
    take(2, front.z, back.z);
    take(3, front.w, back.w);
  }

 private:
  __device__ __forceinline__ void take(int j, float column, float fourth_after) {
    const uint32_t x = __float_as_uint(column), y = __float_as_uint(fourth_after);
    scale[j] = __byte_perm(x, y, 0x5410);
    low[j] = __byte_perm(x, y, 0x7632);
    // Odd codes of a word are worth 16 times even ones.
    if (j % 2 != 0) scale[j] = multiply_halves(scale[j], 0x2c002c00u);
  }
};

// A score is the sum over columns of q * (code * scale + low). The scales are multiplied into the
// queries, once for all 32 keys; the lows are one more product, with the same key in every row.
template <class Tile>
__device__ __forceinline__ void multiply_columns(uint32_t half, uint32_t scales, int lane,
                                                 const QueryOperands<Tile>& q,
                                                 StepScores<Tile>& scores) {
  using K = typename Tile::K;
  constexpr int kTiles = Tile::kTiles;
  const uint32_t lane_place = place<Tile>(lane % 16, lane / 16);
  float parts[2][kTiles][4] = {}, lows[kTiles][4] = {};
  ColumnScales columns;
  TESSERA_UNROLL
  for (int group = 0; group < Tile::kD / 64; ++group) {
    uint32_t r[2][4];
    TESSERA_UNROLL
    for (int box = 0; box < 2; ++box) {
      tile::ptx::ldmatrix(r[box], place_of_group<Tile>(half, lane_place, box, group));
    }
    TESSERA_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int step = 4 * group + i, j = 2 * (i % 2);
      // A lane's eight columns cover two steps.
      if (j == 0) columns.load(scales + 4 * (16 * step + 8 * (lane % 4)));
      const Operand low{columns.low[j], columns.low[j], columns.low[j + 1], columns.low[j + 1]};
      TESSERA_UNROLL
      for (int t = 0; t < kTiles; ++t) {
        tile::ptx::mma<F16>(lows[t], low, q[t][step]);
        const uint32_t scaled[2] = {multiply_halves(q[t][step][0], columns.scale[j]),
                                    multiply_halves(q[t][step][1], columns.scale[j + 1])};
        TESSERA_UNROLL
        for (int box = 0; box < 2; ++box) {
          Operand a;
          K::key_operand(r[box], i, a);
          tile::ptx::mma<F16>(parts[box][t], a, scaled);
        }
      }
    }
  }
  TESSERA_UNROLL
  for (int box = 0; box < 2; ++box) {
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      TESSERA_UNROLL
      for (int i = 0; i < 4; ++i) {
        scores[box][t][i] = fmaf(parts[box][t][i], kSubnormalUnit, lows[t][i]);
      }
    }
  }
}

// 32 keys of type Q, in rows Tile::kTailPitch bytes apart. `queries[t]` is a lane's query.
template <class Q, class Tile>
__device__ __forceinline__ void multiply_tail(uint32_t tail, int lane,
                                              const Q* const (&queries)[Tile::kTiles],
                                              StepScores<Tile>& scores) {
  constexpr int kTiles = Tile::kTiles;
  TESSERA_UNROLL
  for (int box = 0; box < 2; ++box) {
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      TESSERA_UNROLL
      for (int i = 0; i < 4; ++i) scores[box][t][i] = 0;
    }
  }
  const uint32_t rows = tail + lane % 16 * Tile::kTailPitch + 16 * (lane / 16);
#pragma unroll 2
  for (int step = 0; step < Tile::kD / 16; ++step) {
    uint32_t q[kTiles][2];
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      TESSERA_UNROLL
      for (int reg = 0; reg < 2; ++reg) {
        const Q* from = queries[t] + 16 * step + 8 * reg + 2 * (lane % 4);
        q[t][reg] = *reinterpret_cast<const uint32_t*>(from);
      }
    }
    TESSERA_UNROLL
    for (int box = 0; box < 2; ++box) {
      uint32_t r[4];
      tile::ptx::ldmatrix(r, rows + box * kBoxKeys * Tile::kTailPitch + 32 * step);
      TESSERA_UNROLL
      for (int t = 0; t < kTiles; ++t) tile::ptx::mma<Q>(scores[box][t], r, q[t]);
    }
  }
}

}  // namespace tessera::kernels::decode_sm90
