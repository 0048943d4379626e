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
#include "tessera/core/host_buffer.h"
#include "tessera/ops/copy.h"
#include "tessera/ops/embedding.h"
#include "tessera/ops/gemm.h"
#include "tessera/quant/quantizers.h"

namespace tessera::quant {
namespace {

// One weight on its way through the columns.
struct Work {
  const QuantFormat& format;
  int64_t n, k, group;
  Tensor w;                       // f32 [n, k], columns in the order they are taken; by products
                                  // in the reverse of it
  Tensor codes;                   // i8 [n, k], in the order they are taken
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
// grid from the weights as they are now. `errors` may be w.
void quantize_row(Work& work, int64_t row, int64_t begin, int64_t count, const float* u,
                  bool has_grids, bool search_clip, float* w, float* errors) {
  Grid* grids = work.grids.data() + row * work.num_groups();
  auto* codes = work.codes.view().as<int8_t>() + row * work.k;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t step = begin + i;
    const int32_t group = work.group_of[static_cast<size_t>(step)];
    if (!has_grids && step % work.group == 0) {
      grids[group] =
          search_clip ? search_grid(w + i, work.importance.data() + step, work.group, work.format)
                      : grid_of(range_of(w + i, work.group), 1.0f, work.format);
    }
    const Grid& grid = grids[group];
    const float code = grid.code_of(w[i]);
    codes[step] = static_cast<int8_t>(code);
    const float* factors = u + i * count;
    const float error = (w[i] - grid.value_of(code)) / factors[i];
    for (int64_t j = i + 1; j < count; ++j) w[j] -= error * factors[j];
    errors[i] = -error;
  }
}

TensorView diagonal_view(const TensorView& matrix) {
  TensorView line = matrix;
  line.rank = 1;
  line.shape = {matrix.size(0)};
  line.strides = {matrix.stride(0) + 1};
  return line;
}

std::vector<float> diagonal_of(const TensorView& matrix) {
  const Tensor values(DType::f32, {matrix.size(0)}, matrix.device);
  copy({.x = diagonal_view(matrix), .out = values});
  const Tensor host = values.to(cpu_device());
  return {host.view().as<float>(), host.view().as<float>() + matrix.size(0)};
}

// A symmetric matrix with its rows and columns in another order, on its device.
Tensor in_order(const TensorView& matrix, const std::vector<int32_t>& order, const Context& ctx) {
  const int64_t k = matrix.size(0);
  const Tensor ids(DType::i32, {k});
  std::ranges::copy(order, ids.view().as<int32_t>());
  const Tensor there = ids.to(matrix.device), turned(DType::f32, {k, k}, matrix.device);
  Tensor rows(DType::f32, {k, k}, matrix.device);
  embedding({.table = matrix, .ids = there, .out = rows}, ctx);
  copy({.x = rows.view().transposed(0, 1), .out = turned}, ctx);
  embedding({.table = turned, .ids = there, .out = rows}, ctx);
  return rows;
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
                      : grid_of(range_of(values + at, work.group), 1.0f, work.format);
    }
  });
}

// All blocks, with weights and factor on the CPU.
void quantize_columns(Work& work, const TensorView& factor, const GptqOptions& options,
                      const Context& ctx) {
  const bool is_static = options.order == ActOrder::weight;
  const TensorView& weights = work.w;
  for (int64_t begin = 0; begin < work.k; begin += options.block) {
    const int64_t count = std::min(options.block, work.k - begin), end = begin + count;
    const std::vector<float> u = own_part(factor, begin, count);
    const Tensor errors(DType::f32, {work.n, count});
    parallel_for(work.n, count * count, [&](int64_t row) {
      quantize_row(work, row, begin, count, u.data(), is_static, options.search_clip,
                   weights.as<float>() + row * work.k + begin,
                   errors.view().as<float>() + row * count);
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

// Room for a part of a matrix, contiguous on a device, and for the same in host memory.
class Staging {
 public:
  Staging(int64_t num_elements, Device device)
      : there_(DType::f32, {num_elements}, device),
        here_(device, static_cast<size_t>(4 * num_elements)) {}

  // The elements of a part, row by row; they may be changed.
  float* fetch(const TensorView& part, const Context& ctx) {
    const TensorView plain = view(part.size(0), part.size(1));
    copy({.x = part, .out = plain}, ctx);
    copy_bytes(here_.as<float>(), cpu_device(), plain.data, plain.device, num_bytes(plain),
               ctx.stream);
    synchronize(plain.device, ctx.stream);
    return here_.as<float>();
  }
  // The host's elements on the device, until the next fetch.
  TensorView send(int64_t rows, int64_t cols, const Context& ctx) {
    const TensorView plain = view(rows, cols);
    copy_bytes(plain.data, plain.device, here_.as<float>(), cpu_device(), num_bytes(plain),
               ctx.stream);
    return plain;
  }

 private:
  TensorView view(int64_t rows, int64_t cols) const {
    return TensorView::contiguous(there_.view().data, DType::f32, {rows, cols},
                                  there_.view().device);
  }
  static size_t num_bytes(const TensorView& view) {
    return static_cast<size_t>(4 * view.num_elements());
  }

  Tensor there_;
  HostBuffer here_;
};

// The same with weights and factor on a device and their columns in reverse order, as
// factor_inverse_by_blocks leaves it: only the columns of a block come to the CPU.
void quantize_columns_by_products(Work& work, const TensorView& factor, const GptqOptions& options,
                                  const Context& ctx) {
  const bool is_static = options.order == ActOrder::weight;
  const int64_t n = work.n, k = work.k, most = std::min(k, options.block);
  if (!is_static && options.block % work.group != 0) {
    fail(concat("Gptq: groups of ", work.group, " and blocks of ", options.block,
                "; by products a group must divide the block, or the order be that of the weight"));
  }
  const Tensor weights = work.w.to(factor.device);
  Staging columns(n * most, factor.device), triangle(most * most, factor.device);
  for (int64_t begin = 0; begin < k; begin += options.block) {
    const int64_t count = std::min(options.block, k - begin), end = begin + count;
    const auto own = [&](const TensorView& matrix) { return matrix.slice(1, k - end, k - begin); };
    const float* part = triangle.fetch(own(factor).slice(0, k - end, k - begin), ctx);
    std::vector<float> u(static_cast<size_t>(count * count));
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t j = i; j < count; ++j) {
        u[static_cast<size_t>(i * count + j)] = part[(count - 1 - j) * count + count - 1 - i];
      }
    }
    float* values = columns.fetch(own(weights), ctx);
    parallel_for(n, count * count, [&](int64_t row) {
      float* w = values + row * count;
      std::reverse(w, w + count);
      quantize_row(work, row, begin, count, u.data(), is_static, options.search_clip, w, w);
      std::reverse(w, w + count);
    });
    if (end == k) return;
    const TensorView rest = weights.view().slice(1, 0, k - end);
    gemm({.a = columns.send(n, count, ctx),
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
      codes[static_cast<size_t>(place)] = work.codes.view().as<uint8_t>()[row * k + i];
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
  const std::vector<float> sums = diagonal_of(stats.products());
  const auto diagonal = [&](int64_t i) { return double{sums[static_cast<size_t>(i)]}; };
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
  factor_ = Tensor(DType::f32, {k_, k_}, stats.products().device);
  // Damping that is too small for few inputs is raised until the factor exists.
  while (!factor(stats.products(), sums, mean, ctx)) {
    damping_ = damping_ > 0.0 ? 10.0 * damping_ : 1e-6;
    if (damping_ > 1e3) fail("Gptq: the inputs' products have no positive definite sum");
  }
}

// Factors H: the products of the inputs, with rows and columns in the order in which columns are
// quantised, and damping on the diagonal. False if H is not positive definite.
bool Gptq::factor(const TensorView& products, std::span<const float> diagonal, double mean,
                  const Context& ctx) {
  std::vector<double> damped(static_cast<size_t>(k_));  // by step
  for (int64_t i = 0; i < k_; ++i) {
    const auto column = static_cast<size_t>(columns_[static_cast<size_t>(i)]);
    const double own = is_dead_[column] ? (mean > 0.0 ? mean : 1.0) : diagonal[column];
    damped[static_cast<size_t>(i)] = own + damping_ * mean;
  }
  if (options_.by_products) {
    const Tensor h = in_order(products, {columns_.rbegin(), columns_.rend()}, ctx);
    const Tensor line(DType::f32, {k_});
    for (int64_t i = 0; i < k_; ++i) {
      line.view().as<float>()[i] = static_cast<float>(damped[static_cast<size_t>(k_ - 1 - i)]);
    }
    copy({.x = line.to(products.device), .out = diagonal_view(h)}, ctx);
    return factor_inverse_by_blocks(h, factor_, ctx);
  }
  std::vector<double> h(static_cast<size_t>(k_ * k_));
  parallel_for(k_, k_, [&](int64_t i) {
    const float* row = products.as<float>() + columns_[static_cast<size_t>(i)] * k_;
    for (int64_t j = 0; j < k_; ++j) {
      h[static_cast<size_t>(i * k_ + j)] = row[columns_[static_cast<size_t>(j)]];
    }
    h[static_cast<size_t>(i * k_ + i)] = damped[static_cast<size_t>(i)];
  });
  return factor_inverse(h, k_, factor_);
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
  work.w = Tensor(DType::f32, {work.n, k_});
  work.codes = Tensor(DType::i8, {work.n, k_});
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
    const float* from = w.as<float>() + row * w.stride(0);
    float* to = work.w.view().as<float>() + row * k_;
    for (int64_t i = 0; i < k_; ++i) {
      const int64_t column = columns_[static_cast<size_t>(i)];
      to[options_.by_products ? k_ - 1 - i : i] =
          is_dead_[static_cast<size_t>(column)] ? 0.0f : from[column];
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
