// Quantisers of one weight: round to nearest, GPTQ, and the searches of AWQ and SmoothQuant. All
// are deterministic: the same input gives the same bits, whatever the number of threads.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/quant/input_stats.h"
#include "tessera/quant/quantized_weight.h"

namespace tessera::quant {

// Each element becomes the nearest code: scale = max |w| / 7 (127, 448), or with zero points
// (max - min) / 15, as quantize of ops/quantize.h has it. w is f32 [n, k].
QuantizedWeight quantize_rtn(const TensorView& w, const QuantFormat& format,
                             const Context& ctx = {});

// The same with a scale for each group that is at most that of quantize_rtn: of 20 scales down to
// half of it, the one with the smallest sum of importance[i] * (w[i] - value[i])^2. `importance`
// has k values, such as the mean squares of the inputs. int4 and int8 alone.
QuantizedWeight quantize_clipped(const TensorView& w, std::span<const float> importance,
                                 const QuantFormat& format, const Context& ctx = {});

// In which order GPTQ takes the columns of a weight.
enum class ActOrder : uint8_t {
  none,    // as they lie
  weight,  // those with the largest inputs first; groups are of the original order
  group,   // the same; groups are of the sorted order, which the result's `order` keeps
};

struct GptqOptions {
  double damping = 0.01;  // of the mean of the Hessian's diagonal, added to it
  int64_t block = 128;    // columns whose errors are passed on together
  ActOrder order = ActOrder::none;
  bool search_clip = false;  // scales as in quantize_clipped
  // Factors in float, and updates weights, by products on the device of the statistics: what a GPU
  // always does. Without it, on the CPU, the factor is computed in double.
  bool by_products = false;
};

// GPTQ: columns are rounded one after the other, and the error of each is made up for by the
// columns that follow, so that the sum of squares of (w - value) . x over the inputs x stays small.
// One object serves all weights that read the same inputs.
class Gptq {
 public:
  // Refuses statistics without inputs or with values that are not finite; by products also groups
  // that are neither of the original order nor divisors of `block`, when it quantises.
  Gptq(const InputStats& stats, const GptqOptions& options, const Context& ctx = {});
  // int4 and int8 alone.
  QuantizedWeight quantize(const TensorView& w, const QuantFormat& format,
                           const Context& ctx = {}) const;
  double damping() const { return damping_; }  // what the factorisation needed; at least the option

 private:
  bool factor(const TensorView& products, std::span<const float> diagonal, double mean,
              const Context& ctx);

  GptqOptions options_;
  int64_t k_ = 0;
  double damping_ = 0;
  std::vector<int32_t> columns_;  // the column that is taken at each step
  std::vector<bool> is_dead_;     // columns whose inputs are all 0
  // f32 [k, k]: lower triangle, the transpose of U, where U^T U = H^-1; by products its rows and
  // columns are in reverse order, on the device of the statistics.
  Tensor factor_;
};

// The sum of squares of (w - value) . x over all inputs.
double output_error(const TensorView& w, const TensorView& values, const InputStats& stats,
                    const Context& ctx = {});

// AWQ: factors s for the inputs' columns, so that rounding w * s and dividing the inputs by s loses
// least: s = mean |x|^alpha, divided by sqrt(max s * min s), of alpha = 0, 0.05, ..., 0.95 the one
// with the smallest output error over all weights that read these inputs. Columns with the same
// owner share an s, and owners count from 0; empty: each column has its own.
std::vector<float> search_awq_scales(std::span<const TensorView> weights, const InputStats& stats,
                                     const QuantFormat& format,
                                     std::span<const int32_t> owners = {}, const Context& ctx = {});

// SmoothQuant: s = max |x|^alpha / max |w|^(1 - alpha) for each column, the maximum of w over all
// rows of all weights; 1 where either maximum is 0.
std::vector<float> smooth_scales(std::span<const TensorView> weights, const InputStats& stats,
                                 double alpha);

// One scale for all inputs of a layer: max |x| / 448 for e4m3, which is as precise for small values
// as for large ones. For i8, c / 127 with the bound c, of max |x| * 2^(-i / 16), that has the least
// squared error: a smaller one cuts off the largest inputs, a larger one rounds all the others more
// coarsely. 1 where all inputs are 0.
float static_input_scale(const InputStats& stats, DType codes);

}  // namespace tessera::quant
