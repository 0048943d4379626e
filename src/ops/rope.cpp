// rope: what it takes and where it runs; the frequencies under each kind of scaling, and the table
// of cosines and sines.
// SPDX-License-Identifier: MIT
#include "tessera/ops/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>

#include "core/text.h"
#include "ops/elementwise.h"
#include "tessera/core/error.h"

namespace tessera {
namespace {

using namespace ops;

// q or k: heads may be anywhere; the elements of a head must be contiguous.
void check_heads(const Named& heads, int64_t rotary_dim) {
  expect_rank(heads, 3);
  if (heads.view.size(2) > 1 && heads.view.stride(2) != 1) {
    fail(concat(heads.what, " is ", to_string(heads.view),
                "; the elements of a head must be contiguous: make them so with copy"));
  }
  if (rotary_dim > heads.view.size(2)) {
    fail(concat(heads.what, " has head_dim ", heads.view.size(2), " and the table rotates ",
                rotary_dim, "; make a table of at most head_dim"));
  }
  if (heads.view.size(1) * heads.view.size(2) > kMaxCols) {
    fail(concat(heads.what, " is ", to_string(heads.view), "; a token may have at most ", kMaxCols,
                " elements"));
  }
  expect_writable(heads);
}

void check_rope(const RopeArgs& args) {
  const Named q{"rope: q", args.q};
  const Named table{"rope: table", args.table};
  const Named positions{"rope: positions", args.positions};
  expect_tensor(q, kFloats);
  expect_tensor(table, {DType::f32}, q);
  expect_rank(table, 2);
  expect_contiguous(table);
  const int64_t rotary_dim = args.table.size(1);
  if (rotary_dim % 2 != 0) {
    fail(concat("rope: table is ", to_string(args.table),
                "; its width must be even, a cosine and a "
                "sine for each pair"));
  }
  check_heads(q, rotary_dim);
  if (args.k) {
    const Named k{"rope: k", *args.k};
    expect_tensor(k, kFloats, q);
    expect_dtype_of(k, q);
    check_heads(k, rotary_dim);
    if (args.k->size(0) != args.q.size(0) || args.k->size(2) != args.q.size(2)) {
      fail(concat("rope: k is ", to_string(*args.k), " and q is ", to_string(args.q),
                  "; they must agree in tokens and head_dim"));
    }
    expect_apart(k, q);
  }
  expect_tensor(positions, kIndices, q);
  expect_one_each(positions, args.q.size(0), "token of q");
}

const Op<RopeArgs>& rope_op() {
  static const auto op =
      elementwise_op("rope", &check_rope, &cpu::rope, &kernels::ElementwiseRows::rope);
  return op;
}

// Rows made at once: few enough to delay a step by at most a millisecond.
constexpr int64_t kBlockRows = 256;

constexpr double kTwoPi = 2.0 * std::numbers::pi;

bool is_positive(double value) { return value > 0.0 && std::isfinite(value); }

void check_scaling(int64_t rotary_dim, double theta, const RopeScaling& scaling) {
  if (rotary_dim <= 0 || rotary_dim % 2 != 0) {
    fail(concat("rope_frequencies: rotary_dim is ", rotary_dim, "; it must be even and positive"));
  }
  if (!is_positive(theta)) {
    fail(concat("rope_frequencies: theta is ", theta, "; it must be positive, as in config.json"));
  }
  if (scaling.kind == RopeScalingKind::none) return;
  if (!is_positive(scaling.factor)) {
    fail(concat("rope_frequencies: factor is ", scaling.factor, "; it must be positive"));
  }
  if (scaling.kind == RopeScalingKind::linear) return;
  if (scaling.original_max_positions <= 0) {
    fail(concat("rope_frequencies: original_max_positions is ", scaling.original_max_positions,
                "; llama3 and yarn need the length the model was trained on"));
  }
  if (scaling.kind == RopeScalingKind::llama3 &&
      !(scaling.low_freq_factor > 0.0 && scaling.high_freq_factor > scaling.low_freq_factor)) {
    fail(concat("rope_frequencies: low_freq_factor is ", scaling.low_freq_factor,
                " and high_freq_factor ", scaling.high_freq_factor,
                "; the first must be positive and below the second"));
  }
  if (scaling.kind == RopeScalingKind::yarn &&
      !(scaling.beta_slow > 0.0 && scaling.beta_fast >= scaling.beta_slow && theta > 1.0)) {
    fail(concat("rope_frequencies: beta_slow is ", scaling.beta_slow, ", beta_fast ",
                scaling.beta_fast, " and theta ", theta,
                "; yarn needs 0 < beta_slow <= beta_fast and theta above 1"));
  }
}

// Pairs that turn often within the trained length keep their frequency, pairs that turn rarely are
// slowed by the factor, and those in between are blended by the number of turns.
double scale_llama3(double frequency, const RopeScaling& scaling) {
  const double turns = static_cast<double>(scaling.original_max_positions) * frequency / kTwoPi;
  const double low = scaling.low_freq_factor;
  const double high = scaling.high_freq_factor;
  if (turns > high) return frequency;
  if (turns < low) return frequency / scaling.factor;
  const double kept = (turns - low) / (high - low);
  return (1.0 - kept) * frequency / scaling.factor + kept * frequency;
}

// YaRN blends by the index of the pair, over the pairs that make between beta_slow and beta_fast
// turns within the trained length.
struct YarnRamp {
  double begin = 0.0;
  double end = 0.0;

  YarnRamp(int64_t rotary_dim, double theta, const RopeScaling& scaling) {
    const double dim = static_cast<double>(rotary_dim);
    const double length = static_cast<double>(scaling.original_max_positions);
    const auto index_of_turns = [&](double turns) {
      return dim * std::log(length / (turns * kTwoPi)) / (2.0 * std::log(theta));
    };
    begin = std::max(std::floor(index_of_turns(scaling.beta_fast)), 0.0);
    end = std::min(std::ceil(index_of_turns(scaling.beta_slow)), dim - 1.0);
    if (begin == end) end += 0.001;  // as the reference does: a finite slope
  }
  double slowed(int64_t pair) const {
    return std::clamp((static_cast<double>(pair) - begin) / (end - begin), 0.0, 1.0);
  }
};

// Rows for `count` positions from `first` on, computed in double and rounded once.
void write_rows(float* rows, int64_t first, int64_t count, std::span<const double> frequencies,
                double factor) {
  const size_t num_pairs = frequencies.size();
  for (int64_t position = first; position < first + count; ++position, rows += 2 * num_pairs) {
    for (size_t pair = 0; pair < num_pairs; ++pair) {
      const double angle = static_cast<double>(position) * frequencies[pair];
      rows[pair] = static_cast<float>(std::cos(angle) * factor);
      rows[num_pairs + pair] = static_cast<float>(std::sin(angle) * factor);
    }
  }
}

double attention_factor(const RopeScaling& scaling) {
  if (scaling.kind != RopeScalingKind::yarn) return 1.0;
  if (scaling.attention_factor) return *scaling.attention_factor;
  return scaling.factor > 1.0 ? 0.1 * std::log(scaling.factor) + 1.0 : 1.0;
}

}  // namespace

void rope(const RopeArgs& args, const Context& ctx) { run(rope_op(), args, args.q.device, ctx); }

bool supports(const RopeArgs& args, const Context& ctx) {
  return is_supported(rope_op(), args, args.q.device, ctx);
}

std::vector<double> rope_frequencies(int64_t rotary_dim, double theta, const RopeScaling& scaling) {
  check_scaling(rotary_dim, theta, scaling);
  std::vector<double> frequencies;
  for (int64_t pair = 0; pair < rotary_dim / 2; ++pair) {
    const double exponent = static_cast<double>(2 * pair) / static_cast<double>(rotary_dim);
    frequencies.push_back(std::pow(theta, -exponent));
  }
  switch (scaling.kind) {
    case RopeScalingKind::none: break;
    case RopeScalingKind::linear:
      for (double& frequency : frequencies) frequency /= scaling.factor;
      break;
    case RopeScalingKind::llama3:
      for (double& frequency : frequencies) frequency = scale_llama3(frequency, scaling);
      break;
    case RopeScalingKind::yarn: {
      const YarnRamp ramp(rotary_dim, theta, scaling);
      for (size_t pair = 0; pair < frequencies.size(); ++pair) {
        const double slowed = ramp.slowed(static_cast<int64_t>(pair));
        frequencies[pair] *= slowed / scaling.factor + (1.0 - slowed);
      }
      break;
    }
  }
  return frequencies;
}

RopeTable::RopeTable(int64_t num_positions, int64_t rotary_dim, double theta,
                     const RopeScaling& scaling, Device device)
    : frequencies_(rope_frequencies(rotary_dim, theta, scaling)),
      factor_(attention_factor(scaling)),
      table_(DType::f32, {num_positions, rotary_dim}, device) {
  if (!device.is_cpu()) block_ = Tensor(DType::f32, {kBlockRows, rotary_dim});
}

void RopeTable::make_rows(int64_t num_positions, const Context& ctx) {
  if (num_positions <= num_made_) return;
  const TensorView& all = table_.view();
  const int64_t wanted = (num_positions + kBlockRows - 1) / kBlockRows * kBlockRows;
  const int64_t end = std::min(wanted, all.size(0));
  const int64_t row_bytes = storage_bytes(DType::f32, all.size(1));
  while (num_made_ < end) {
    const int64_t count = std::min(kBlockRows, end - num_made_);
    std::byte* const place = all.as<std::byte>() + num_made_ * row_bytes;
    if (all.device.is_cpu()) {
      write_rows(reinterpret_cast<float*>(place), num_made_, count, frequencies_, factor_);
    } else {
      write_rows(block_.view().as<float>(), num_made_, count, frequencies_, factor_);
      // The block is pageable memory, so the copy has read it when it returns.
      copy_bytes(place, all.device, block_.view().data, cpu_device(),
                 static_cast<size_t>(count * row_bytes), ctx.stream);
    }
    num_made_ += count;
  }
}

Tensor make_rope_table(int64_t num_positions, int64_t rotary_dim, double theta,
                       const RopeScaling& scaling) {
  if (num_positions < 0) {
    fail(concat("make_rope_table: num_positions is ", num_positions, "; it may not be negative"));
  }
  const std::vector<double> frequencies = rope_frequencies(rotary_dim, theta, scaling);
  Tensor table(DType::f32, {num_positions, rotary_dim});
  write_rows(table.view().as<float>(), 0, num_positions, frequencies, attention_factor(scaling));
  return table;
}

}  // namespace tessera
