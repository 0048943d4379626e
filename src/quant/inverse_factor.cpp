// Cholesky's factorisation from the last row up, and the inverse of its factor.
// SPDX-License-Identifier: MIT
//
// With J the reversal of rows and J H J = L L^T, H^-1 = J L^-T L^-1 J = U^T U for U = J L^-1 J. So
// one factorisation and one triangular inverse give U, and H^-1 itself is never formed.
#include "quant/inverse_factor.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/parallel.h"
#include "tessera/ops/copy.h"
#include "tessera/ops/gemm.h"

namespace tessera::quant {
namespace {

constexpr int64_t kPanel = 64;
constexpr int64_t kBlock = 256;  // of factor_inverse_by_blocks

// In a fixed order that vectorises: eight sums, then those.
double dot(const double* a, const double* b, int64_t count) {
  double sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int j = 0; j < 8; ++j) sums[j] += a[i + j] * b[i + j];
  }
  for (; i < count; ++i) sums[0] += a[i] * b[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// L in place, in the lower triangle.
bool factor_in_place(double* a, int64_t k) {
  for (int64_t begin = 0; begin < k; begin += kPanel) {
    const int64_t end = std::min(k, begin + kPanel);
    for (int64_t col = begin; col < end; ++col) {
      double* pivot_row = a + col * k;
      const double pivot = pivot_row[col] - dot(pivot_row + begin, pivot_row + begin, col - begin);
      if (!(pivot > 0.0) || !std::isfinite(pivot)) return false;
      pivot_row[col] = std::sqrt(pivot);
      for (int64_t row = col + 1; row < end; ++row) {
        double* values = a + row * k;
        values[col] =
            (values[col] - dot(values + begin, pivot_row + begin, col - begin)) / pivot_row[col];
      }
    }
    parallel_for(k - end, kPanel * kPanel, [&](int64_t i) {
      double* values = a + (end + i) * k;
      for (int64_t col = begin; col < end; ++col) {
        const double* pivot_row = a + col * k;
        values[col] =
            (values[col] - dot(values + begin, pivot_row + begin, col - begin)) / pivot_row[col];
      }
    });
    parallel_for(k - end, kPanel * k / 2, [&](int64_t i) {
      double* values = a + (end + i) * k;
      for (int64_t col = end; col <= end + i; ++col) {
        values[col] -= dot(values + begin, a + col * k + begin, end - begin);
      }
    });
  }
  return true;
}

// L^-1 of the Cholesky factor of a block, f32 on the CPU, and the same negated; none if it is not
// positive definite.
struct BlockInverse {
  Tensor plain, negative;
};
std::optional<BlockInverse> invert_block(const Tensor& block) {
  const int64_t count = block.view().size(0);
  const auto* values = block.view().as<float>();
  std::vector<double> l(values, values + count * count);
  if (!factor_in_place(l.data(), count)) return std::nullopt;
  BlockInverse made{Tensor::zeros(DType::f32, {count, count}),
                    Tensor::zeros(DType::f32, {count, count})};
  for (int64_t c = 0; c < count; ++c) {
    std::vector<double> column(static_cast<size_t>(count));
    for (int64_t row = c; row < count; ++row) {
      const double* of_row = l.data() + row * count;
      const double sum = (row == c ? 1.0 : 0.0) - dot(of_row + c, column.data() + c, row - c);
      column[static_cast<size_t>(row)] = sum / of_row[row];
      const auto value = static_cast<float>(column[static_cast<size_t>(row)]);
      made.plain.view().as<float>()[row * count + c] = value;
      made.negative.view().as<float>()[row * count + c] = -value;
    }
  }
  return made;
}

}  // namespace

bool factor_inverse_by_blocks(const TensorView& h, const TensorView& factor, const Context& ctx) {
  const int64_t k = h.size(0);
  const Device device = h.device;
  const auto part = [](const TensorView& matrix, int64_t row, int64_t row_end, int64_t col,
                       int64_t col_end) {
    return matrix.slice(0, row, row_end).slice(1, col, col_end);
  };
  copy({.x = Tensor::zeros(DType::f32, {k, k}, device), .out = factor}, ctx);
  for (int64_t begin = 0; begin < k; begin += kBlock) {
    const int64_t end = std::min(k, begin + kBlock), count = end - begin;
    const Tensor block(DType::f32, {count, count}, device);
    copy({.x = part(h, begin, end, begin, end), .out = block}, ctx);
    const auto inverse = invert_block(block.to(cpu_device()));
    if (!inverse) return false;
    const Tensor plain = inverse->plain.to(device), negative = inverse->negative.to(device);
    copy({.x = plain.view().transposed(0, 1), .out = part(factor, begin, end, begin, end)}, ctx);
    if (begin > 0) {
      // The columns of L^-1 above this block of rows, which are rows of the factor.
      const Tensor products(DType::f32, {begin, count}, device);
      gemm({.a = part(factor, 0, begin, 0, begin),
            .b = part(h, begin, end, 0, begin),
            .out = products},
           ctx);
      gemm({.a = products, .b = negative.view(), .out = part(factor, 0, begin, begin, end)}, ctx);
    }
    if (end == k) break;
    const TensorView below = part(h, end, k, begin, end), rest = part(h, end, k, end, k);
    const Tensor panel(DType::f32, {k - end, count}, device);
    const Tensor negative_panel(DType::f32, {k - end, count}, device);
    gemm({.a = below, .b = plain.view(), .out = panel}, ctx);
    gemm({.a = below, .b = negative.view(), .out = negative_panel}, ctx);
    gemm({.a = negative_panel, .b = panel.view(), .out = rest, .residual = rest}, ctx);
    copy({.x = panel, .out = below}, ctx);
  }
  return true;
}

bool factor_inverse(std::vector<double>& h, int64_t k, const TensorView& factor) {
  std::reverse(h.begin(), h.end());  // J H J, row by row
  if (!factor_in_place(h.data(), k)) return false;
  auto* out = factor.as<float>();
  // Column c of L^-1 is row k - 1 - c of the result, reversed.
  parallel_for(k, k * k / 4, [&](int64_t c) {
    std::vector<double> column(static_cast<size_t>(k));
    for (int64_t row = c; row < k; ++row) {
      const double* l = h.data() + row * k;
      const double sum = (row == c ? 1.0 : 0.0) - dot(l + c, column.data() + c, row - c);
      column[static_cast<size_t>(row)] = sum / l[row];
    }
    float* to = out + (k - 1 - c) * k;
    for (int64_t i = 0; i < k; ++i) {
      to[i] = static_cast<float>(column[static_cast<size_t>(k - 1 - i)]);
    }
  });
  return true;
}

}  // namespace tessera::quant
