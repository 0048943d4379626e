// Statistics of inputs: products by gemm, the rest column by column.
// SPDX-License-Identifier: MIT
#include "tessera/quant/input_stats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>

#include "core/parallel.h"
#include "core/text.h"
#include "tessera/core/error.h"
#include "tessera/ops/copy.h"
#include "tessera/ops/gemm.h"
#include "tessera/ops/scale.h"

namespace tessera::quant {
namespace {

// Rows of one product: long enough that adding to the sum costs little.
constexpr int64_t kRowsAtOnce = 1024;
// Bytes of inputs that may wait for their product.
constexpr int64_t kWaitingBytes = int64_t{1} << 30;
constexpr int64_t kParts = 16;    // that are counted at once
constexpr int64_t kRowStep = 64;  // rows of k begin at addresses that every kernel takes

}  // namespace

InputStats::InputStats(int64_t k, InputSums sums, Device device, int64_t num_expected)
    : k_(k),
      sums_(sums),
      device_(device),
      num_expected_(num_expected),
      sum_abs_(static_cast<size_t>(k)),
      max_abs_(static_cast<size_t>(k)),
      magnitudes_(static_cast<size_t>(sums == InputSums::products ? 0 : kNumBins)) {
  expects(k > 0, "InputStats: k must be at least 1");
  if (has_products()) products_ = Tensor::zeros(DType::f32, {k, k}, device);
}

void InputStats::add(const TensorView& x, const Context& ctx) {
  if (x.rank != 2 || x.size(1) != k_ || x.device != device_) {
    fail(concat("InputStats: x is ", to_string(x), "; it must be [rows, ", k_, "] on ",
                to_string(device_)));
  }
  if (x.dtype != DType::f32) {
    add_waiting(x, ctx);
  } else if (device_.is_cpu()) {
    add_floats(x, ctx);
  } else {
    fail(concat("InputStats: x is ", to_string(x), "; on a GPU inputs are f16 or bf16"));
  }
  num_rows_ += x.size(0);
}

void InputStats::add_floats(const TensorView& x, const Context& ctx) {
  for (int64_t row = 0; row < x.size(0); row += kRowsAtOnce) {
    const TensorView part = x.slice(0, row, std::min(x.size(0), row + kRowsAtOnce));
    const int64_t num_rows = part.size(0);
    const Tensor columns(DType::f32, {k_, num_rows});
    copy({.x = part.transposed(0, 1), .out = columns}, ctx);
    if (has_products()) {
      gemm({.a = columns, .b = columns.view(), .out = products_, .residual = products_.view()},
           ctx);
    }
    add_columns(columns);
  }
}

void InputStats::add_columns(const Tensor& columns) {
  if (sums_ == InputSums::products) return;
  const int64_t num_rows = columns.view().size(1);
  parallel_for(k_, num_rows, [&](int64_t col) {
    const float* values = columns.view().as<float>() + col * num_rows;
    double sum = 0.0;
    float largest = 0.0f;
    for (int64_t i = 0; i < num_rows; ++i) {
      sum += std::fabs(values[i]);
      largest = std::max(largest, std::fabs(values[i]));
    }
    sum_abs_[static_cast<size_t>(col)] += sum;
    max_abs_[static_cast<size_t>(col)] = std::max(max_abs_[static_cast<size_t>(col)], largest);
  });
  count_magnitudes(columns);
}

void InputStats::count_magnitudes(const Tensor& columns) {
  if (magnitudes_.empty()) return;
  const float* values = columns.view().as<float>();
  const int64_t count = columns.view().num_elements(), part = (count + kParts - 1) / kParts;
  std::mutex adding;  // integers: the order does not matter
  parallel_for(kParts, part, [&](int64_t task) {
    std::vector<int64_t> bins(magnitudes_.size());
    for (int64_t i = task * part; i < std::min(count, (task + 1) * part); ++i) {
      ++bins[std::bit_cast<uint32_t>(std::fabs(values[i])) >> kBinShift];
    }
    const std::lock_guard lock(adding);
    for (size_t i = 0; i < bins.size(); ++i) magnitudes_[i] += bins[i];
  });
}

void InputStats::add_waiting(const TensorView& x, const Context& ctx) {
  if (sums_ != InputSums::products) {
    const Tensor columns(x.dtype, {k_, x.size(0)}, device_);
    copy({.x = x.transposed(0, 1), .out = columns}, ctx);
    const Tensor host = columns.to(cpu_device());
    const Tensor floats(DType::f32, {k_, x.size(0)});
    copy({.x = host, .out = floats});
    add_columns(floats);
  }
  if (!has_products()) return;
  if (waiting_.view().rank == 0) {
    const int64_t most = kWaitingBytes / (2 * k_) / kRowStep * kRowStep;
    const int64_t wanted =
        (std::max(num_expected_, x.size(0)) + kRowStep - 1) / kRowStep * kRowStep;
    const int64_t room = num_expected_ > 0 ? std::min(most, wanted) : most;
    waiting_ = Tensor(x.dtype, {k_, std::max(room, x.size(0))}, device_);
  }
  if (num_waiting_ + x.size(0) > waiting_.view().size(1)) multiply_waiting(ctx);
  copy({.x = x.transposed(0, 1),
        .out = waiting_.view().slice(1, num_waiting_, num_waiting_ + x.size(0))},
       ctx);
  num_waiting_ += x.size(0);
}

void InputStats::multiply_waiting(const Context& ctx) {
  if (num_waiting_ == 0) return;
  const TensorView columns = waiting_.view().slice(1, 0, num_waiting_);
  const Tensor part(DType::f32, {k_, k_}, device_);
  gemm({.a = columns, .b = columns, .out = part}, ctx);
  scale({.x = part, .out = products_, .residual = products_.view()}, ctx);
  num_waiting_ = 0;
}

void InputStats::finish(const Context& ctx) {
  multiply_waiting(ctx);
  waiting_ = Tensor();
  if (has_products() && sums_ != InputSums::products) products_ = products_.to(cpu_device());
}

void InputStats::divide_columns(std::span<const float> scales) {
  if (static_cast<int64_t>(scales.size()) != k_) {
    fail(concat("InputStats: ", scales.size(), " scales for ", k_, " columns"));
  }
  for (size_t i = 0; i < scales.size(); ++i) {
    sum_abs_[i] /= scales[i];
    max_abs_[i] /= scales[i];
  }
  magnitudes_.clear();
  if (!has_products()) return;
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
  expects(has_products(), "InputStats: these have no products; ask for them");
  std::vector<float> means(static_cast<size_t>(k_));
  const float count = std::max(1.0f, static_cast<float>(num_rows_));
  for (int64_t i = 0; i < k_; ++i) {
    means[static_cast<size_t>(i)] = products_.view().as<float>()[i * k_ + i] / count;
  }
  return means;
}

}  // namespace tessera::quant
