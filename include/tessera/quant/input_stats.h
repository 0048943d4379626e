// What a quantiser knows about the inputs of a linear layer.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"

namespace tessera::quant {

// Sums over rows x of k inputs, added in the order of the calls.
class InputStats {
 public:
  // Without `has_products` only the sums of single columns are kept, which take k values, not k^2.
  explicit InputStats(int64_t k, bool has_products = true, Device device = {});

  // x: [rows, k]; f32, f16 or bf16.
  void add(const TensorView& x, const Context& ctx = {});
  // The same of inputs divided by `scales`, k of them.
  void divide_columns(std::span<const float> scales);

  int64_t k() const { return k_; }
  int64_t num_rows() const { return num_rows_; }
  bool has_products() const { return has_products_; }
  const TensorView& products() const { return products_.view(); }  // f32 [k, k]: sum of x x^T
  std::vector<float> mean_abs() const;                             // of each column
  const std::vector<float>& max_abs() const { return max_abs_; }
  std::vector<float> mean_square() const;  // from the products

 private:
  int64_t k_ = 0;
  int64_t num_rows_ = 0;
  bool has_products_ = true;
  Tensor products_;
  std::vector<double> sum_abs_;
  std::vector<float> max_abs_;
};

}  // namespace tessera::quant
