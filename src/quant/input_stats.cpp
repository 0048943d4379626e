// Statistics of inputs: products by gemm, the rest column by column.
// SPDX-License-Identifier: MIT
#include "tessera/quant/input_stats.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "core/text.h"
#include "tessera/core/error.h"
#include "tessera/ops/copy.h"
#include "tessera/ops/gemm.h"

namespace tessera::quant {
namespace {

// Rows of one product: long enough that adding to the sum costs little.
constexpr int64_t kRowsAtOnce = 1024;

}  // namespace

InputStats::InputStats(int64_t k, bool has_products, Device device)
    : k_(k),
      has_products_(has_products),
      sum_abs_(static_cast<size_t>(k)),
      max_abs_(static_cast<size_t>(k)) {
  expects(k > 0, "InputStats: k must be at least 1");
  if (has_products) products_ = Tensor::zeros(DType::f32, {k, k}, device);
}

void InputStats::add(const TensorView& x, const Context& ctx) {
  if (x.rank != 2 || x.size(1) != k_) {
    fail(concat("InputStats: x is ", to_string(x), "; it must be [rows, ", k_, "]"));
  }
  for (int64_t row = 0; row < x.size(0); row += kRowsAtOnce) {
    const TensorView part = x.slice(0, row, std::min(x.size(0), row + kRowsAtOnce));
    const int64_t num_rows = part.size(0);
    const Tensor plain(DType::f32, {num_rows, k_}, x.device);
    copy({.x = part, .out = plain}, ctx);
    const Tensor columns(DType::f32, {k_, num_rows}, x.device);
    copy({.x = plain.view().transposed(0, 1), .out = columns}, ctx);
    if (has_products_) {
      gemm({.a = columns, .b = columns.view(), .out = products_, .residual = products_.view()},
           ctx);
    }
    const Tensor host = columns.to(cpu_device());
    parallel_for(k_, num_rows, [&](int64_t col) {
      const float* values = host.view().as<float>() + col * num_rows;
      double sum = 0.0;
      float largest = 0.0f;
      for (int64_t i = 0; i < num_rows; ++i) {
        sum += std::fabs(values[i]);
        largest = std::max(largest, std::fabs(values[i]));
      }
      sum_abs_[static_cast<size_t>(col)] += sum;
      max_abs_[static_cast<size_t>(col)] = std::max(max_abs_[static_cast<size_t>(col)], largest);
    });
  }
  num_rows_ += x.size(0);
}

void InputStats::divide_columns(std::span<const float> scales) {
  if (static_cast<int64_t>(scales.size()) != k_) {
    fail(concat("InputStats: ", scales.size(), " scales for ", k_, " columns"));
  }
  for (size_t i = 0; i < scales.size(); ++i) {
    sum_abs_[i] /= scales[i];
    max_abs_[i] /= scales[i];
  }
  if (!has_products_) return;
  auto* sums = products_.view().as<float>();
  parallel_for(k_, k_, [&](int64_t row) {
    const float by_row = scales[static_cast<size_t>(row)];
    for (int64_t col = 0; col < k_; ++col) {
      sums[row * k_ + col] /= by_row * scales[static_cast<size_t>(col)];
    }
  });
}

std::vector<float> InputStats::mean_abs() const {
  std::vector<float> means(sum_abs_.size());
  const double count = std::max<double>(1.0, static_cast<double>(num_rows_));
  for (size_t i = 0; i < means.size(); ++i) means[i] = static_cast<float>(sum_abs_[i] / count);
  return means;
}

std::vector<float> InputStats::mean_square() const {
  expects(has_products_, "InputStats: these have no products; make them with has_products");
  std::vector<float> means(static_cast<size_t>(k_));
  const float count = std::max(1.0f, static_cast<float>(num_rows_));
  for (int64_t i = 0; i < k_; ++i) {
    means[static_cast<size_t>(i)] = products_.view().as<float>()[i * k_ + i] / count;
  }
  return means;
}

}  // namespace tessera::quant
