// GPTQ: rounding column by column, with the errors passed on.
// SPDX-License-Identifier: MIT
//
//   H = sum of x x^T over the inputs, damped;  H^-1 = U^T U
//   for each column i in turn:   q = round(w[:, i]);  e = (w[:, i] - q) / U[i, i]
//                                w[:, j] -= e * U[i, j]          for every later column j
//
// Within a block of columns a row is handled by itself; the later blocks get the errors of a whole
// block as one product. Rows do not depend on each other, so they are shared among the threads.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/parallel.h"
#include "core/text.h"
#include "quant/check.h"
#include "quant/grid.h"
#include "quant/inverse_factor.h"
#include "tessera/core/error.h"
#include "tessera/ops/gemm.h"
#include "tessera/quant/quantizers.h"

namespace tessera::quant {
namespace {

// One weight on its way through the columns.
struct Work {
  const QuantFormat& format;
  int64_t n, k, group;
  std::vector<float> w;           // [n, k], columns in the order they are taken
  std::vector<float> codes;       // the same
  std::vector<Grid> grids;        // [n, k / group]
  std::vector<int32_t> group_of;  // by step: the group of its column
  std::vector<float> importance;  // by step

  int64_t num_groups() const { return k / group; }
};

// The part of U that a block uses within itself: [block, block], row by row.
std::vector<float> own_part(const TensorView& factor, int64_t begin, int64_t count) {
  const int64_t k = factor.size(0);
  std::vector<float> part(static_cast<size_t>(count * count));
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = i; j < count; ++j) {
      part[static_cast<size_t>(i * count + j)] = factor.as<float>()[(begin + j) * k + begin + i];
    }
  }
  return part;
}

// One row within a block. A group that begins here gets its grid from the weights as they are now.
void quantize_row(Work& work, int64_t row, int64_t begin, int64_t count, const float* u,
                  bool has_grids, bool search_clip, float* errors) {
  float* w = work.w.data() + row * work.k;
  Grid* grids = work.grids.data() + row * work.num_groups();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t step = begin + i;
    const int32_t group = work.group_of[static_cast<size_t>(step)];
    if (!has_grids && step % work.group == 0) {
      grids[group] = search_clip ? search_grid(w + step, work.importance.data() + step, work.group,
                                               work.format)
                                 : grid_of(w + step, work.group, 1.0f, work.format);
    }
    const Grid& grid = grids[group];
    const float code = grid.code_of(w[step]);
    work.codes[static_cast<size_t>(row * work.k + step)] = code;
    const float* factors = u + i * count;
    const float error = (w[step] - grid.value_of(code)) / factors[i];
    for (int64_t j = i + 1; j < count; ++j) w[begin + j] -= error * factors[j];
    errors[i] = -error;
  }
}

// Grids of the groups as they lie in the original.
void find_grids(Work& work, const TensorView& w, std::span<const float> importance,
                bool search_clip) {
  parallel_for(work.n, 20 * work.k, [&](int64_t row) {
    const float* values = w.as<float>() + row * w.stride(0);
    for (int64_t g = 0; g < work.num_groups(); ++g) {
      const int64_t at = g * work.group;
      work.grids[static_cast<size_t>(row * work.num_groups() + g)] =
          search_clip ? search_grid(values + at, importance.data() + at, work.group, work.format)
                      : grid_of(values + at, work.group, 1.0f, work.format);
    }
  });
}

QuantizedWeight finish(const Work& work, std::span<const int32_t> columns, bool keeps_order) {
  QuantizedWeight made = empty_rows(work.format, work.n, work.k);
  const int64_t num_groups = work.num_groups(), k = work.k;
  for (int64_t i = 0; i < work.n * num_groups; ++i) {
    made.scale.view().as<float>()[i] = work.grids[static_cast<size_t>(i)].scale;
    if (work.format.has_zero_points()) {
      made.zero_point.view().as<int32_t>()[i] = work.grids[static_cast<size_t>(i)].zero;
    }
  }
  const bool is_i4 = work.format.codes == CodeFormat::int4;
  auto* bytes = made.values.view().as<uint8_t>();
  parallel_for(work.n, k, [&](int64_t row) {
    std::vector<uint8_t> codes(static_cast<size_t>(k));
    for (int64_t i = 0; i < k; ++i) {
      const int64_t place = keeps_order ? i : columns[static_cast<size_t>(i)];
      const auto code = static_cast<int>(work.codes[static_cast<size_t>(row * k + i)]);
      codes[static_cast<size_t>(place)] = static_cast<uint8_t>(code);
    }
    if (!is_i4) {
      std::copy(codes.begin(), codes.end(), bytes + row * k);
      return;
    }
    for (int64_t i = 0; i < k; i += 2) {
      const int low = codes[static_cast<size_t>(i)] & 15;
      const int high = codes[static_cast<size_t>(i + 1)] & 15;
      bytes[(row * k + i) / 2] = static_cast<uint8_t>(low | high << 4);
    }
  });
  if (keeps_order) {
    made.order = Tensor(DType::i32, {k});
    std::copy(columns.begin(), columns.end(), made.order.view().as<int32_t>());
  }
  return made;
}

}  // namespace

Gptq::Gptq(const InputStats& stats, const GptqOptions& options, const Context&)
    : options_(options), k_(stats.k()), damping_(options.damping) {
  expects(stats.has_products(), "Gptq: the statistics have no products; make them with them");
  expects(stats.num_rows() > 0, "Gptq: the statistics have no inputs; add some first");
  if (options.block < 1 || !(options.damping >= 0.0)) {
    fail(concat("Gptq: block is ", options.block, " and damping ", options.damping,
                "; block must be at least 1 and damping at least 0"));
  }
  const auto* sums = stats.products().as<float>();
  const auto diagonal = [&](int64_t i) { return double{sums[i * k_ + i]}; };
  is_dead_.resize(static_cast<size_t>(k_));
  double mean = 0.0;
  for (int64_t i = 0; i < k_; ++i) {
    if (!std::isfinite(diagonal(i))) {
      fail(concat("Gptq: the inputs of column ", i, " are not finite; check the model's weights"));
    }
    is_dead_[static_cast<size_t>(i)] = diagonal(i) <= 0.0;
    mean += diagonal(i) / static_cast<double>(k_);
  }
  columns_.resize(static_cast<size_t>(k_));
  std::iota(columns_.begin(), columns_.end(), 0);
  if (options.order != ActOrder::none) {
    std::ranges::stable_sort(columns_,
                             [&](int32_t a, int32_t b) { return diagonal(a) > diagonal(b); });
  }
  factor_ = Tensor(DType::f32, {k_, k_});
  // Damping that is too small for few inputs is raised until the factor exists.
  for (;;) {
    std::vector<double> h(static_cast<size_t>(k_ * k_));
    for (int64_t i = 0; i < k_; ++i) {
      const int64_t row = columns_[static_cast<size_t>(i)];
      for (int64_t j = 0; j < k_; ++j) {
        h[static_cast<size_t>(i * k_ + j)] = sums[row * k_ + columns_[static_cast<size_t>(j)]];
      }
      double& pivot = h[static_cast<size_t>(i * k_ + i)];
      pivot = is_dead_[static_cast<size_t>(row)] ? (mean > 0.0 ? mean : 1.0) : pivot;
      pivot += damping_ * mean;
    }
    if (factor_inverse(h, k_, factor_)) return;
    damping_ = damping_ > 0.0 ? 10.0 * damping_ : 1e-6;
    if (damping_ > 1e3) fail("Gptq: the inputs' products have no positive definite sum");
  }
}

QuantizedWeight Gptq::quantize(const TensorView& w, const QuantFormat& format,
                               const Context& ctx) const {
  expect_matrix("Gptq: w", w);
  expect_integers("Gptq", format);
  check_format(format, w.size(0), w.size(1), "Gptq: w");
  if (w.size(1) != k_) {
    fail(concat("Gptq: w is ", to_string(w), " and its inputs have ", k_, " columns"));
  }
  Work work{.format = format,
            .n = w.size(0),
            .k = k_,
            .group = format.group_of(k_),
            .w = {},
            .codes = {},
            .grids = {},
            .group_of = {},
            .importance = {}};
  const auto size = static_cast<size_t>(work.n * k_);
  work.w.resize(size);
  work.codes.resize(size);
  work.grids.resize(static_cast<size_t>(work.n * work.num_groups()));
  const bool is_static = options_.order == ActOrder::weight;
  std::vector<float> original_importance(static_cast<size_t>(k_));
  for (int64_t i = 0; i < k_; ++i) {
    const int64_t column = columns_[static_cast<size_t>(i)];
    const float pivot = factor_.view().as<float>()[i * k_ + i];
    work.group_of.push_back(static_cast<int32_t>((is_static ? column : i) / work.group));
    work.importance.push_back(1.0f / (pivot * pivot));
    original_importance[static_cast<size_t>(column)] = work.importance.back();
  }
  parallel_for(work.n, k_, [&](int64_t row) {
    for (int64_t i = 0; i < k_; ++i) {
      const int64_t column = columns_[static_cast<size_t>(i)];
      work.w[static_cast<size_t>(row * k_ + i)] =
          is_dead_[static_cast<size_t>(column)] ? 0.0f : w.as<float>()[row * w.stride(0) + column];
    }
  });
  if (is_static) find_grids(work, w, original_importance, options_.search_clip);
  const TensorView weights = TensorView::contiguous(work.w.data(), DType::f32, {work.n, k_});
  for (int64_t begin = 0; begin < k_; begin += options_.block) {
    const int64_t count = std::min(options_.block, k_ - begin), end = begin + count;
    const std::vector<float> u = own_part(factor_, begin, count);
    const Tensor errors(DType::f32, {work.n, count});
    parallel_for(work.n, count * count, [&](int64_t row) {
      quantize_row(work, row, begin, count, u.data(), is_static, options_.search_clip,
                   errors.view().as<float>() + row * count);
    });
    if (end == k_) break;
    const TensorView rest = weights.slice(1, end, k_);
    gemm({.a = errors,
          .b = factor_.view().slice(0, end, k_).slice(1, begin, end),
          .out = rest,
          .residual = rest},
         ctx);
  }
  return finish(work, columns_, options_.order == ActOrder::group);
}

}  // namespace tessera::quant
