// Rows rounded to nearest, against the operation that defines their bits.
// SPDX-License-Identifier: MIT
#include "quant/round_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/parallel.h"
#include "quant/check.h"
#include "quant/grid.h"
#include "quant_model/round_stored.h"
#include "quant_model/weight_error.h"
#include "tessera/ops/quantize.h"
#include "tests/core/message_of.h"
#include "tests/quant/cases.h"

namespace tessera::testing {
namespace {

using quant::CodeFormat;
using quant::QuantFormat;
using quant::QuantizedWeight;

constexpr int64_t kRows = 131;  // not a multiple of what threads take or of a block's side

// The definition: scales of the operation, rounded to their stored type, then codes by them.
QuantizedWeight defined(const TensorView& w, const QuantFormat& format) {
  QuantizedWeight made = quant::empty_rows(format, w.size(0), w.size(1));
  QuantizeArgs args{.x = w, .out = made.values, .scale = made.scale.view()};
  if (format.has_zero_points()) args.zero_point = made.zero_point.view();
  quantize(args);
  auto* scale = made.scale.view().as<float>();
  for (int64_t i = 0; i < made.scale.view().num_elements(); ++i) {
    const float rounded = ops::rounded_to(format.scale_dtype, scale[i]);
    if (rounded != 0.0f) scale[i] = rounded;
  }
  args.mode = ScaleMode::fixed;
  quantize(args);
  return made;
}

// Values whose groups have every kind of range: none, of one sign, denormal, huge, not finite.
Tensor special_matrix(int64_t n, int64_t k, uint32_t seed) {
  Tensor w = random_matrix(n, k, seed);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float factors[] = {1.0f, 0.0f, -0.0f, 1e-30f, 1e-40f, 1e30f, 3e38f, 1e5f, 0.02f};
  for (int64_t row = 0; row < n; ++row) {
    float* values = w.view().as<float>() + row * k;
    const int64_t kind = row % 16;
    for (int64_t i = 0; i < k; ++i) {
      if (kind < 9) values[i] *= factors[kind];
      if (kind == 9) values[i] = std::fabs(values[i]);
      if (kind == 10) values[i] = -std::fabs(values[i]);
      if (kind == 11) values[i] = static_cast<float>(i % 31 - 15) * 0.5f;  // ties
    }
    if (kind == 12) values[3] = kInfinity;
    if (kind == 13) values[k - 1] = -kInfinity;
    if (kind == 14) values[k / 2] = std::nanf("");
  }
  return w;
}

bool same_floats(const float* a, const float* b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const bool is_nan = std::isnan(a[i]) && std::isnan(b[i]);
    if (!is_nan && std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) return false;
  }
  return true;
}
bool same_weight(const QuantizedWeight& a, const QuantizedWeight& b) {
  const auto same = [](const Tensor& x, const Tensor& y) {
    return x.size_bytes() == y.size_bytes() &&
           std::memcmp(x.view().data, y.view().data, static_cast<size_t>(x.size_bytes())) == 0;
  };
  return same(a.values, b.values) && a.scale.view().same_shape(b.scale.view()) &&
         same_floats(a.scale.view().as<float>(), b.scale.view().as<float>(),
                     a.scale.view().num_elements()) &&
         (a.zero_point.view().rank == 0 || same(a.zero_point, b.zero_point));
}

std::vector<QuantFormat> formats() {
  std::vector<QuantFormat> all;
  for (const DType scale : {DType::f32, DType::bf16, DType::f16}) {
    for (const bool is_symmetric : {true, false}) {
      for (const int64_t group : {2, 32, 128, 0}) {
        all.push_back({.group = group, .is_symmetric = is_symmetric, .scale_dtype = scale});
      }
    }
    all.push_back({.codes = CodeFormat::int8, .scale_dtype = scale});
    all.push_back({.codes = CodeFormat::fp8, .scale_dtype = scale});
    all.push_back({.codes = CodeFormat::fp8_block, .scale_dtype = scale});
  }
  return all;
}

TEST(RoundRows, AreBitForBitThoseOfTheOperation) {
  for (const int64_t k : {128, 384, 640}) {
    const Tensor w = special_matrix(kRows, k, 3);
    for (const QuantFormat& format : formats()) {
      if (format.codes == CodeFormat::fp8_block) continue;  // the operation has no blocks
      SCOPED_TRACE(::testing::Message()
                   << name(format.codes) << " " << format.group << " " << format.is_symmetric << " "
                   << name(format.scale_dtype) << " k=" << k);
      const QuantizedWeight want = defined(w, format);
      EXPECT_TRUE(same_weight(want, quant::quantize_rtn(w, format)));
      const QuantizedWeight got = quant::empty_rows(format, kRows, k);
      const Tensor values(DType::f32, {kRows, k});
      for (int64_t row = 0; row < kRows; row += 4) {
        quant::round_rows(w.view().slice(0, row, std::min(kRows, row + 4)), format, row, got,
                          values.view().as<float>() + row * k);
      }
      EXPECT_TRUE(same_weight(want, got));
      EXPECT_TRUE(same_floats(quant::dequantize(want).view().as<float>(), values.view().as<float>(),
                              kRows * k));
    }
  }
}

// Serves one matrix.
class MatrixSource final : public model::WeightSource {
 public:
  explicit MatrixSource(const TensorView& w) : w_(w) {}
  DType dtype_of(const model::TensorSpec&) const override { return DType::f32; }
  DType native_dtype(const model::TensorSpec&, DType) const override { return DType::f32; }
  void read(const model::TensorSpec&, int64_t row, int64_t, const TensorView& to) const override {
    std::memcpy(to.data, w_.as<float>() + row * w_.size(1),
                static_cast<size_t>(to.num_elements()) * sizeof(float));
  }

 private:
  TensorView w_;
};

TEST(RoundStored, IsTheWholeWeightRounded) {
  const int before = num_threads();
  for (const int64_t k : {128, 4096}) {
    const Tensor w = random_matrix(kRows, k, 4);
    const model::TensorSpec spec{.name = "w", .num_rows = kRows, .num_cols = k};
    for (const QuantFormat& format : formats()) {
      const QuantizedWeight want = quant::quantize_rtn(w, format);
      for (const int threads : {1, 3}) {
        set_num_threads(threads);
        const auto got = quant::round_stored(MatrixSource(w), spec, format);
        EXPECT_TRUE(same_weight(want, got.weight)) << name(format.codes) << " k=" << k;
        EXPECT_EQ(got.weight.rows_per_scale, want.rows_per_scale);
        EXPECT_EQ(got.error, quant::relative_distance(w, quant::dequantize(want)));
      }
    }
  }
  set_num_threads(before);
}

TEST(RoundStored, RefusesWhatIsNotFinite) {
  const Tensor w = random_matrix(kRows, 128, 5);
  w.view().as<float>()[130 * 128 + 7] = std::nanf("");
  w.view().as<float>()[70 * 128 + 9] = std::numeric_limits<float>::infinity();
  const model::TensorSpec spec{.name = "w", .num_rows = kRows, .num_cols = 128};
  const std::string message = message_of([&] { quant::round_stored(MatrixSource(w), spec, {}); });
  EXPECT_NE(message.find("tensor 'w' has a value that is not finite at [70, 9]"), std::string::npos)
      << message;
}

// Each row alone, in order, in double.
TEST(RowErrors, AreSummedInOrder) {
  const int64_t n = 7, k = 129;
  const Tensor a = random_matrix(n, k, 6), b = random_matrix(n, k, 7);
  double errors = 0, sizes = 0;
  for (int64_t row = 0; row < n; ++row) {
    double error = 0, size = 0;
    for (int64_t i = row * k; i < (row + 1) * k; ++i) {
      const double x = a.view().as<float>()[i], difference = x - b.view().as<float>()[i];
      error += difference * difference;
      size += x * x;
    }
    errors += error;
    sizes += size;
  }
  EXPECT_EQ(quant::relative_distance(a, b), std::sqrt(errors) / std::sqrt(sizes));
}

}  // namespace
}  // namespace tessera::testing
