// The matrix product of many rows of 16-bit values with a 4-bit weight by AVX-512 VNNI.
// SPDX-License-Identifier: MIT
//
// Work      The sums of gemm_i4_vnni.cpp, arranged for many rows of a. Codes are unpacked once for
//           all rows of a task, into panels of 4 rows of b: signed bytes, code - zero, so that zero
//           points cost nothing more. dpbusd wants the other side unsigned, so an element of a is
//           x + 2^23 in three bytes, and a lane's sum starts at what undoes it, -2^23 times the sum
//           of the lane's bytes of b. A tile is 4 rows of a against a panel.
// Output    A lane's integer is the one of gemm_i4_vnni.cpp, and so are the steps behind it: a row
//           of out has the same bits there and here.
// Cost      6 VNNI products, 2 shifts, a conversion, a product and a multiply-add for 128 codes and
//           a row of a; loads are shared by the 4 rows of b or the 4 of a.
// Needs     What gemm_i4_vnni.cpp needs.
#include <algorithm>

#include "cpu/gemm_kernel.h"

#if defined(__x86_64__)
#include "cpu/gemm_vnni_tile.h"
#include "cpu/scratch.h"

#define TESSERA_VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define TESSERA_INLINE inline __attribute__((always_inline))

namespace tessera::cpu {
namespace {

constexpr int kTileRows = 4;
constexpr int kPlanes = 3;
// Panels that are made at once: they stay in the second-level cache while rows of a stream by.
constexpr int64_t kPanelBytes = 256 * 1024;

// One block of a row of a. plane[0] has the upper bytes.
struct alignas(64) RowBlock {
  uint8_t plane[kPlanes][2][64];  // of even elements, then of odd ones
  float unit[kLanes];             // what 1 stands for
  uint8_t unused[64];
};
static_assert(sizeof(RowBlock) == kGemmVnniBlockFloats * sizeof(float));

// One block of a row of b.
struct alignas(64) PanelBlock {
  int8_t codes[2][64];    // less their zero points: even elements, then odd ones
  int32_t start[kLanes];  // -128 times their sum: 2^23 times it after two shifts by 8
  float scale[kLanes];
};

thread_local Scratch panel_scratch;

TESSERA_VNNI void make_block(const float* floats, RowBlock& block) {
  LaneIntegers x;
  make_integers(floats, x);
  const __m512i byte = _mm512_set1_epi32(255), offset = _mm512_set1_epi32(1 << 23);
  __m512i planes[kPlanes][2] = {};
  for (int s = 0; s < 8; ++s) {
    const __m512i value = _mm512_add_epi32(x.values[s], offset);
    const __m128i to = _mm_cvtsi32_si128(8 * (s / 2));
    for (int i = 0; i < kPlanes; ++i) {
      const __m128i from = _mm_cvtsi32_si128(8 * (kPlanes - 1 - i));
      const __m512i part = _mm512_and_si512(_mm512_srl_epi32(value, from), byte);
      planes[i][s % 2] = _mm512_or_si512(planes[i][s % 2], _mm512_sll_epi32(part, to));
    }
  }
  for (int i = 0; i < kPlanes; ++i) {
    for (int odd = 0; odd < 2; ++odd) _mm512_store_si512(block.plane[i][odd], planes[i][odd]);
  }
  _mm512_store_ps(block.unit, x.unit);
}

// Codes beyond k may have any value: the elements of a there are zeros, and `start` undoes their
// offset.
template <class Groups>
TESSERA_VNNI TESSERA_INLINE void fill_block(const WeightRows& b, int64_t col, int64_t block,
                                            __mmask64 valid, const Groups& groups, PanelBlock& to) {
  const __m512i nibble = _mm512_set1_epi8(15), flip = _mm512_set1_epi8(static_cast<char>(0x88));
  const uint8_t* from = b.codes + col * b.stride + block * (kBlock / 2);
  __m512i words = _mm512_maskz_loadu_epi8(valid, from), zero = _mm512_set1_epi8(8);
  if (b.zero == nullptr) {
    words = _mm512_xor_si512(words, flip);  // two's complement to codes from 0, less 8
  } else {
    zero =
        _mm512_mullo_epi32(groups.at(b.zero + col * b.num_groups), _mm512_set1_epi32(0x01010101));
  }
  const __m512i even = _mm512_sub_epi8(_mm512_and_si512(words, nibble), zero);
  const __m512i odd = _mm512_sub_epi8(_mm512_and_si512(_mm512_srli_epi16(words, 4), nibble), zero);
  const __m512i ones = _mm512_set1_epi8(1);
  __m512i sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, even);
  sum = _mm512_dpbusd_epi32(sum, ones, odd);
  _mm512_store_si512(to.codes[0], even);
  _mm512_store_si512(to.codes[1], odd);
  _mm512_store_si512(to.start, _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(sum, 7)));
  _mm512_store_ps(to.scale, groups.at(b.scale + col * b.num_groups));
}

// One of each row of a panel; beyond num_cols the last repeats.
template <class Groups>
TESSERA_VNNI TESSERA_INLINE void fill_blocks(const WeightRows& b, int64_t num_cols, int64_t block,
                                             __mmask64 valid, const Groups& groups,
                                             PanelBlock* to) {
  for (int64_t c = 0; c < kCols; ++c) {
    fill_block(b, std::min(c, num_cols - 1), block, valid, groups, to[c]);
  }
}

// The panel of rows [col, col + num_cols) of b, block by block.
TESSERA_VNNI void fill_panel(const GemmParams& p, int64_t col, int64_t num_cols, PanelBlock* to) {
  const WeightRows b(p, col);
  const bool has_one = p.num_segments == 1 || p.segment % kBlock == 0;
  const int64_t num_blocks = (p.k + kBlock - 1) / kBlock;
  for (int64_t block = 0; block < num_blocks; ++block, to += kCols) {
    const int64_t bytes = std::min(kBlock / 2, (p.k - block * kBlock + 1) / 2);
    const __mmask64 valid = bytes == 64 ? ~__mmask64{0} : (__mmask64{1} << bytes) - 1;
    if (has_one) {
      const OneGroup group{p.num_segments == 1 ? 0 : block * kBlock / p.segment};
      fill_blocks(b, num_cols, block, valid, group, to);
    } else {
      const LaneGroups groups(p, block * kBlock);
      fill_blocks(b, num_cols, block, valid, groups, to);
    }
  }
}

// Adds one plane of a row of a to the lanes' integers.
TESSERA_VNNI TESSERA_INLINE void add_plane(__m512i (&parts)[kCols], const uint8_t (&plane)[2][64],
                                           const __m512i (&codes)[2][kCols]) {
  const __m512i even = _mm512_load_si512(plane[0]), odd = _mm512_load_si512(plane[1]);
  for (int c = 0; c < kCols; ++c) parts[c] = _mm512_dpbusd_epi32(parts[c], even, codes[0][c]);
  for (int c = 0; c < kCols; ++c) parts[c] = _mm512_dpbusd_epi32(parts[c], odd, codes[1][c]);
}

// Adds one block of rows of a, from this one on, against all of a panel. Recursion, not a loop, so
// that the sums stay in registers.
template <int kRow, int kRows>
TESSERA_VNNI TESSERA_INLINE void add_rows(__m512 (&sums)[kRows][kCols], const RowBlock* x,
                                          int64_t stride, const PanelBlock* panel,
                                          const __m512i (&codes)[2][kCols]) {
  __m512i parts[kCols];
  for (int c = 0; c < kCols; ++c) parts[c] = _mm512_load_si512(panel[c].start);
  add_plane(parts, x->plane[0], codes);
  for (__m512i& part : parts) part = _mm512_slli_epi32(part, 8);
  add_plane(parts, x->plane[1], codes);
  for (__m512i& part : parts) part = _mm512_slli_epi32(part, 8);
  add_plane(parts, x->plane[2], codes);
  const __m512 unit = _mm512_load_ps(x->unit);
  for (int c = 0; c < kCols; ++c) {
    const __m512 factor = _mm512_mul_ps(unit, _mm512_load_ps(panel[c].scale));
    sums[kRow][c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(parts[c]), factor, sums[kRow][c]);
  }
  if constexpr (kRow + 1 < kRows) add_rows<kRow + 1>(sums, x + stride, stride, panel, codes);
}

// Some rows of a against a panel, over all of k: a quarter of the result for each row.
template <int kRows>
TESSERA_VNNI TESSERA_INLINE __m512 multiply_panel(const GemmParams& p, int64_t row,
                                                  const PanelBlock* panel) {
  const int64_t stride = p.floats_stride / kGemmVnniBlockFloats;
  const int64_t num_blocks = (p.k + kBlock - 1) / kBlock;
  const auto* a = reinterpret_cast<const RowBlock*>(p.a_floats + row * p.floats_stride);
  __m512 sums[kRows][kCols];
  for (auto& of_row : sums) {
    for (__m512& sum : of_row) sum = _mm512_setzero_ps();
  }
  for (int64_t block = 0; block < num_blocks; ++block, ++a, panel += kCols) {
    __m512i codes[2][kCols];
    for (int c = 0; c < kCols; ++c) {
      codes[0][c] = _mm512_load_si512(panel[c].codes[0]);
      codes[1][c] = _mm512_load_si512(panel[c].codes[1]);
    }
    add_rows<0>(sums, a, stride, panel, codes);
  }
  __m128 rows[kTileRows];
  for (int r = 0; r < kTileRows; ++r) {
    const auto& v = sums[std::min(r, kRows - 1)];
    rows[r] = fold_four(v[0], v[1], v[2], v[3]);
  }
  const __m256 low = _mm256_set_m128(rows[1], rows[0]), high = _mm256_set_m128(rows[3], rows[2]);
  return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

// from_float<Bf16> of 16 values.
TESSERA_VNNI TESSERA_INLINE void round_all(__m512 values, Bf16 (&rounded)[16]) {
  const __m512i bits = _mm512_castps_si512(values);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
  const __m512i upper =
      _mm512_mask_mov_epi32(_mm512_srli_epi32(up, 16), is_nan, _mm512_set1_epi32(0x7fff));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(rounded), _mm512_cvtepi32_epi16(upper));
}
TESSERA_VNNI TESSERA_INLINE void round_all(__m512 values, float (&rounded)[16]) {
  _mm512_storeu_ps(rounded, values);
}
TESSERA_VNNI TESSERA_INLINE void round_all(__m512 values, F16 (&rounded)[16]) {
  float floats[16];
  _mm512_storeu_ps(floats, values);
  for (int i = 0; i < 16; ++i) rounded[i] = from_float<F16>(floats[i]);
}

template <class T, int kRows>
TESSERA_VNNI TESSERA_INLINE void store_tile(__m512 products, const GemmParams& p, int64_t row,
                                            int64_t col, int64_t num_cols) {
  T rounded[kTileRows * kCols];
  round_all(products, rounded);
  T* out = static_cast<T*>(p.out) + row * p.out_stride + col;
  for (int64_t r = 0; r < kRows; ++r, out += p.out_stride) {
    if (num_cols == kCols) {  // a count the compiler knows is one move
      std::copy_n(rounded + r * kCols, kCols, out);
    } else {
      std::copy_n(rounded + r * kCols, num_cols, out);
    }
  }
}

template <int kRows>
TESSERA_VNNI void multiply_tile(const GemmParams& p, int64_t row, int64_t col, int64_t num_cols,
                                const PanelBlock* panel) {
  __m512 products = multiply_panel<kRows>(p, row, panel);
  if (p.bias != nullptr) {
    float bias[kCols] = {};
    for (int64_t c = 0; c < num_cols; ++c) bias[c] = bias_at(p, col + c);
    products = _mm512_add_ps(products, _mm512_broadcast_f32x4(_mm_loadu_ps(bias)));
  }
  switch (p.out_type) {
    case DType::bf16: return store_tile<Bf16, kRows>(products, p, row, col, num_cols);
    case DType::f16: return store_tile<F16, kRows>(products, p, row, col, num_cols);
    default: return store_tile<float, kRows>(products, p, row, col, num_cols);
  }
}

template <int kRows>
void multiply_rows(const GemmParams& p, int64_t row, GemmRange cols, const PanelBlock* panels) {
  const int64_t num_blocks = (p.k + kBlock - 1) / kBlock;
  for (int64_t col = cols.begin; col < cols.end; col += kCols, panels += num_blocks * kCols) {
    multiply_tile<kRows>(p, row, col, std::min<int64_t>(kCols, cols.end - col), panels);
  }
}

void widen_many_rows(const GemmParams& p, GemmRange rows) {
  return p.a_type == DType::bf16 ? widen_as<RowBlock, Bf16>(p, rows)
                                 : widen_as<RowBlock, F16>(p, rows);
}

void multiply_many_rows(const GemmParams& p, GemmRange rows, GemmRange cols) {
  const int64_t num_blocks = (p.k + kBlock - 1) / kBlock;
  const int64_t row_bytes = std::max<int64_t>(1, num_blocks) * int64_t{sizeof(PanelBlock)};
  const int64_t cols_at_once = std::max<int64_t>(1, kPanelBytes / row_bytes / kCols) * kCols;
  auto* panels = reinterpret_cast<PanelBlock*>(
      panel_scratch.take(cols_at_once * row_bytes / int64_t{sizeof(float)}));
  for (GemmRange part{cols.begin, 0}; part.begin < cols.end; part.begin = part.end) {
    part.end = std::min(cols.end, part.begin + cols_at_once);
    PanelBlock* to = panels;
    for (int64_t col = part.begin; col < part.end; col += kCols, to += num_blocks * kCols) {
      fill_panel(p, col, std::min<int64_t>(kCols, part.end - col), to);
    }
    int64_t row = rows.begin;
    for (; row + 4 <= rows.end; row += 4) multiply_rows<4>(p, row, part, panels);
    for (; row + 2 <= rows.end; row += 2) multiply_rows<2>(p, row, part, panels);
    for (; row < rows.end; ++row) multiply_rows<1>(p, row, part, panels);
  }
}

}  // namespace

GemmVnni gemm_i4_panel() {
  if (gemm_i4_vnni().multiply == nullptr) return {};
  return {&widen_many_rows, &multiply_many_rows};
}

}  // namespace tessera::cpu

#undef TESSERA_INLINE
#undef TESSERA_VNNI

#else

namespace tessera::cpu {

GemmVnni gemm_i4_panel() { return {}; }

}  // namespace tessera::cpu

#endif
