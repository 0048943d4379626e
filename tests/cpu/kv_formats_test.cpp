// KV caches in every format: values come back within half a quantisation step, a full group of keys
// by column does not depend on how its tokens were appended, and copies of pages include scales.
// SPDX-License-Identifier: MIT
#include "cpu/elementwise.h"
#include "tests/cpu/kv_case.h"

namespace tessera::testing {
namespace {

class CpuKvFormat : public ::testing::TestWithParam<KvCaseFormat> {
 protected:
  bool is_by_column() const { return GetParam().is_by_column; }
};

// The largest error of a value, given the smallest and largest of those that share its scale.
double bound(const KvCaseFormat& format, double value, double low, double high) {
  const double magnitude = std::max(std::fabs(low), std::fabs(high));
  switch (format.dtype) {
    case DType::f32: return 0.0;
    case DType::e4m3:
    case DType::e5m2:
      return std::fabs(value) * (format.dtype == DType::e4m3 ? 0.0626 : 0.126) + 0.02;
    // Half a step, plus the rounding of scale and low to f16.
    case DType::i8: return 0.5 * magnitude / 127 + magnitude * 0x1p-11 + 1e-6;
    case DType::u8: return 0.5 * (high - low) / 255 + 2 * magnitude * 0x1p-10 + 1e-6;
    default: return 0.5 * (high - low) / 15 + 2 * magnitude * 0x1p-10 + 1e-6;
  }
}

TEST_P(CpuKvFormat, WhatIsAppendedComesBackWithinHalfAStep) {
  const std::vector<int> lengths = {100, 0, 1, 64, 63, 190};
  for (const bool is_head_first : {false, true}) {
    const KvCase c(GetParam(), lengths, is_head_first);
    c.append(0, 200);
    const KvCase::Gathered out = c.gather();
    const Values in_k = values_of(c.new_k()), in_v = values_of(c.new_v());
    const Values out_k = values_of(out.k), out_v = values_of(out.v);
    constexpr auto kDim = static_cast<size_t>(KvCase::kDim);
    for (size_t row = 0; row < in_v.size() / kDim; ++row) {
      const auto begin = in_v.begin() + static_cast<ptrdiff_t>(row * kDim);
      const auto [low, high] = std::minmax_element(begin, begin + KvCase::kDim);
      for (size_t i = row * kDim; i < (row + 1) * kDim; ++i) {
        ASSERT_NEAR(out_v[i], in_v[i], bound(GetParam(), in_v[i], *low, *high)) << i;
        if (is_by_column()) continue;
        const auto k_begin = in_k.begin() + static_cast<ptrdiff_t>(row * kDim);
        const auto [k_low, k_high] = std::minmax_element(k_begin, k_begin + KvCase::kDim);
        ASSERT_NEAR(out_k[i], in_k[i], bound(GetParam(), in_k[i], *k_low, *k_high)) << i;
      }
    }
    if (!is_by_column()) continue;
    constexpr int64_t kRow = KvCase::kHeads * KvCase::kDim;
    for (size_t s = 0; s < lengths.size(); ++s) {
      for (int64_t t = 0; t < lengths[s]; ++t) {
        const int64_t group = t / kKvGroup, first = c.start(static_cast<int64_t>(s));
        const bool is_in_tail = group == (lengths[s] - 1) / kKvGroup;
        for (int64_t column = 0; column < kRow; ++column) {
          const auto at = [&](int64_t token) {
            return in_k[static_cast<size_t>((first + token) * kRow + column)];
          };
          double low = at(t), high = at(t);
          for (int64_t i = 0; i < kKvGroup && !is_in_tail; ++i) {
            low = std::min(low, at(group * kKvGroup + i));
            high = std::max(high, at(group * kKvGroup + i));
          }
          const double want = is_in_tail ? 0.0 : bound(GetParam(), at(t), low, high);
          ASSERT_NEAR(out_k[static_cast<size_t>((first + t) * kRow + column)], at(t), want) << t;
        }
      }
    }
  }
}

TEST_P(CpuKvFormat, HowManyTokensComeAtOnceDoesNotShow) {
  const std::vector<int> lengths = {100, 33, 32, 190};
  const KvCase whole(GetParam(), lengths);
  whole.append(0, 200);
  const KvCase::Gathered want = whole.gather();
  for (const int64_t step : {1, 7, 32, 70}) {
    const KvCase parts(GetParam(), lengths);
    for (int64_t begin = 0; begin < 200; begin += step) parts.append(begin, begin + step);
    const KvCase::Gathered out = parts.gather();
    EXPECT_EQ(values_of(out.k), values_of(want.k)) << step;
    EXPECT_EQ(values_of(out.v), values_of(want.v)) << step;
  }
}

TEST_P(CpuKvFormat, CopiedPagesHaveTheirScales) {
  const KvCase c(GetParam(), {128, 64}, true);
  c.append(0, 128);
  const KvCase::Gathered want = c.gather();
  // Copies the first sequence's first page over the second's; gathering the second then gives the
  // first one's tokens.
  const Tensor from = tensor_of(DType::i32, {1}, {static_cast<double>(c.page(0, 0))});
  const Tensor to = tensor_of(DType::i32, {1}, {static_cast<double>(c.page(1, 0))});
  const PagedKv kv = c.kv();
  const bool has_page_scales = kv.k_scales.rank >= 4;
  cpu::kv_copy_pages({.k_pages = kv.k_pages,
                      .v_pages = kv.v_pages,
                      .sources = from,
                      .targets = to,
                      .k_scales = has_page_scales ? kv.k_scales : TensorView{},
                      .v_scales = has_page_scales ? kv.v_scales : TensorView{}});
  const KvCase::Gathered out = c.gather();
  const auto tokens = [](const Tensor& rows, int64_t begin, int64_t end) {
    return values_of(rows.view().slice(0, begin, end));
  };
  // The newest group of keys by column is in the tail.
  const int64_t in_pages = is_by_column() ? 32 : 64;
  EXPECT_EQ(tokens(out.k, 128, 128 + in_pages), tokens(want.k, 0, in_pages));
  EXPECT_EQ(tokens(out.v, 128, 192), tokens(want.v, 0, 64));
  EXPECT_EQ(tokens(out.v, 0, 128), tokens(want.v, 0, 128));
}

TEST_P(CpuKvFormat, RotatingOnTheWayGivesWhatRotatingFirstGives) {
  const KvCase plain(GetParam(), {50}), fused(GetParam(), {50});
  Tensor table(DType::f32, {50, KvCase::kDim});
  for (int64_t i = 0; i < 50 * KvCase::kDim; ++i) {
    const int64_t position = i / KvCase::kDim, pair = i % (KvCase::kDim / 2);
    const double angle = static_cast<double>(position) / static_cast<double>(pair + 1);
    const bool is_sine = i % KvCase::kDim >= KvCase::kDim / 2;
    table.view().as<float>()[i] = static_cast<float>(is_sine ? std::sin(angle) : std::cos(angle));
  }
  Values numbers;
  for (int i = 0; i < 50; ++i) numbers.push_back(i);
  const Tensor positions = tensor_of(DType::i32, {50}, numbers);
  Tensor q(DType::f32, {50, 3, KvCase::kDim}), q_fused(DType::f32, {50, 3, KvCase::kDim});
  fill_normal(q, 3), fill_normal(q_fused, 3);
  fused.append(0, 50, KvRope{.q = q_fused, .positions = positions, .table = table});
  cpu::rope({.q = q, .k = plain.new_k(), .positions = positions, .table = table});
  plain.append(0, 50);
  EXPECT_EQ(values_of(q_fused), values_of(q));
  EXPECT_EQ(values_of(fused.gather().k), values_of(plain.gather().k));
  EXPECT_EQ(values_of(fused.gather().v), values_of(plain.gather().v));
}

INSTANTIATE_TEST_SUITE_P(EveryFormat, CpuKvFormat, ::testing::ValuesIn(kKvFormats), kv_format_name);

TEST(CpuKvFormats, WholeNumbersInRangeAreExact) {
  // The scale is 1 if the largest magnitude is 127 for i8, or if a row has both 0 and the highest
  // code (15 or 255) for the others.
  for (const KvCaseFormat& format : kKvFormats) {
    const int highest = format.dtype == DType::i4   ? 15
                        : format.dtype == DType::u8 ? 255
                        : format.dtype == DType::i8 ? 127
                                                    : 8;
    const KvCase c(format, {64});
    fill_integers(c.new_k(), 1, 0, highest), fill_integers(c.new_v(), 2, 0, highest);
    if (format.has_head_scales) continue;  // its scale is not 1
    for (const TensorView& rows : {c.new_k(), c.new_v()}) {
      for (int64_t i = 0; i < rows.num_elements(); i += KvCase::kDim) {
        rows.as<float>()[i] = 0, rows.as<float>()[i + 1] = static_cast<float>(highest);
      }
      if (!format.is_by_column) continue;
      for (int64_t i = 0; i < KvCase::kHeads * KvCase::kDim; ++i) {  // both in each column
        rows.as<float>()[i] = 0;
        rows.as<float>()[KvCase::kHeads * KvCase::kDim + i] = static_cast<float>(highest);
      }
    }
    c.append(0, 64);
    const KvCase::Gathered out = c.gather();
    EXPECT_EQ(values_of(out.k), values_of(c.new_k())) << format.name;
    if (!format.is_by_column) {
      EXPECT_EQ(values_of(out.v), values_of(c.new_v())) << format.name;
    }
  }
}

TEST(CpuKvFormats, ZerosAndNumbersBeyondF16StayFinite) {
  for (const KvCaseFormat& format : kKvFormats) {
    const KvCase c(format, {64});
    fill(c.new_k(), [] { return 0.0; });
    fill(c.new_v(), [] { return 1e30; });
    c.append(0, 64);
    const KvCase::Gathered out = c.gather();
    for (const double x : values_of(out.k)) ASSERT_EQ(x, 0.0) << format.name;
    for (const double x : values_of(out.v)) ASSERT_TRUE(std::isfinite(x)) << format.name;
  }
}

}  // namespace
}  // namespace tessera::testing
