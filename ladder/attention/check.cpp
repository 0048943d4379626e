// The comparison of a step with the CPU, and its bound.
// SPDX-License-Identifier: MIT
#include "ladder/attention/check.h"

#include <cmath>
#include <random>

#include "core/text.h"
#include "ladder/attention/attention_args.h"
#include "ladder/guarded.h"
#include "tessera/core/convert.h"
#include "tessera/core/tensor.h"

namespace tessera::ladder::attention {
namespace {

Tensor random_normal_on_cpu(std::span<const int64_t> shape, unsigned seed) {
  Tensor tensor(DType::bf16, shape);
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Bf16* values = tensor.view().as<Bf16>();
  for (int64_t i = 0; i < tensor.view().num_elements(); ++i) {
    values[i] = from_float<Bf16>(normal(generator));
  }
  return tensor;
}

// Both sides round the output once, to 8 bits: each errs by 2^-8 of it. Before that, the output is
// a weighted mean of v, and the weights err. A score is a sum of 128 products in f32, some 2^-17 of
// error for normal data; the largest score errs as well, and the sum of the weights inherits it:
// 2^-14 covers them. Weights rounded to bf16 err by 2^-8 each. The weighted mean of |v| is below 4,
// except in a few of 100,000 rows; a row that sees a single such key has the exact weight 1.
double allowed(const Step& step, double want) {
  constexpr double kRoundoff = 0x1p-8;  // of bf16
  constexpr double kScoreError = 0x1p-14;
  constexpr double kLargestMean = 4;
  const double weight_error = kScoreError + (step.rounds_weights ? kRoundoff : 0);
  return 2 * kRoundoff * std::abs(want) + kLargestMean * weight_error;
}

std::string differences(const Step& step, const Bf16* got, const TensorView& want) {
  const Bf16* right = want.as<Bf16>();
  int64_t num_wrong = 0;
  double worst = 1;
  std::string text;
  for (int64_t i = 0; i < want.num_elements(); ++i) {
    const double g = to_float(got[i]);
    const double w = to_float(right[i]);
    const double bound = allowed(step, w);
    const double share = std::abs(g - w) / bound;
    if (share <= 1) continue;  // false for NaN
    ++num_wrong;
    if (!text.empty() && !(share > worst)) continue;
    worst = share;
    const int64_t row = i / kHeadDim;
    text = concat("token ", row / want.size(2) % want.size(1), " of sequence ",
                  row / want.size(2) / want.size(1), ", head ", row % want.size(2), ", element ",
                  i % kHeadDim, " is ", g, ", want ", w, " within ", bound);
  }
  return num_wrong == 0 ? "" : concat(text, "; ", num_wrong, " are beyond their bounds");
}

}  // namespace

std::string check_close(const Step& step, const Shape& shape, bool is_causal) {
  const int64_t sizes[] = {shape.batch, shape.seq, shape.heads, kHeadDim};
  const Tensor q = random_normal_on_cpu(sizes, 1);
  const Tensor k = random_normal_on_cpu(sizes, 2);
  const Tensor v = random_normal_on_cpu(sizes, 3);
  const Tensor want(DType::bf16, sizes);
  Problem problem{
      q.view().as<Bf16>(), k.view().as<Bf16>(), v.view().as<Bf16>(), want.view().as<Bf16>(),
      shape.batch,         shape.seq,           shape.heads,         is_causal};
  attention_prefill(attention_args(problem, cpu_device()));

  const Device gpu = cuda_device();
  const Tensor q_there = q.to(gpu);
  const Tensor k_there = k.to(gpu);
  const Tensor v_there = v.to(gpu);
  const Guarded out(DType::bf16, sizes);
  problem.q = q_there.view().as<Bf16>();
  problem.k = k_there.view().as<Bf16>();
  problem.v = v_there.view().as<Bf16>();
  problem.out = static_cast<Bf16*>(out.data());
  const Tensor scratch = make_scratch(step, problem);
  run(step, with_scratch(problem, scratch), {});
  const Guarded::Result got = out.fetch();
  return got.damage.empty() ? differences(step, got.out.as<Bf16>(), want) : got.damage;
}

}  // namespace tessera::ladder::attention
