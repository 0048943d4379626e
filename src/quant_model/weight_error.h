// How far values are from what they stand for. Rows are summed by all threads and added in order.
// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/parallel.h"
#include "tessera/core/tensor.h"
#include "tessera/quant/quantize_model.h"

namespace tessera::quant {

// |a - b| / |a| of two f32 matrices, Euclidean.
inline double relative_distance(const TensorView& a, const TensorView& b) {
  const int64_t n = a.size(0), k = a.size(1);
  std::vector<double> errors(static_cast<size_t>(n)), sizes(static_cast<size_t>(n));
  parallel_for(n, 2 * k, [&](int64_t row) {
    const float* x = a.as<float>() + row * k;
    const float* y = b.as<float>() + row * k;
    double error = 0, size = 0;
    for (int64_t i = 0; i < k; ++i) {
      const double difference = double{x[i]} - y[i];
      error += difference * difference;
      size += double{x[i]} * x[i];
    }
    errors[static_cast<size_t>(row)] = error;
    sizes[static_cast<size_t>(row)] = size;
  });
  double error = 0, size = 0;
  for (const double one : errors) error += one;
  for (const double one : sizes) size += one;
  return std::sqrt(error) / std::sqrt(size);
}

// Both errors of the values that took the place of a weight.
inline LinearReport report_of(const std::string& module, const TensorView& w,
                              const TensorView& values, const InputStats* stats) {
  LinearReport made{.name = module, .weight_error = relative_distance(w, values)};
  if (stats == nullptr || !stats->has_products()) return made;
  const Tensor nothing = Tensor::zeros(DType::f32, {w.size(0), w.size(1)});
  made.output_error = std::sqrt(output_error(w, values, *stats) / output_error(w, nothing, *stats));
  return made;
}

}  // namespace tessera::quant
