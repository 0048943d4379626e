// The tiles of the matrix product with a 4-bit weight, in dot form, codes read as they lie.
// SPDX-License-Identifier: MIT
//
//   out[i, j] = sum over groups of (sum over k of a[i, k] * (code[j, k] - zero)) * scale, plus bias
//
// or with table[code[j, k]] in the place of code - zero.
//
// Work      A tile is up to 4 rows of a against 4 rows of b. A block of k is 8 codes for each lane:
//           a lane holds a 32-bit word of b, and step s multiplies nibble s of every lane. With 16
//           lanes a nibble is the index of a table that holds the 16 codes. With fewer it becomes a
//           number where it lies: under the exponent of 2^23 it is 2^23 + code * 16^(s % 4), and
//           one subtraction leaves (code - zero) * 16^(s % 4), exactly. Rows of a are stored in the
//           order of the steps, [block][step][lane], in the second case times 16^-(s % 4). A
//           weight's own table fills 1, 2 or 4 vectors, and is looked up with any number of lanes.
// Output    A lane adds the 8 products of its word from zero, by one MulAdd each, and adds that sum
//           times the scale; at the end the lanes are folded by one tree. Neither the tile nor the
//           place in it enters, so a row of out has the same bits for every m.
// Cost      With one row of a: a shift, a lookup and a MulAdd for 16 codes with AVX-512, which a
//           Zen 4 core does in 1.7 cycles; and, or, subtraction and MulAdd for fewer lanes. A table
//           costs the same with 16 lanes, and two lookups and a choice with 8. Codes are read once,
//           from 4 rows at a time.
// Needs     a_floats filled by widen_rows_i4; segments of a multiple of 8, or one segment; zero
//           points within kGemmI4MostZero.
#include <algorithm>

#include "cpu/gemm_kernel.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/gemm_i4_kernel.cpp"
#include "hwy/foreach_target.h"  // must precede highway.h
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "cpu/gemm_tile.h"  // of this instruction set: after both
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

using WordTag = hn::RebindToUnsigned<FloatTag>;
using Words = hn::Vec<WordTag>;
using IntTag = hn::RebindToSigned<FloatTag>;
using Ints = hn::Vec<IntTag>;

constexpr int64_t kBlock = 8 * kLanes;  // elements of k in a block
constexpr int kMaxTileRows = HWY_MAX_BYTES == 64 ? 4 : 2;
constexpr int kPlaces = 4;               // nibbles of half a word
constexpr float kMagic = 0x1p23f;        // its lowest bit counts 1
constexpr uint32_t kFlip = 0x88888888u;  // two's complement to codes from 0, whose zero point is 8
static_assert(kGemmI4Pad % kBlock == 0);
static_assert((kGemmI4MostZero << 4 * (kPlaces - 1)) < 1 << 23);

// What codes are: numbers, numbers from which a zero point is taken, or indices of a table.
enum class Codes : uint8_t { numbers, less_zeros, of_table };

template <Codes kCodes>
constexpr bool kLooksUp = kLanes == 16 || kCodes == Codes::of_table;  // 16 lanes hold all codes

// What a nibble's number is multiplied by.
constexpr float place_value(int step) { return static_cast<float>(1 << 4 * (step % kPlaces)); }

// Floats at every eighth place, times `factor`.
HWY_INLINE void store_step(const float* from, float factor, float* to) {
  const IntTag ints;
  const auto places = hn::ShiftLeft<3>(hn::Iota(ints, 0));
  const Floats values = hn::GatherIndex(FloatTag(), from, places);
  hn::StoreU(hn::Mul(values, hn::Set(FloatTag(), factor)), FloatTag(), to);
}

template <class T>
void widen_as(const GemmParams& p, GemmRange rows) {
  const bool looks_up = kLooksUp<Codes::numbers> || p.b_table != nullptr;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const T* from = static_cast<const T*>(p.a) + row * p.a_stride;
    float* to = p.a_floats + row * p.floats_stride;
    for (int64_t first = 0; first < p.floats_stride; first += kBlock) {
      alignas(64) float floats[kBlock] = {};
      int64_t i = 0;
      const int64_t count = std::min(kBlock, p.k - first);
      for (; i + kLanes <= count; i += kLanes) {
        hn::Store(load(from + first + i), FloatTag(), floats + i);
      }
      if (i < count) hn::Store(load_tail(from + first + i, count - i), FloatTag(), floats + i);
      for (int step = 0; step < 8; ++step) {
        const float factor = looks_up ? 1.0f : 1.0f / place_value(step);
        store_step(floats + step, factor, to + first + step * kLanes);
      }
    }
  }
}

// Which of a row's scales, or zero points, the lanes of a block have. What the segments ask for is
// decided once: this is read for every row of b and every block.
struct LaneGroups {
  int64_t segment, num_segments;
  bool has_one;                  // for all lanes of a block
  bool has_whole;                // segments in a block
  Ints lane_group;               // of a lane, within a block of whole segments
  int64_t first = 0, group = 0;  // of the current block

  explicit HWY_INLINE LaneGroups(const GemmParams& p)
      : segment(p.segment),
        num_segments(p.num_segments),
        has_one(p.num_segments == 1 || p.segment % kBlock == 0),
        // Four lanes are as fast one by one, and without masks a load would read beyond the values.
        has_whole(kLanes > 4 && kBlock % p.segment == 0) {
    alignas(64) int32_t groups[kLanes];
    for (int64_t l = 0; l < kLanes; ++l) groups[l] = static_cast<int32_t>(8 * l / p.segment);
    lane_group = hn::Load(IntTag(), groups);
  }

  HWY_INLINE void move_to(int64_t block) {
    first = block;
    group = num_segments == 1 ? 0 : block / segment;
  }

  // The values of the lanes, of those of a row of b.
  HWY_INLINE Floats at(const float* values) const {
    return has_one ? hn::Set(FloatTag(), values[group]) : several_at(values);
  }

 private:
  // Out of line, so that the loops around it stay small enough to be unrolled.
  HWY_NOINLINE Floats several_at(const float* values) const {
    if (has_whole) {
      const auto count = static_cast<size_t>(std::min(kBlock / segment, num_segments - group));
      const Floats some = hn::MaskedLoad(hn::FirstN(FloatTag(), count), FloatTag(), values + group);
      return hn::TableLookupLanes(some, hn::IndicesFromVec(FloatTag(), lane_group));
    }
    alignas(64) float lanes[kLanes];
    for (int64_t l = 0; l < kLanes; ++l) {
      lanes[l] = values[std::min((first + 8 * l) / segment, num_segments - 1)];
    }
    return hn::Load(FloatTag(), lanes);
  }
};

// The words of a block; codes beyond k are zeros, and a's are too.
template <bool kIsWhole>
HWY_INLINE Words load_words(const uint8_t* row, int64_t first, int64_t k) {
  const uint8_t* from = row + first / 2;
  if constexpr (kIsWhole) return hn::LoadU(WordTag(), reinterpret_cast<const uint32_t*>(from));
  alignas(64) uint8_t padded[kBlock / 2] = {};
  std::copy_n(from, (k - first + 1) / 2, padded);
  return hn::Load(WordTag(), reinterpret_cast<const uint32_t*>(padded));
}

// The numbers of the 16 codes, in as many vectors as hold them.
struct Table {
  static constexpr int kParts = kLanes < 16 ? 16 / kLanes : 1;
  Floats parts[kParts];

  template <Codes kCodes>
  static HWY_INLINE Table of(const GemmParams& p) {
    alignas(64) float values[16];
    for (int i = 0; i < 16; ++i) {
      values[i] = kCodes == Codes::of_table
                      ? p.b_table[i]
                      : static_cast<float>(kCodes == Codes::numbers && i > 7 ? i - 16 : i);
    }
    Table table;
    for (int i = 0; i < kParts; ++i) table.parts[i] = hn::Load(FloatTag(), values + i * kLanes);
    return table;
  }

  // By the lowest four bits of every lane.
  HWY_INLINE Floats at(Words codes) const {
    if constexpr (kParts == 1) {  // a lookup reads no other bits
      return look_up(0, codes);
    } else {
      const Words within = hn::And(codes, hn::Set(WordTag(), uint32_t{kLanes - 1}));
      const Floats low = choose<kLanes>(codes, look_up(0, within), look_up(1, within));
      if constexpr (kParts == 2) return low;
      const Floats high =
          choose<kLanes>(codes, look_up(kParts - 2, within), look_up(kParts - 1, within));
      return choose<8>(codes, low, high);
    }
  }

 private:
  HWY_INLINE Floats look_up(int part, Words indices) const {
    return hn::TableLookupLanes(parts[part],
                                hn::IndicesFromVec(FloatTag(), hn::BitCast(IntTag(), indices)));
  }
  template <int64_t kBit>
  static HWY_INLINE Floats choose(Words codes, Floats clear, Floats set) {
    const auto is_set = hn::TestBit(codes, hn::Set(WordTag(), uint32_t{kBit}));
    return hn::IfThenElse(hn::RebindMask(FloatTag(), is_set), set, clear);
  }
};

// The number of nibble kStep of every word: (code - zero) * place_value, or the table's value.
template <int kStep, Codes kCodes>
HWY_INLINE Floats codes_of(Words words, const Table& table, Floats zero) {
  if constexpr (kLooksUp<kCodes>) {
    const Floats codes = table.at(hn::ShiftRight<4 * kStep>(words));
    return kCodes == Codes::less_zeros ? hn::Sub(codes, zero) : codes;
  } else {
    constexpr int kPlace = kStep % kPlaces;
    const auto half = hn::ShiftRight<4 * (kStep - kPlace)>(words);
    const auto magic = hn::BitCast(WordTag(), hn::Set(FloatTag(), kMagic));
    const auto mask = hn::Set(WordTag(), 15u << 4 * kPlace);
    const Floats base =
        hn::MulAdd(zero, hn::Set(FloatTag(), place_value(kStep)), hn::Set(FloatTag(), kMagic));
    return hn::Sub(hn::BitCast(FloatTag(), hn::OrAnd(magic, half, mask)), base);
  }
}

// Rows of b that are multiplied at once: with those of a, four sums that do not wait for each
// other.
template <int kRows>
constexpr int kTogether = kRows >= kCols ? 1 : kCols / kRows;

// One step of some rows of b for the rows of a.
template <int kStep, Codes kCodes, int kRows, int kNum>
HWY_INLINE void add_step(Floats (&part)[kRows][kNum], const float* const (&a)[kRows], int64_t first,
                         const Words (&words)[kNum], const Table& table,
                         const Floats (&zeros)[kNum]) {
  Floats codes[kNum];
  for (int c = 0; c < kNum; ++c) codes[c] = codes_of<kStep, kCodes>(words[c], table, zeros[c]);
  for (int r = 0; r < kRows; ++r) {
    const Floats x = hn::LoadU(FloatTag(), a[r] + first + kStep * kLanes);
    for (int c = 0; c < kNum; ++c) part[r][c] = hn::MulAdd(x, codes[c], part[r][c]);
  }
}

// The products of a block: 8 steps from zero.
template <Codes kCodes, int kRows, int kNum>
HWY_INLINE void multiply_block(Floats (&part)[kRows][kNum], const float* const (&a)[kRows],
                               int64_t first, const Words (&words)[kNum], const Table& table,
                               const Floats (&zeros)[kNum]) {
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kNum; ++c) part[r][c] = hn::Zero(FloatTag());
  }
  add_step<0, kCodes>(part, a, first, words, table, zeros);
  add_step<1, kCodes>(part, a, first, words, table, zeros);
  add_step<2, kCodes>(part, a, first, words, table, zeros);
  add_step<3, kCodes>(part, a, first, words, table, zeros);
  add_step<4, kCodes>(part, a, first, words, table, zeros);
  add_step<5, kCodes>(part, a, first, words, table, zeros);
  add_step<6, kCodes>(part, a, first, words, table, zeros);
  add_step<7, kCodes>(part, a, first, words, table, zeros);
}

// Rows of b, their scales and their zero points, at a column of out.
struct WeightRows {
  const uint8_t* codes[kCols];
  const float* scale[kCols];
  const float* zero[kCols];

  HWY_INLINE WeightRows(const GemmParams& p, int64_t col, int64_t num_cols) {
    for (int64_t c = 0; c < kCols; ++c) {
      const int64_t row = col + std::min(c, num_cols - 1);  // beyond the edge the last repeats
      codes[c] = static_cast<const uint8_t*>(p.b) + row * p.b_stride / 2;
      scale[c] = p.b_scale + row * p.num_segments;
      zero[c] = p.b_zero == nullptr ? nullptr : p.b_zero + row * p.num_segments;
    }
  }
};

// Adds the products of a block to the sums of all its columns.
template <int kRows, Codes kCodes, bool kIsWhole>
HWY_INLINE void add_block(Sums<kRows>& sums, const GemmParams& p, const float* const (&a)[kRows],
                          const WeightRows& b, int64_t first, const LaneGroups& groups,
                          const Table& table) {
  constexpr int kNum = kTogether<kRows>;
  for (int col = 0; col < kCols; col += kNum) {
    Words words[kNum];
    Floats zeros[kNum];
    for (int c = 0; c < kNum; ++c) {
      words[c] = load_words<kIsWhole>(b.codes[col + c], first, p.k);
      // The same place of the tile after next: rows are too short for the hardware to predict.
      if (kIsWhole) hwy::Prefetch(b.codes[col + c] + first / 2 + 2 * kCols * p.b_stride / 2);
      constexpr bool kHasZeros = kCodes == Codes::less_zeros;
      zeros[c] = kHasZeros ? groups.at(b.zero[col + c]) : hn::Set(FloatTag(), 8.0f);
      if (!kHasZeros && !kLooksUp<kCodes>) words[c] = hn::Xor(words[c], hn::Set(WordTag(), kFlip));
    }
    Floats part[kRows][kNum];
    multiply_block<kCodes>(part, a, first, words, table, zeros);
    for (int c = 0; c < kNum; ++c) {
      const Floats scale = groups.at(b.scale[col + c]);
      for (int r = 0; r < kRows; ++r) {
        sums[r][col + c] = hn::MulAdd(part[r][c], scale, sums[r][col + c]);
      }
    }
  }
}

template <int kRows, Codes kCodes>
void multiply_rows(const GemmParams& p, int64_t row, int64_t num_rows, GemmRange cols) {
  const float* a[kRows];
  for (int64_t r = 0; r < kRows; ++r) {
    a[r] = p.a_floats + (row + std::min(r, num_rows - 1)) * p.floats_stride;
  }
  LaneGroups groups(p);
  const Table table = Table::of<kCodes>(p);
  for (int64_t col = cols.begin; col < cols.end; col += kCols) {
    const int64_t num_cols = std::min<int64_t>(kCols, cols.end - col);
    const WeightRows b(p, col, num_cols);
    Sums<kRows> sums;
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kCols; ++c) sums[r][c] = hn::Zero(FloatTag());
    }
    int64_t first = 0;
    for (; first + kBlock <= p.k; first += kBlock) {
      groups.move_to(first);
      add_block<kRows, kCodes, true>(sums, p, a, b, first, groups, table);
    }
    if (first < p.k) {
      groups.move_to(first);
      add_block<kRows, kCodes, false>(sums, p, a, b, first, groups, table);
    }
    const Quad bias = load_bias(p, col, num_cols);
    alignas(64) float finished[kRows * kCols];
    for (int r = 0; r < kRows; ++r) {
      hn::Store(hn::Add(fold_four(sums[r]), bias), QuadTag(), finished + r * kCols);
    }
    store(finished, p, row, num_rows, col, num_cols);
  }
}

template <Codes kCodes>
void multiply_as(const GemmParams& p, GemmRange rows, GemmRange cols) {
  for (int64_t row = rows.begin; row < rows.end; row += kMaxTileRows) {
    const int64_t left = std::min<int64_t>(kMaxTileRows, rows.end - row);
    if (left == 1) {
      multiply_rows<1, kCodes>(p, row, left, cols);
    } else if (left == 2) {
      multiply_rows<2, kCodes>(p, row, left, cols);
    } else {
      multiply_rows<kMaxTileRows, kCodes>(p, row, left, cols);
    }
  }
}

}  // namespace

void widen_rows_i4(const GemmParams& p, GemmRange rows) {
  switch (p.a_type) {
    case DType::bf16: return widen_as<Bf16>(p, rows);
    case DType::f16: return widen_as<F16>(p, rows);
    default: return widen_as<float>(p, rows);
  }
}

void multiply_i4(const GemmParams& p, GemmRange rows, GemmRange cols) {
  if (p.b_table != nullptr) return multiply_as<Codes::of_table>(p, rows, cols);
  if (p.b_zero != nullptr) return multiply_as<Codes::less_zeros>(p, rows, cols);
  multiply_as<Codes::numbers>(p, rows, cols);
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

SimdBuilds<void(const GemmParams&, GemmRange)> gemm_i4_widen_rows_builds() {
  return {HWY_STATIC_DISPATCH(widen_rows_i4), HWY_CHOOSE_AVX2(widen_rows_i4),
          HWY_CHOOSE_AVX3(widen_rows_i4)};
}

SimdBuilds<void(const GemmParams&, GemmRange, GemmRange)> gemm_i4_multiply_builds() {
  return {HWY_STATIC_DISPATCH(multiply_i4), HWY_CHOOSE_AVX2(multiply_i4),
          HWY_CHOOSE_AVX3(multiply_i4)};
}

}  // namespace tessera::cpu
#endif
