// Cholesky's factorisation from the last row up, and the inverse of its factor.
// SPDX-License-Identifier: MIT
//
// With J the reversal of rows and J H J = L L^T, H^-1 = J L^-T L^-1 J = U^T U for U = J L^-1 J. So
// one factorisation and one triangular inverse give U, and H^-1 itself is never formed.
#include "quant/inverse_factor.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"

namespace tessera::quant {
namespace {

constexpr int64_t kPanel = 64;

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

}  // namespace

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
