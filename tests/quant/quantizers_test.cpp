// Quantisers of one weight: exact on small cases, better than round to nearest on likely ones.
// SPDX-License-Identifier: MIT
#include "tessera/quant/quantizers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/parallel.h"
#include "tessera/ops/gemm.h"
#include "tests/core/message_of.h"
#include "tests/quant/cases.h"

namespace tessera::testing {
namespace {

using quant::ActOrder;
using quant::CodeFormat;
using quant::QuantFormat;

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.size_bytes() == b.size_bytes() &&
         (a.size_bytes() == 0 ||
          std::memcmp(a.view().data, b.view().data, static_cast<size_t>(a.size_bytes())) == 0);
}
bool same_bytes(const quant::QuantizedWeight& a, const quant::QuantizedWeight& b) {
  return same_bytes(a.values, b.values) && same_bytes(a.scale, b.scale) &&
         same_bytes(a.zero_point, b.zero_point) && same_bytes(a.order, b.order);
}

TEST(Rtn, RoundsToTheNearestCodeOfItsGroup) {
  const float w[] = {7.0f, -3.4f, 0.6f, 0.0f, 1.4f, -0.7f, 0.1f, 0.25f};
  Tensor matrix(DType::f32, {1, 8});
  std::memcpy(matrix.view().data, w, sizeof(w));
  const auto made = quant::quantize_rtn(matrix, {.group = 4});
  const float* scale = made.scale.view().as<float>();
  EXPECT_EQ(scale[0], 1.0f);
  EXPECT_EQ(scale[1], 1.4f / 7.0f);
  const Tensor values = quant::dequantize(made);
  const float want[] = {7, -3, 1, 0, 7 * scale[1], -4 * scale[1], 0, scale[1]};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(values.view().as<float>()[i], want[i]) << i;
}

TEST(Rtn, QuantisingAgainChangesNothing) {
  const Tensor w = random_matrix(136, 256, 1);
  for (const CodeFormat codes : quant::kAllCodeFormats) {
    for (const bool is_symmetric : {true, false}) {
      const QuantFormat format{.codes = codes, .group = 32, .is_symmetric = is_symmetric};
      const auto once = quant::quantize_rtn(w, format);
      const auto twice = quant::quantize_rtn(quant::dequantize(once), format);
      EXPECT_TRUE(same_bytes(once.values, twice.values)) << name(codes) << is_symmetric;
    }
  }
}

// A step of the grid is the scale; e4m3 has 3 bits behind the leading one.
TEST(Rtn, IsWithinHalfAStep) {
  const int64_t n = 130, k = 384;
  const Tensor w = random_matrix(n, k, 2);
  for (const CodeFormat codes : quant::kAllCodeFormats) {
    const QuantFormat format{.codes = codes, .group = 64, .scale_dtype = DType::bf16};
    const auto made = quant::quantize_rtn(w, format);
    const Tensor values = quant::dequantize(made);
    const bool is_fp8 = made.values.view().dtype == DType::e4m3;
    const int64_t groups = made.scale.view().size(1);
    for (int64_t i = 0; i < n * k; ++i) {
      const int64_t row = i / k / made.rows_per_scale, group = i % k / made.group;
      const float scale = made.scale.view().as<float>()[row * groups + group];
      const float x = w.view().as<float>()[i];
      // A scale that was rounded down cuts off up to 2^-8 of the largest value.
      const float step = is_fp8 ? std::max(std::fabs(x) * 0x1p-4f, scale * 0x1p-10f) : 0.5f * scale;
      ASSERT_LE(std::fabs(values.view().as<float>()[i] - x), step * 1.001f + std::fabs(x) * 0x1p-8f)
          << name(codes) << " at " << i;
    }
  }
}

TEST(Rtn, TheProductReadsItsResult) {
  const Tensor w = random_matrix(32, 128, 3), x = random_matrix(5, 128, 4);
  for (const CodeFormat codes : quant::kAllCodeFormats) {
    const auto made = quant::quantize_rtn(w, {.codes = codes, .group = 32, .is_symmetric = false});
    const Tensor got(DType::f32, {5, 32}), want(DType::f32, {5, 32});
    gemm({.a = x, .b = made.view(), .out = got});
    gemm({.a = x, .b = quant::dequantize(made).view(), .out = want});
    for (int i = 0; i < 5 * 32; ++i) {
      EXPECT_NEAR(got.view().as<float>()[i], want.view().as<float>()[i], 1e-3) << name(codes);
    }
  }
}

// GPTQ as it is derived, in double: the inverse itself, from which each column is eliminated.
std::vector<float> slow_gptq(const TensorView& w, const TensorView& h, double damping,
                             const std::vector<float>& scales, int64_t group) {
  const int64_t n = w.size(0), k = w.size(1);
  double mean = 0;
  for (int64_t i = 0; i < k; ++i) mean += h.as<float>()[i * k + i] / static_cast<double>(k);
  std::vector<double> a(static_cast<size_t>(k * k)), inverse(a.size());
  const auto at = [&](std::vector<double>& m, int64_t i, int64_t j) -> double& {
    return m[static_cast<size_t>(i * k + j)];
  };
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t j = 0; j < k; ++j) {
      at(a, i, j) = h.as<float>()[i * k + j] + (i == j ? damping * mean : 0.0);
      at(inverse, i, j) = i == j;
    }
  }
  for (int64_t i = 0; i < k; ++i) {  // Gauss and Jordan; positive definite, so no pivoting
    const double pivot = at(a, i, i);
    for (int64_t j = 0; j < k; ++j) at(a, i, j) /= pivot, at(inverse, i, j) /= pivot;
    for (int64_t r = 0; r < k; ++r) {
      if (r == i) continue;
      const double factor = at(a, r, i);
      for (int64_t j = 0; j < k; ++j) {
        at(a, r, j) -= factor * at(a, i, j);
        at(inverse, r, j) -= factor * at(inverse, i, j);
      }
    }
  }
  std::vector<double> left(static_cast<size_t>(n * k));
  for (int64_t i = 0; i < n * k; ++i) left[static_cast<size_t>(i)] = w.as<float>()[i];
  std::vector<float> values(left.size());
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t row = 0; row < n; ++row) {
      const double scale = scales[static_cast<size_t>(row * (k / group) + i / group)];
      const double x = left[static_cast<size_t>(row * k + i)];
      const double code = std::min(7.0, std::max(-7.0, std::nearbyint(x / scale)));
      values[static_cast<size_t>(row * k + i)] = static_cast<float>(code * scale);
      const double error = (x - code * scale) / at(inverse, i, i);
      for (int64_t j = i; j < k; ++j) {
        left[static_cast<size_t>(row * k + j)] -= error * at(inverse, i, j);
      }
    }
    const std::vector<double> before = inverse;
    for (int64_t r = i + 1; r < k; ++r) {
      for (int64_t j = i + 1; j < k; ++j) {
        at(inverse, r, j) -= before[static_cast<size_t>(r * k + i)] *
                             before[static_cast<size_t>(i * k + j)] /
                             before[static_cast<size_t>(i * k + i)];
      }
    }
  }
  return values;
}

TEST(Gptq, AgreesWithItsDefinition) {
  const int64_t n = 12, k = 24;
  const Tensor w = random_matrix(n, k, 5);
  const quant::InputStats stats = stats_of(correlated_inputs(200, k, 6));
  // Grids of the original groups do not depend on what is rounded first.
  for (const int64_t block : {1, 7, 24, 128}) {
    const quant::Gptq gptq(stats, {.damping = 0.05, .block = block});
    for (const int64_t group : {8, 24}) {
      const auto made = gptq.quantize(w, {.group = group});
      std::vector<float> scales(made.scale.view().as<float>(),
                                made.scale.view().as<float>() + n * k / group);
      const std::vector<float> want = slow_gptq(w, stats.products(), 0.05, scales, group);
      const Tensor got = quant::dequantize(made);
      for (int64_t i = 0; i < n * k; ++i) {
        EXPECT_NEAR(got.view().as<float>()[i], want[static_cast<size_t>(i)], 1e-5)
            << "block " << block << ", group " << group << ", at " << i;
      }
    }
  }
}

// Factor and updates by products, as on a GPU, differ from those of the CPU by rounding alone: few
// codes change, and the error of the outputs stays what it is.
TEST(Gptq, ByProductsItMakesTheSameWeights) {
  const int64_t n = 64, k = 640;
  const Tensor w = random_matrix(n, k, 30);
  const quant::InputStats stats = stats_of(correlated_inputs(900, k, 31));
  for (const ActOrder order : {ActOrder::none, ActOrder::weight, ActOrder::group}) {
    quant::GptqOptions options{.damping = 0.05, .order = order, .search_clip = true};
    const auto plain = quant::Gptq(stats, options).quantize(w, {.group = 64});
    options.by_products = true;
    const auto by_products = quant::Gptq(stats, options).quantize(w, {.group = 64});
    const Tensor want = quant::dequantize(plain), got = quant::dequantize(by_products);
    int64_t num_other = 0;
    for (int64_t i = 0; i < n * k; ++i) {
      // Scales differ in their last bits where they come from weights that were updated.
      num_other += std::fabs(got.view().as<float>()[i] - want.view().as<float>()[i]) > 0.05f;
    }
    EXPECT_LT(num_other, n * k / 50) << static_cast<int>(order);
    const double error = quant::output_error(w, want, stats);
    EXPECT_NEAR(quant::output_error(w, got, stats), error, 0.01 * error);
  }
  const std::string refusal = message_of([&] {
    const quant::Gptq gptq(stats, {.by_products = true});
    gptq.quantize(w, {.group = 320});
  });
  EXPECT_NE(refusal.find("groups of 320"), std::string::npos) << refusal;
}

TEST(Gptq, TheBlockSizeChangesOnlyRounding) {
  const Tensor w = random_matrix(40, 256, 7);
  const quant::InputStats stats = stats_of(correlated_inputs(512, 256, 8));
  const auto error_of = [&](int64_t block) {
    const auto made = quant::Gptq(stats, {.block = block}).quantize(w, {.group = 0});
    return quant::output_error(w, quant::dequantize(made), stats);
  };
  EXPECT_NEAR(error_of(16), error_of(256), 0.02 * error_of(256));
}

TEST(Gptq, LosesLessThanRoundToNearest) {
  const int64_t k = 256;
  const Tensor w = random_matrix(64, k, 9);
  const quant::InputStats stats = stats_of(correlated_inputs(1024, k, 10));
  for (const bool is_symmetric : {true, false}) {
    for (const int64_t group : {32, 128, 0}) {
      const QuantFormat format{.group = group, .is_symmetric = is_symmetric};
      const double nearest =
          quant::output_error(w, quant::dequantize(quant::quantize_rtn(w, format)), stats);
      for (const ActOrder order : {ActOrder::none, ActOrder::weight, ActOrder::group}) {
        const quant::Gptq gptq(stats, {.order = order});
        const double error =
            quant::output_error(w, quant::dequantize(gptq.quantize(w, format)), stats);
        EXPECT_LT(error, 0.6 * nearest)
            << "group " << group << ", order " << static_cast<int>(order) << is_symmetric;
      }
    }
  }
}

TEST(Gptq, ColumnsWithoutInputsDoNotMatter) {
  const int64_t k = 64;
  Tensor x = correlated_inputs(300, k, 11);
  for (int64_t row = 0; row < 300; ++row) x.view().as<float>()[row * k + 5] = 0.0f;
  const quant::InputStats stats = stats_of(x);
  const auto made = quant::Gptq(stats, {}).quantize(random_matrix(8, k, 12), {.group = 32});
  const Tensor values = quant::dequantize(made);
  for (int64_t row = 0; row < 8; ++row) {
    EXPECT_EQ(values.view().as<float>()[row * k + 5], 0.0f);
    EXPECT_NE(values.view().as<float>()[row * k + 6], 0.0f);
  }
}

// Fewer inputs than columns: the products are singular and only damping makes them invertible.
TEST(Gptq, TakesFewInputs) {
  const quant::InputStats stats = stats_of(correlated_inputs(3, 64, 13));
  const quant::Gptq gptq(stats, {.damping = 0.0});
  EXPECT_GT(gptq.damping(), 0.0);
  const Tensor w = random_matrix(4, 64, 14);
  EXPECT_TRUE(std::isfinite(
      quant::output_error(w, quant::dequantize(gptq.quantize(w, {.group = 32})), stats)));
}

TEST(Gptq, GivesTheSameBitsWithAnyNumberOfThreads) {
  const Tensor w = random_matrix(200, 256, 15), x = correlated_inputs(600, 256, 16);
  const auto make = [&] {
    const quant::InputStats stats = stats_of(x);
    return quant::Gptq(stats, {.order = ActOrder::group, .search_clip = true})
        .quantize(w, {.group = 64, .is_symmetric = false});
  };
  const int threads = num_threads();
  const auto several = make();
  set_num_threads(1);
  const auto one = make();
  set_num_threads(threads);
  EXPECT_TRUE(same_bytes(several, one));
}

TEST(Clipped, LosesNoMoreThanRoundToNearestByItsOwnMeasure) {
  const int64_t n = 32, k = 128;
  const Tensor w = random_matrix(n, k, 17);
  const std::vector<float> importance = stats_of(correlated_inputs(256, k, 18)).mean_square();
  const auto error_of = [&](const quant::QuantizedWeight& made) {
    const Tensor values = quant::dequantize(made);
    double sum = 0;
    for (int64_t i = 0; i < n * k; ++i) {
      const double d = values.view().as<float>()[i] - w.view().as<float>()[i];
      sum += importance[static_cast<size_t>(i % k)] * d * d;
    }
    return sum;
  };
  const QuantFormat format{.group = 32};
  EXPECT_LT(error_of(quant::quantize_clipped(w, importance, format)),
            0.95 * error_of(quant::quantize_rtn(w, format)));
}

TEST(Awq, LosesLessThanRoundToNearest) {
  const int64_t n = 96, k = 256;
  const Tensor w = random_matrix(n, k, 19);
  const quant::InputStats stats = stats_of(correlated_inputs(512, k, 20));
  const QuantFormat format{.group = 128};
  const TensorView weights[] = {w.view()};
  const std::vector<float> scales = quant::search_awq_scales(weights, stats, format);
  Tensor scaled(DType::f32, {n, k});
  for (int64_t i = 0; i < n * k; ++i) {
    scaled.view().as<float>()[i] = w.view().as<float>()[i] * scales[static_cast<size_t>(i % k)];
  }
  Tensor values = quant::dequantize(quant::quantize_rtn(scaled, format));
  for (int64_t i = 0; i < n * k; ++i) {
    values.view().as<float>()[i] /= scales[static_cast<size_t>(i % k)];
  }
  const double nearest =
      quant::output_error(w, quant::dequantize(quant::quantize_rtn(w, format)), stats);
  EXPECT_LT(quant::output_error(w, values, stats), 0.75 * nearest);
}

TEST(Awq, ColumnsOfOneOwnerShareAScale) {
  const Tensor w = random_matrix(16, 64, 21);
  const TensorView weights[] = {w.view()};
  std::vector<int32_t> owners;
  for (int32_t i = 0; i < 64; ++i) owners.push_back(i % 16);
  const auto scales = quant::search_awq_scales(weights, stats_of(correlated_inputs(100, 64, 22)),
                                               {.group = 32}, owners);
  for (size_t i = 16; i < scales.size(); ++i) EXPECT_EQ(scales[i], scales[i - 16]);
}

TEST(SmoothQuant, FollowsItsFormula) {
  Tensor x(DType::f32, {2, 3}), w(DType::f32, {2, 3});
  const float xs[] = {4, 0, -1, -16, 0, 1}, ws[] = {2, 1, 0, -4, 3, 0};
  std::memcpy(x.view().data, xs, sizeof(xs));
  std::memcpy(w.view().data, ws, sizeof(ws));
  const TensorView weights[] = {w.view()};
  const auto scales = quant::smooth_scales(weights, stats_of(x), 0.5);
  EXPECT_FLOAT_EQ(scales[0], 2.0f);  // sqrt(16) / sqrt(4)
  EXPECT_EQ(scales[1], 1.0f);
  EXPECT_EQ(scales[2], 1.0f);
}

TEST(Stats, AddsAndDivides) {
  const Tensor x = correlated_inputs(2000, 32, 23);  // more rows than one product takes
  quant::InputStats stats = stats_of(x);
  double want = 0;
  for (int64_t row = 0; row < 2000; ++row) {
    want += double{x.view().as<float>()[row * 32 + 3]} * x.view().as<float>()[row * 32 + 7];
  }
  EXPECT_NEAR(stats.products().as<float>()[3 * 32 + 7], want, 1e-4 * std::fabs(want) + 1.0);
  std::vector<float> scales(32, 1.0f);
  scales[3] = 2.0f;
  const float largest = stats.max_abs()[3];
  const float before = stats.products().as<float>()[3 * 32 + 3];
  stats.divide_columns(scales);
  EXPECT_FLOAT_EQ(stats.max_abs()[3], largest / 2);
  EXPECT_FLOAT_EQ(stats.products().as<float>()[3 * 32 + 3], before / 4);
}

TEST(Quantisers, RefuseByName) {
  const Tensor w = random_matrix(4, 48, 24);
  const auto has = [](const std::string& message, std::string_view part) {
    return message.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(message_of([&] { quant::quantize_rtn(w, {.group = 32}); }), "[4, 48]"));
  const quant::InputStats stats = stats_of(correlated_inputs(64, 48, 25));
  const quant::Gptq gptq(stats, {});
  EXPECT_TRUE(has(message_of([&] { gptq.quantize(w, {.codes = CodeFormat::fp8}); }), "fp8"));
  EXPECT_TRUE(has(message_of([&] { gptq.quantize(random_matrix(4, 64, 26), {.group = 32}); }),
                  "48 columns"));
  EXPECT_TRUE(has(message_of([&] { quant::Gptq(quant::InputStats(8), quant::GptqOptions{}); }),
                  "no inputs"));
  EXPECT_TRUE(has(message_of([&] {
                    quant::quantize_rtn(Tensor(DType::bf16, {4, 48}), {});
                  }),
                  "bf16[4, 48]"));
  Tensor x = correlated_inputs(4, 8, 27);
  x.view().as<float>()[3] = INFINITY;
  EXPECT_TRUE(has(message_of([&] { quant::Gptq(stats_of(x), quant::GptqOptions{}); }), "column 3"));
}

}  // namespace
}  // namespace tessera::testing
