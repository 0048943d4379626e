// Scales of inputs: AWQ's search and SmoothQuant's formula, which move magnitude between inputs and
// weights, and the static ones of 8-bit inputs.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/parallel.h"
#include "core/text.h"
#include "quant/check.h"
#include "tessera/core/error.h"
#include "tessera/ops/copy.h"
#include "tessera/ops/gemm.h"
#include "tessera/quant/quantizers.h"

namespace tessera::quant {
namespace {

constexpr int kAlphas = 20;
constexpr float kLeast = 1e-4f;

Tensor multiplied(const TensorView& w, std::span<const float> scales) {
  const int64_t n = w.size(0), k = w.size(1);
  Tensor out(DType::f32, {n, k});
  parallel_for(n, k, [&](int64_t row) {
    const float* from = w.as<float>() + row * w.stride(0);
    float* to = out.view().as<float>() + row * k;
    for (int64_t i = 0; i < k; ++i) to[i] = from[i] * scales[static_cast<size_t>(i)];
  });
  return out;
}

// mean |x|^alpha, the largest of those that share an owner, around 1.
std::vector<float> scales_for(std::vector<float> magnitudes, double alpha,
                              std::span<const int32_t> owners) {
  std::vector<float> largest(magnitudes.size());
  for (size_t i = 0; i < owners.size(); ++i) {
    float& shared = largest.at(static_cast<size_t>(owners[i]));
    shared = std::max(shared, magnitudes[i]);
  }
  for (size_t i = 0; i < owners.size(); ++i) {
    magnitudes[i] = largest[static_cast<size_t>(owners[i])];
  }
  float least = INFINITY, most = 0.0f;
  for (float& value : magnitudes) {
    value = std::max(kLeast, static_cast<float>(std::pow(double{value}, alpha)));
    least = std::min(least, value);
    most = std::max(most, value);
  }
  const float middle = std::sqrt(least * most);
  for (float& value : magnitudes) value /= middle;
  return magnitudes;
}

// The sum of a[i] . b[i] over the rows of two matrices on a GPU: the diagonals of products of some
// rows at a time, so that only as many numbers as there are rows come to the CPU.
double sum_of_row_products(const TensorView& a, const TensorView& b, const Context& ctx) {
  const int64_t n = a.size(0), k = a.size(1), rows = std::gcd(n, 128), batch = n / rows;
  const auto cut = [&](const TensorView& matrix) {
    return TensorView::contiguous(matrix.data, DType::f32, {batch, rows, k}, matrix.device);
  };
  const Tensor products(DType::f32, {batch, rows, rows}, a.device);
  gemm({.a = cut(a), .b = cut(b), .out = products}, ctx);
  TensorView diagonals = products;
  diagonals.rank = 2;
  diagonals.strides = {rows * rows, rows + 1};
  const Tensor dots(DType::f32, {batch, rows}, a.device);
  copy({.x = diagonals, .out = dots}, ctx);
  const Tensor host = dots.to(cpu_device());
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) sum += host.view().as<float>()[i];
  return sum;
}

void expect_inputs(std::string_view what, std::span<const TensorView> weights,
                   const InputStats& stats) {
  expects(!weights.empty(), "quantiser: no weights were given; give those that read the inputs");
  for (const TensorView& w : weights) {
    expect_matrix(what, w);
    if (w.size(1) == stats.k()) continue;
    fail(concat(what, " is ", to_string(w), " and its inputs have ", stats.k(), " columns"));
  }
}

}  // namespace

double output_error(const TensorView& w, const TensorView& values, const InputStats& stats,
                    const Context& ctx) {
  const int64_t n = w.size(0), k = w.size(1);
  expects(stats.has_products(), "output_error: the statistics have no products");
  if (!w.same_shape(values) || stats.k() != k) {
    fail(concat("output_error: w is ", to_string(w), ", values ", to_string(values),
                " and the inputs have ", stats.k(), " columns; they must agree"));
  }
  const Tensor difference(DType::f32, {n, k});
  parallel_for(n, k, [&](int64_t row) {
    const float* a = w.as<float>() + row * w.stride(0);
    const float* b = values.as<float>() + row * values.stride(0);
    float* to = difference.view().as<float>() + row * k;
    for (int64_t i = 0; i < k; ++i) to[i] = a[i] - b[i];
  });
  const Device device = stats.products().device;
  const Tensor product(DType::f32, {n, k}, device);
  if (!device.is_cpu()) {
    const Tensor there = difference.to(device);
    gemm({.a = there, .b = stats.products(), .out = product}, ctx);
    return std::max(0.0, sum_of_row_products(there, product, ctx));
  }
  gemm({.a = difference, .b = stats.products(), .out = product}, ctx);
  std::vector<double> sums(static_cast<size_t>(n));
  parallel_for(n, k, [&](int64_t row) {
    const float* a = difference.view().as<float>() + row * k;
    const float* b = product.view().as<float>() + row * k;
    double sum = 0.0;
    for (int64_t i = 0; i < k; ++i) sum += double{a[i]} * b[i];
    sums[static_cast<size_t>(row)] = sum;
  });
  double total = 0.0;
  for (const double sum : sums) total += sum;
  return std::max(0.0, total);
}

std::vector<float> search_awq_scales(std::span<const TensorView> weights, const InputStats& stats,
                                     const QuantFormat& format, std::span<const int32_t> owners,
                                     const Context& ctx) {
  expect_inputs("search_awq_scales: a weight", weights, stats);
  expect_integers("search_awq_scales", format);
  if (!owners.empty() && static_cast<int64_t>(owners.size()) != stats.k()) {
    fail(concat("search_awq_scales: ", owners.size(), " owners for ", stats.k(), " columns"));
  }
  const std::vector<float> magnitudes = stats.mean_abs();
  std::vector<float> best;
  double least = -1.0;
  for (int step = 0; step < kAlphas; ++step) {
    const double alpha = static_cast<double>(step) / kAlphas;
    const std::vector<float> scales = scales_for(magnitudes, alpha, owners);
    std::vector<float> inverses(scales.size());
    for (size_t i = 0; i < scales.size(); ++i) inverses[i] = 1.0f / scales[i];
    double error = 0.0;
    for (const TensorView& w : weights) {
      const QuantizedWeight made = quantize_rtn(multiplied(w, scales), format, ctx);
      error += output_error(w, multiplied(dequantize(made, ctx), inverses), stats, ctx);
    }
    if (least < 0.0 || error < least) {
      least = error;
      best = scales;
    }
  }
  return best;
}

std::vector<float> smooth_scales(std::span<const TensorView> weights, const InputStats& stats,
                                 double alpha) {
  expect_inputs("smooth_scales: a weight", weights, stats);
  if (!(alpha >= 0.0 && alpha <= 1.0)) {
    fail(concat("smooth_scales: alpha is ", alpha, "; it must be from 0 to 1"));
  }
  std::vector<float> largest(static_cast<size_t>(stats.k()));
  for (const TensorView& w : weights) {
    for (int64_t row = 0; row < w.size(0); ++row) {
      const float* values = w.as<float>() + row * w.stride(0);
      for (size_t i = 0; i < largest.size(); ++i) {
        largest[i] = std::max(largest[i], std::fabs(values[i]));
      }
    }
  }
  std::vector<float> scales(largest.size(), 1.0f);
  for (size_t i = 0; i < scales.size(); ++i) {
    const double x = stats.max_abs()[i], w = largest[i];
    if (x <= 0.0 || w <= 0.0) continue;
    scales[i] = static_cast<float>(std::pow(x, alpha) / std::pow(w, 1.0 - alpha));
  }
  return scales;
}

float static_input_scale(const InputStats& stats, DType codes) {
  const float most = quant_max(codes), largest = std::ranges::max(stats.max_abs());
  if (!(largest > 0.0f)) return 1.0f;
  if (codes != DType::i8) return largest / most;
  if (stats.magnitudes().empty()) {
    fail(
        "static_input_scale: the inputs were not counted, or were divided since; collect them "
        "anew");
  }
  constexpr int kBoundsPerOctave = 16, kNumBounds = 8 * kBoundsPerOctave;
  float best = largest;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kNumBounds; ++i) {
    const double bound = largest * std::exp2(-static_cast<double>(i) / kBoundsPerOctave);
    const double step = bound / most;
    double error = 0.0;
    for (size_t bin = 0; bin < stats.magnitudes().size(); ++bin) {
      const int64_t count = stats.magnitudes()[bin];
      if (count == 0) continue;
      const auto begin = std::bit_cast<float>(static_cast<uint32_t>(bin) << InputStats::kBinShift);
      const double value = begin * (1.0 + 1.0 / 64);  // the middle of the bin, to 2 %
      const double one = value > bound      ? (value - bound) * (value - bound)
                         : value < step / 2 ? value * value
                                            : step * step / 12;
      error += static_cast<double>(count) * one;
    }
    if (error < least) {
      least = error;
      best = static_cast<float>(bound);
    }
  }
  return best / most;
}

}  // namespace tessera::quant
