// What the tiles of the matrix product read, and the functions compiled per instruction set.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "cpu/simd_dispatch.h"
#include "tessera/core/dtype.h"

namespace tessera::cpu {

// A segment of a_floats is padded with zeros to a multiple of this, the widest vector.
inline constexpr int64_t kGemmPad = 16;
// The same of a whole row where b is i4: the block of the widest vector, 8 elements for each lane.
inline constexpr int64_t kGemmI4Pad = 8 * kGemmPad;
// The largest zero point, of either sign, that the tiles of i4 take.
inline constexpr int32_t kGemmI4MostZero = 2047;
// Elements of k in a block of the VNNI tiles of i4, and the floats that a block of a row of a
// takes.
inline constexpr int64_t kGemmVnniBlock = 128;
inline constexpr int64_t kGemmVnniBlockFloats = 128;

// Plain data. k is cut into segments, one for each scale of a row of b; there is one segment, all
// of k, where b has no scale or one a row. Strides count elements.
struct GemmParams {
  const void* a;                // [m, k]
  const void* b;                // [n, k]
  const float* b_scale;         // [n / rows_per_scale, num_segments]; null: b holds values
  const float* b_zero;          // like b_scale: zero points; null: none. i4 alone has them here
  const uint8_t* b_zero_codes;  // the same as bytes of 0 to 15, for the VNNI tiles
  const float* b_table;         // [16], which codes of i4 are indices of; null: numbers
  const void* bias;             // [n], of the type of a; null: none
  void* out;                    // [m, n]
  float* a_floats;              // [m, num_segments, segment_stride]: a widened; it may be a itself

  int64_t m, n, k;
  int64_t a_stride, b_stride, out_stride;  // from one row to the next
  int64_t floats_stride;                   // the same, of a_floats
  int64_t rows_per_scale;                  // rows of b that share scales; FP8 alone has several
  int64_t segment;                         // elements of k under one scale
  int64_t num_segments;                    // 0 where k is 0
  int64_t segment_stride;                  // a multiple of kGemmPad, unless a is read in place
  DType a_type, b_type, out_type;
};

struct GemmRange {
  int64_t begin, end;
};

// widen_rows fills a_floats for some rows of a; multiply computes a rectangle of out from a_floats
// and b. Rectangles may be computed in any order and at once.
SimdBuilds<void(const GemmParams&, GemmRange rows)> gemm_widen_rows_builds();
SimdBuilds<void(const GemmParams&, GemmRange rows, GemmRange cols)> gemm_multiply_builds();
// The same for i4 in rows; a_floats is [m, k padded to kGemmI4Pad], in an order of their own.
SimdBuilds<void(const GemmParams&, GemmRange rows)> gemm_i4_widen_rows_builds();
SimdBuilds<void(const GemmParams&, GemmRange rows, GemmRange cols)> gemm_i4_multiply_builds();

// The same by VNNI, for a of f16 or bf16, finite, and zero points of 0 to 15; null where the CPU
// has no AVX-512 VNNI. a_floats is [m, blocks of k, kGemmVnniBlockFloats].
struct GemmVnni {
  void (*widen_rows)(const GemmParams&, GemmRange rows) = nullptr;
  void (*multiply)(const GemmParams&, GemmRange rows, GemmRange cols) = nullptr;
};
GemmVnni gemm_i4_vnni();
// The same with the same bits, faster for many rows of a: codes are unpacked once for all of them.
GemmVnni gemm_i4_panel();

}  // namespace tessera::cpu
