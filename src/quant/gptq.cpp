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
#include "tessera/ops/copy.h"
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

// One row within a block: w are its weights from step `begin` on. A group that begins here gets its
// grid from the weights as they are now.
void quantize_row(Work& work, int64_t row, int64_t begin, int64_t count, const float* u,
                  bool has_grids, bool search_clip, float* w, float* errors) {
  Grid* grids = work.grids.data() + row * work.num_groups();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t step = begin + i;
    const int32_t group = work.group_of[static_cast<size_t>(step)];
    if (!has_grids && step % work.group == 0) {
      grids[group] =
          search_clip ? search_grid(w + i, work.importance.data() + step, work.group, work.format)
                      : grid_of(w + i, work.group, 1.0f, work.format);
    }
    const Grid& grid = grids[group];
    const float code = grid.code_of(w[i]);
    work.codes[static_cast<size_t>(row * work.k + step)] = code;
    const float* factors = u + i * count;
    const float error = (w[i] - grid.value_of(code)) / factors[i];
    for (int64_t j = i + 1; j < count; ++j) w[j] -= error * factors[j];
    errors[i] = -error;
  }
}

std::vector<float> diagonal_of(const TensorView& matrix) {
  TensorView line = matrix;
  line.rank = 1;
  line.shape = {matrix.size(0)};
  line.strides = {matrix.stride(0) + 1};
  const Tensor values(DType::f32, {matrix.size(0)}, matrix.device);
  copy({.x = line, .out = values});
  const Tensor host = values.to(cpu_device());
  return {host.view().as<float>(), host.view().as<float>() + matrix.size(0)};
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

// All blocks, with weights and factor on the CPU.
void quantize_columns(Work& work, const TensorView& factor, const GptqOptions& options,
                      const Context& ctx) {
  const bool is_static = options.order == ActOrder::weight;
  const TensorView weights = TensorView::contiguous(work.w.data(), DType::f32, {work.n, work.k});
  for (int64_t begin = 0; begin < work.k; begin += options.block) {
    const int64_t count = std::min(options.block, work.k - begin), end = begin + count;
    const std::vector<float> u = own_part(factor, begin, count);
    const Tensor errors(DType::f32, {work.n, count});
    parallel_for(work.n, count * count, [&](int64_t row) {
      quantize_row(work, row, begin, count, u.data(), is_static, options.search_clip,
                   work.w.data() + row * work.k + begin, errors.view().as<float>() + row * count);
    });
    if (end == work.k) return;
    const TensorView rest = weights.slice(1, end, work.k);
    gemm({.a = errors,
          .b = factor.slice(0, end, work.k).slice(1, begin, end),
          .out = rest,
          .residual = rest},
         ctx);
  }
}

// A matrix with its columns in reverse order.
Tensor reversed(const float* from, int64_t rows, int64_t cols) {
  Tensor made(DType::f32, {rows, cols});
  parallel_for(rows, cols, [&](int64_t row) {
    std::reverse_copy(from + row * cols, from + (row + 1) * cols,
                      made.view().as<float>() + row * cols);
  });
  return made;
}

// A part of a matrix on a device, contiguous on the CPU.
Tensor to_cpu(const TensorView& part, const Context& ctx) {
  const Tensor plain(DType::f32, {part.size(0), part.size(1)}, part.device);
  copy({.x = part, .out = plain}, ctx);
  return plain.to(cpu_device());
}

// The same with weights and factor on a device and their columns in reverse order, as
// factor_inverse_by_blocks leaves it: only the columns of a block come to the CPU.
void quantize_columns_by_products(Work& work, const TensorView& factor, const GptqOptions& options,
                                  const Context& ctx) {
  const bool is_static = options.order == ActOrder::weight;
  const int64_t n = work.n, k = work.k;
  if (!is_static && options.block % work.group != 0) {
    fail(concat("Gptq: groups of ", work.group, " and blocks of ", options.block,
                "; by products a group must divide the block, or the order be that of the weight"));
  }
  const Tensor weights = reversed(work.w.data(), n, k).to(factor.device);
  for (int64_t begin = 0; begin < k; begin += options.block) {
    const int64_t count = std::min(options.block, k - begin), end = begin + count;
    const auto own = [&](const TensorView& matrix) { return matrix.slice(1, k - end, k - begin); };
    const Tensor part = to_cpu(own(factor).slice(0, k - end, k - begin), ctx);
    std::vector<float> u(static_cast<size_t>(count * count));
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t j = i; j < count; ++j) {
        u[static_cast<size_t>(i * count + j)] =
            part.view().as<float>()[(count - 1 - j) * count + count - 1 - i];
      }
    }
    const Tensor block = to_cpu(own(weights), ctx);
    const Tensor current = reversed(block.view().as<float>(), n, count);
    const Tensor errors(DType::f32, {n, count});
    parallel_for(n, count * count, [&](int64_t row) {
      quantize_row(work, row, begin, count, u.data(), is_static, options.search_clip,
                   current.view().as<float>() + row * count,
                   errors.view().as<float>() + row * count);
    });
    if (end == k) return;
    const TensorView rest = weights.view().slice(1, 0, k - end);
    gemm({.a = reversed(errors.view().as<float>(), n, count).to(factor.device),
          .b = own(factor).slice(0, 0, k - end),
          .out = rest,
          .residual = rest},
         ctx);
  }
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

Gptq::Gptq(const InputStats& stats, const GptqOptions& options, const Context& ctx)
    : options_(options), k_(stats.k()), damping_(options.damping) {
  expects(stats.has_products(), "Gptq: the statistics have no products; make them with them");
  expects(stats.num_rows() > 0, "Gptq: the statistics have no inputs; add some first");
  if (options.block < 1 || !(options.damping >= 0.0)) {
    fail(concat("Gptq: block is ", options.block, " and damping ", options.damping,
                "; block must be at least 1 and damping at least 0"));
  }
  if (!stats.products().device.is_cpu()) options_.by_products = true;
  const Device device = stats.products().device;
  const Tensor moved = device.is_cpu() ? Tensor() : to_cpu(stats.products(), ctx);
  const auto* sums = (device.is_cpu() ? stats.products() : moved.view()).as<float>();
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
  factor_ = Tensor(DType::f32, {k_, k_}, device);
  // Element i, j of H with its columns in their order, damped.
  const auto at = [&](int64_t i, int64_t j) {
    const int64_t row = columns_[static_cast<size_t>(i)];
    if (i != j) return double{sums[row * k_ + columns_[static_cast<size_t>(j)]]};
    const double own = mean > 0.0 ? mean : 1.0;
    return (is_dead_[static_cast<size_t>(row)] ? own : diagonal(row)) + damping_ * mean;
  };
  // Damping that is too small for few inputs is raised until the factor exists.
  for (;;) {
    if (options_.by_products) {
      const Tensor h(DType::f32, {k_, k_});
      parallel_for(k_, k_, [&](int64_t i) {
        for (int64_t j = 0; j < k_; ++j) {
          h.view().as<float>()[i * k_ + j] = static_cast<float>(at(k_ - 1 - i, k_ - 1 - j));
        }
      });
      if (factor_inverse_by_blocks(h.to(device), factor_, ctx)) return;
    } else {
      std::vector<double> h(static_cast<size_t>(k_ * k_));
      parallel_for(k_, k_, [&](int64_t i) {
        for (int64_t j = 0; j < k_; ++j) h[static_cast<size_t>(i * k_ + j)] = at(i, j);
      });
      if (factor_inverse(h, k_, factor_)) return;
    }
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
  const std::vector<float> pivots = diagonal_of(factor_);
  for (int64_t i = 0; i < k_; ++i) {
    const int64_t column = columns_[static_cast<size_t>(i)];
    const float pivot = pivots[static_cast<size_t>(options_.by_products ? k_ - 1 - i : i)];
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
  if (options_.by_products) {
    quantize_columns_by_products(work, factor_, options_, ctx);
  } else {
    quantize_columns(work, factor_, options_, ctx);
  }
  return finish(work, columns_, options_.order == ActOrder::group);
}

}  // namespace tessera::quant
