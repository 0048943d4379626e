// SiLU of a row of floats, compiled for each instruction set.
// SPDX-License-Identifier: MIT
#include <cstring>

#include "cpu/activation_row.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/silu_row.cpp"
#include "hwy/foreach_target.h"  // must precede highway.h
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::ScalableTag<float> kFloats;
using Vector = hn::Vec<decltype(kFloats)>;

// The exponential of a negative number cannot overflow, so small results keep their relative
// accuracy.
HWY_INLINE Vector silu(Vector x) {
  const Vector t = hn::Exp(kFloats, hn::Neg(hn::Abs(x)));
  const Vector top = hn::IfThenElse(hn::Lt(x, hn::Zero(kFloats)), hn::Mul(x, t), x);
  return hn::Div(top, hn::Add(hn::Set(kFloats, 1.0f), t));
}

}  // namespace

void silu_row(float* values, int64_t count) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(kFloats));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(silu(hn::LoadU(kFloats, values + i)), kFloats, values + i);
  }
  if (i == count) return;
  float rest[hn::MaxLanes(kFloats)] = {};
  const size_t num_bytes = static_cast<size_t>(count - i) * sizeof(float);
  std::memcpy(rest, values + i, num_bytes);
  hn::StoreU(silu(hn::LoadU(kFloats, rest)), kFloats, rest);
  std::memcpy(values + i, rest, num_bytes);
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

SimdBuilds<void(float*, int64_t)> silu_row_builds() {
  return {HWY_STATIC_DISPATCH(silu_row), HWY_CHOOSE_AVX2(silu_row), HWY_CHOOSE_AVX3(silu_row)};
}

}  // namespace tessera::cpu
#endif  // HWY_ONCE
