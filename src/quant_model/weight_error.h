// How far quantised values are from the weight. All threads sum rows, whose sums are added in
// order.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "core/parallel.h"
#include "tessera/core/tensor.h"
#include "tessera/quant/quantize_model.h"

namespace tessera::quant {

// The sums behind |a - b| / |a|, Euclidean, by row.
class RowErrors {
 public:
  explicit RowErrors(int64_t num_rows)
      : errors_(static_cast<size_t>(num_rows)), sizes_(static_cast<size_t>(num_rows)) {}

  // Rows [first, first + num_rows), of k values. A row is summed in order, where each addition
  // waits for the one before, so four rows are summed at once.
  void set(int64_t first, int64_t num_rows, int64_t k, const float* a, const float* b) {
    int64_t row = 0;
    for (; row + 4 <= num_rows; row += 4) set_rows<4>(first + row, k, a + row * k, b + row * k);
    for (; row < num_rows; ++row) set_rows<1>(first + row, k, a + row * k, b + row * k);
  }
  double relative() const {
    const double error = std::accumulate(errors_.begin(), errors_.end(), 0.0);
    const double size = std::accumulate(sizes_.begin(), sizes_.end(), 0.0);
    return std::sqrt(error) / std::sqrt(size);
  }

 private:
  template <int kRows>
  void set_rows(int64_t first, int64_t k, const float* a, const float* b) {
    double error[kRows] = {}, size[kRows] = {};
    for (int64_t i = 0; i < k; ++i) {
      for (int row = 0; row < kRows; ++row) {
        const double x = a[row * k + i];
        const double difference = x - b[row * k + i];
        error[row] += difference * difference;
        size[row] += x * x;
      }
    }
    std::copy_n(error, kRows, errors_.begin() + first);
    std::copy_n(size, kRows, sizes_.begin() + first);
  }

  std::vector<double> errors_, sizes_;
};

// |a - b| / |a| of two f32 matrices.
inline double relative_distance(const TensorView& a, const TensorView& b) {
  constexpr int64_t kRows = 4;
  const int64_t n = a.size(0), k = a.size(1);
  RowErrors errors(n);
  parallel_for((n + kRows - 1) / kRows, 2 * k * kRows, [&](int64_t part) {
    const int64_t row = part * kRows;
    errors.set(row, std::min(kRows, n - row), k, a.as<float>() + row * k, b.as<float>() + row * k);
  });
  return errors.relative();
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
