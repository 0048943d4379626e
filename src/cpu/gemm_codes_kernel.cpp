// Sums of products of codes, for the product of two quantised operands.
// SPDX-License-Identifier: MIT
//
//   sums[r] = sum over i of a[r, i] * b[i]           exact: 32-bit integers
//
// b is read as it lies, a byte each, and widened in registers; rows of a have been widened to 16
// bits, and up to 4 of them share what is read of b. Integers have no order, so neither the
// instruction set nor the tile changes a bit.
#include "cpu/gemm_codes_kernel.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/gemm_codes_kernel.cpp"
#include "hwy/foreach_target.h"  // must precede highway.h
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using WordTag = hn::ScalableTag<int16_t>;
using SumTag = hn::ScalableTag<int32_t>;
using Words = hn::Vec<WordTag>;
using Sums = hn::Vec<SumTag>;
constexpr int64_t kLanes = hn::MaxLanes(WordTag());

template <int kRows>
HWY_INLINE void add_rows(const CodeRows& p, int64_t row) {
  const hn::Rebind<int8_t, WordTag> bytes;
  const int16_t* a[kRows];
  Sums low[kRows], high[kRows];
  for (int r = 0; r < kRows; ++r) {
    a[r] = p.a + (row + r) * p.a_stride;
    low[r] = high[r] = hn::Zero(SumTag());
  }
  int64_t i = 0;
  for (; i + kLanes <= p.count; i += kLanes) {
    const Words b = hn::PromoteTo(WordTag(), hn::LoadU(bytes, p.b + i));
    for (int r = 0; r < kRows; ++r) {
      low[r] = hn::ReorderWidenMulAccumulate(SumTag(), hn::LoadU(WordTag(), a[r] + i), b, low[r],
                                             high[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    int32_t sum = hn::GetLane(hn::SumOfLanes(SumTag(), hn::Add(low[r], high[r])));
    for (int64_t j = i; j < p.count; ++j) sum += int32_t{a[r][j]} * p.b[j];
    p.sums[row + r] = sum;
  }
}

}  // namespace

void sum_code_rows(const CodeRows& p) {
  int64_t row = 0;
  for (; row + 4 <= p.num_rows; row += 4) add_rows<4>(p, row);
  for (; row < p.num_rows; ++row) add_rows<1>(p, row);
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

SimdBuilds<void(const CodeRows&)> sum_code_rows_builds() {
  return {HWY_STATIC_DISPATCH(sum_code_rows), HWY_CHOOSE_AVX2(sum_code_rows),
          HWY_CHOOSE_AVX3(sum_code_rows)};
}

}  // namespace tessera::cpu
#endif
