// Merges attention over parts of the keys into one result, on the CPU, in double.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cpu/attention.h"
#include "cpu/float_row.h"
#include "cpu/parallel.h"

namespace tessera::cpu {
namespace {

constexpr double kLowest = -std::numeric_limits<double>::infinity();

// One query and head.
struct MergedRow {
  int64_t sequence, token, head;

  // `heads` is the axis of heads; tokens may have their own axis.
  int64_t element(const TensorView& t, int sequences, int tokens, int heads) const {
    const int64_t of_token = tokens < t.rank ? token * t.stride(tokens) : 0;
    return sequence * t.stride(sequences) + of_token + head * t.stride(heads);
  }
  int64_t in_parts(const TensorView& parts) const {
    return parts.rank == 5 ? element(parts, 1, 2, 3) : element(parts, 1, kMaxRank, 2);
  }
  int64_t in_out(const TensorView& out) const {
    return out.rank == 4 ? element(out, 0, 1, 2) : element(out, 0, kMaxRank, 1);
  }
  int64_t in_part_lses(const TensorView& lses) const { return element(lses, 1, 3, 2); }
  int64_t in_lse(const TensorView& lse) const { return element(lse, 0, 2, 1); }
};

// The weight of each part, and the lse of all.
double weigh_parts(const MergeAttentionArgs& args, const MergedRow& row,
                   std::vector<double>& weights) {
  const float* lses = args.part_lses.as<float>() + row.in_part_lses(args.part_lses);
  const auto lse_of = [&](size_t n) {
    return static_cast<double>(lses[static_cast<int64_t>(n) * args.part_lses.stride(0)]);
  };
  double top = kLowest, sum = 0;
  bool is_empty = true;  // a NaN does not count as empty: it propagates through the sum
  for (size_t n = 0; n < weights.size(); ++n) {
    top = std::max(top, lse_of(n));
    is_empty &= lse_of(n) == kLowest;
  }
  if (is_empty) {
    std::ranges::fill(weights, 0.0);
    return kLowest;
  }
  for (size_t n = 0; n < weights.size(); ++n) sum += weights[n] = std::exp(lse_of(n) - top);
  for (double& weight : weights) weight /= sum;
  return top + std::log(sum);
}

template <class T>
void merge_row(const MergeAttentionArgs& args, const MergedRow& row) {
  thread_local std::vector<double> weights;
  weights.resize(static_cast<size_t>(args.parts.size(0)));
  const double lse = weigh_parts(args, row, weights);
  const T* parts = args.parts.as<T>() + row.in_parts(args.parts);
  T* out = args.out.as<T>() + row.in_out(args.out);
  for (int64_t c = 0; c < args.out.size(-1); ++c) {
    double sum = 0;
    for (size_t n = 0; n < weights.size(); ++n) {
      if (weights[n] == 0) continue;  // the part may be NaN
      const T value = parts[static_cast<int64_t>(n) * args.parts.stride(0) + c];
      sum += weights[n] * static_cast<double>(to_float(value));
    }
    out[c] = from_float<T>(static_cast<float>(sum));
  }
  if (args.lse.data == nullptr) return;
  args.lse.as<float>()[row.in_lse(args.lse)] = static_cast<float>(lse);
}

}  // namespace

void attention_merge(const MergeAttentionArgs& args) {
  const int64_t num_heads = args.out.size(-2), d = args.out.size(-1);
  const int64_t q_len = args.out.rank == 4 ? args.out.size(1) : 1;
  with_float_type(args.out.dtype, [&](auto type) {
    parallel_for(args.out.size(0) * q_len * num_heads, args.parts.size(0) * d, [&](int64_t item) {
      const int64_t query = item / num_heads;
      merge_row<decltype(type)>(args, {query / q_len, query % q_len, item % num_heads});
    });
  });
}

}  // namespace tessera::cpu
