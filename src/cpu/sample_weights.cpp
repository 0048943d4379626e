// Weights of a row of logits, compiled for each instruction set.
// SPDX-License-Identifier: MIT
#include "cpu/sample_weights.h"

#include "core/sampling_math.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/sample_weights.cpp"
#include "hwy/foreach_target.h"  // must precede highway.h
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

void weigh(const SampleWeights& p, int64_t i) {
  p.y[i] = (p.logits[i] - p.largest) * p.log2_scale;
  p.weights[i] = sampling::weight_of(p.y[i], SampleMath());
}

#if HWY_NATIVE_FMA
constexpr hn::ScalableTag<float> kFloats;
constexpr hn::RebindToSigned<decltype(kFloats)> kInts;

// The mantissas and shifts of sampling::weight_of for a vector.
HWY_INLINE void split_weights(hn::Vec<decltype(kFloats)> y, int32_t* mantissas, int32_t* shifts) {
  const auto at = [](float value) { return hn::Set(kFloats, value); };
  const auto least = at(-60.0f);
  const auto held = hn::IfThenElse(hn::Gt(y, least), y, least);  // NaN is not greater
  const auto whole = hn::Floor(held);
  const auto f = hn::Sub(held, whole);
  auto p = at(0x1.c5464p-13f);
  p = hn::MulAdd(p, f, at(0x1.46d326p-10f));
  p = hn::MulAdd(p, f, at(0x1.3d0c4p-7f));
  p = hn::MulAdd(p, f, at(0x1.c688fp-5f));
  p = hn::MulAdd(p, f, at(0x1.ebfd5ap-3f));
  p = hn::MulAdd(p, f, at(0x1.62e42cp-1f));
  p = hn::MulAdd(p, f, at(1.0f));
  const auto base = hn::Set(kInts, static_cast<int32_t>(sampling::kMantissaBase));
  hn::StoreU(hn::Sub(hn::BitCast(kInts, p), base), kInts, mantissas);
  hn::StoreU(hn::ConvertTo(kInts, hn::Neg(whole)), kInts, shifts);
}
#endif

}  // namespace

void sample_weights(const SampleWeights& p) {
  int64_t i = 0;
#if HWY_NATIVE_FMA
  constexpr size_t kMost = hn::MaxLanes(kFloats);
  const auto lanes = static_cast<int64_t>(hn::Lanes(kFloats));
  int32_t mantissas[kMost], shifts[kMost];
  for (; i + lanes <= p.count; i += lanes) {
    const auto x = hn::LoadU(kFloats, p.logits + i);
    const auto y = hn::Mul(hn::Sub(x, hn::Set(kFloats, p.largest)), hn::Set(kFloats, p.log2_scale));
    hn::StoreU(y, kFloats, p.y + i);
    split_weights(y, mantissas, shifts);
    for (int64_t lane = 0; lane < lanes; ++lane) {
      p.weights[i + lane] =
          static_cast<uint64_t>(mantissas[lane]) << (sampling::kWeightBits - 23) >> shifts[lane];
    }
  }
#endif
  for (; i < p.count; ++i) weigh(p, i);
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

SimdBuilds<void(const SampleWeights&)> sample_weights_builds() {
  return {HWY_STATIC_DISPATCH(sample_weights), HWY_CHOOSE_AVX2(sample_weights),
          HWY_CHOOSE_AVX3(sample_weights)};
}

}  // namespace tessera::cpu
#endif  // HWY_ONCE
