// What a quantiser knows about the inputs of a linear layer.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"

namespace tessera::quant {

// Which sums are wanted. Those of single columns take k values, products k^2.
enum class InputSums : uint8_t { columns, products, all };

// Sums over rows x of k inputs, added in the order of the calls. Inputs of 16 bits wait, up to 1 GB
// of them, and are multiplied at once.
class InputStats {
 public:
  // `num_expected` rows are kept waiting at most; 0: as many as fit.
  explicit InputStats(int64_t k, InputSums sums = InputSums::all, Device device = {},
                      int64_t num_expected = 0);

  // x: [rows, k] on the device; f32, f16 or bf16, on a GPU f16 or bf16.
  void add(const TensorView& x, const Context& ctx = {});
  // To be called when all inputs are there, before the sums are read. Products stay on a GPU where
  // only they are wanted.
  void finish(const Context& ctx = {});
  // The same of inputs divided by `scales`, k of them.
  void divide_columns(std::span<const float> scales);

  int64_t k() const { return k_; }
  int64_t num_rows() const { return num_rows_; }
  bool has_products() const { return sums_ != InputSums::columns; }
  const TensorView& products() const { return products_.view(); }  // f32 [k, k]: sum of x x^T
  std::vector<float> mean_abs() const;                             // of each column
  const std::vector<float>& max_abs() const { return max_abs_; }
  std::vector<float> mean_square() const;  // from the products

  // How many inputs of all columns have an absolute value v in each of kNumBins bins, where bin i
  // begins at the float whose bits are i << kBinShift: 32 bins for each power of two. Empty where
  // only products are wanted, and after divide_columns.
  static constexpr int kBinShift = 18;
  static constexpr int64_t kNumBins = int64_t{1} << (31 - kBinShift);
  std::span<const int64_t> magnitudes() const { return magnitudes_; }

 private:
  void add_floats(const TensorView& x, const Context& ctx);
  void add_waiting(const TensorView& x, const Context& ctx);
  void multiply_waiting(const Context& ctx);
  void add_columns(const Tensor& columns);  // f32 [k, rows] on the CPU
  void count_magnitudes(const Tensor& columns);

  int64_t k_ = 0;
  int64_t num_rows_ = 0;
  InputSums sums_ = InputSums::all;
  Device device_;
  int64_t num_expected_ = 0;
  Tensor products_;
  Tensor waiting_;           // [k, room]: rows that are not in the products yet, as columns
  int64_t num_waiting_ = 0;  // of them
  std::vector<double> sum_abs_;
  std::vector<float> max_abs_;
  std::vector<int64_t> magnitudes_;
};

}  // namespace tessera::quant
