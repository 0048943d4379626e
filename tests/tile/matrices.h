// Integer matrices in any storage type, and their exact product, for the tests of tile/.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "tessera/core/convert.h"
#include "tessera/core/dtype.h"

namespace tessera::testing {

// Row-major, as integers. Small enough that every sum of products is exact in f32 whatever the
// order; FP8 stays within [-2, 2], because its accumulators keep fewer bits.
struct IntMatrix {
  int num_rows;
  int num_cols;
  std::vector<int> values;

  int at(int row, int col) const { return values[static_cast<size_t>(row * num_cols + col)]; }
};

template <class T>
inline constexpr int kLargestOperand =
    std::is_same_v<T, int8_t> ? 127 : (std::is_same_v<T, E4m3> || std::is_same_v<T, E5m2> ? 2 : 4);

inline IntMatrix random_matrix(int num_rows, int num_cols, int largest, unsigned seed) {
  std::mt19937 generator(seed);
  IntMatrix out{num_rows, num_cols, {}};
  for (int i = 0; i < num_rows * num_cols; ++i) {
    out.values.push_back(static_cast<int>(generator() % (2 * static_cast<unsigned>(largest) + 1)) -
                         largest);
  }
  return out;
}

template <class T>
std::vector<T> store_as(const IntMatrix& matrix) {
  std::vector<T> out;
  for (const int value : matrix.values) out.push_back(from_float<T>(static_cast<float>(value)));
  return out;
}

// a[m, k] . b[n, k]^T
inline IntMatrix product(const IntMatrix& a, const IntMatrix& b) {
  IntMatrix out{a.num_rows, b.num_rows, {}};
  for (int row = 0; row < a.num_rows; ++row) {
    for (int col = 0; col < b.num_rows; ++col) {
      int sum = 0;
      for (int k = 0; k < a.num_cols; ++k) sum += a.at(row, k) * b.at(col, k);
      out.values.push_back(sum);
    }
  }
  return out;
}

inline IntMatrix transposed(const IntMatrix& in) {
  IntMatrix out{in.num_cols, in.num_rows, {}};
  for (int row = 0; row < in.num_cols; ++row) {
    for (int col = 0; col < in.num_rows; ++col) out.values.push_back(in.at(col, row));
  }
  return out;
}

// The number of elements that differ, and the first of them; a message for EXPECT_EQ(…, "").
template <class T>
std::string difference(const std::vector<T>& got, const IntMatrix& want) {
  int num_wrong = 0;
  std::string first;
  for (size_t i = 0; i < want.values.size(); ++i) {
    const float value = to_float(got[i]);
    if (value == static_cast<float>(want.values[i])) continue;
    const auto row = i / static_cast<size_t>(want.num_cols);
    const auto col = i % static_cast<size_t>(want.num_cols);
    if (num_wrong++ == 0) {
      first = "element (" + std::to_string(row) + ", " + std::to_string(col) + ") is " +
              std::to_string(value) + ", want " + std::to_string(want.values[i]);
    }
  }
  if (num_wrong == 0) return {};
  return first + "; " + std::to_string(num_wrong) + " of " + std::to_string(want.values.size()) +
         " differ";
}

}  // namespace tessera::testing
