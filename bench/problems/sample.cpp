// Problems for sampling and log-probabilities. Settings are the same in all rows of a shape, or
// differ from row to row at random ("mixed").
// SPDX-License-Identifier: MIT
#include "tessera/ops/sample.h"

#include <algorithm>
#include <limits>

#include "bench/problems/builder.h"
#include "bench/problems/makers.h"

namespace tessera::bench {
namespace {

constexpr int64_t kNumBiases = 5;  // of a row

// Normal logits with a deviation of "spread" tenths, or integers, many of which are equal. With
// "odd", of every four rows one is broken and one has few tokens or none.
void fill_logits(Builder& b, int64_t rows, int64_t vocab) {
  const Random random = b.random();
  const float spread = static_cast<float>(b.get("spread", 10)) * 0.1f;
  const bool has_odd_rows = b.get("odd") != 0;
  fill_rows(b.rows("logits", Role::input, DType::f32, rows, vocab), [&](int64_t r, int64_t c) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const int64_t i = r * vocab + c;
    if (has_odd_rows && r % 4 == 1 && c == vocab / 3) {
      return r % 8 == 1 ? std::numeric_limits<float>::quiet_NaN() : kInfinity;
    }
    if (has_odd_rows && r % 4 == 3) return r % 8 == 3 || c > 3 ? -kInfinity : 1.0f;
    return b.is_normal() ? spread * random.normal(i) : static_cast<float>(random.integer(i, -4, 4));
  });
}

// One value per row: the shape's, in thousandths, or any of `choices` if mixed.
void add_setting(Builder& b, std::string_view name, DType type, int64_t rows, double otherwise,
                 std::initializer_list<double> choices) {
  const Random random = b.random();
  const std::vector<double> any(choices);
  const bool is_mixed = b.get("mixed") != 0;
  const double fixed = static_cast<double>(b.get(name, -1)) * (type == DType::f32 ? 1e-3 : 1.0);
  fill_vector(b.dense(name, Role::input, type, {rows}), [&](int64_t r) {
    if (!is_mixed) return static_cast<float>(fixed < 0 ? otherwise : fixed);
    return static_cast<float>(any[random.bits(r) % any.size()]);
  });
}

// Lists of tokens seen before: as many as "seen" says, with room for a few more. One row in five
// has none, and slots are in another order than rows.
void fill_lists(Builder& b, int64_t rows, int64_t vocab) {
  const int64_t seen = std::min(b.get("seen", 100), vocab), capacity = seen + 3;
  fill_vector(b.dense("slots", Role::input, DType::i32, {rows}),
              [&](int64_t r) { return static_cast<float>(r % 5 == 4 ? -1 : rows - 1 - r); });
  const int64_t step = std::max<int64_t>(vocab / std::max<int64_t>(seen, 1), 1);
  fill_rows(b.dense("seen_tokens", Role::in_out, DType::i32, {rows, capacity}),
            [&](int64_t r, int64_t i) {  // all different
              return static_cast<float>(i < seen ? i * step + r % step : -7);
            });
  const Random random = b.random();
  fill_rows(b.dense("seen_counts", Role::in_out, DType::i32, {rows, capacity}),
            [&](int64_t r, int64_t i) {
              const auto count = random.integer(r * capacity + i, 0, 3);
              return static_cast<float>(count == 0 ? kSampleInPrompt : count);
            });
  fill_vector(b.dense("num_seen", Role::in_out, DType::i32, {rows}), [&](int64_t r) {
    return static_cast<float>(r % 7 == 6 ? capacity : r % 7 == 5 ? 0 : seen);
  });
}

Problem make_sample(RowKey, const Shape& shape, Fill fill, uint64_t seed) {
  Builder b(shape, fill, seed,
            {"rows", "vocab", "temperature", "top_k", "typical_p", "top_p", "min_p", "spread",
             "mixed", "odd", "edits", "seen", "masks", "stride", "offset"});
  const int64_t rows = b.get("rows"), vocab = b.get("vocab");
  const bool has_edits = b.get("edits") != 0, has_masks = b.get("masks") != 0;
  fill_logits(b, rows, vocab);
  b.dense("tokens", Role::output, DType::i32, {rows});
  add_setting(b, "temperature", DType::f32, rows, 1.0, {0, 1e-4, 0.3, 0.7, 1, 1, 1.5, 10});
  add_setting(b, "top_k", DType::i32, rows, 0, {0, 0, 0, 1, 2, 20, 50, 256, 257, 3000, 1e6});
  add_setting(b, "typical_p", DType::f32, rows, 1, {1, 1, 1, 1, 0.05, 0.5, 0.95});
  add_setting(b, "top_p", DType::f32, rows, 1, {1, 1, 1e-6, 0.1, 0.5, 0.9, 0.99, 0.9999999});
  add_setting(b, "min_p", DType::f32, rows, 0, {0, 0, 0, 0.01, 0.3, 1});
  const Random seeds = b.random();
  fill_vector(b.dense("seeds", Role::input, DType::i64, {rows}),
              [&](int64_t r) { return static_cast<float>(seeds.integer(r, 0, int64_t{1} << 40)); });
  fill_vector(b.dense("sequences", Role::input, DType::i32, {rows}),
              [](int64_t r) { return static_cast<float>(r % 3); });
  fill_vector(b.dense("positions", Role::input, DType::i32, {rows}),
              [](int64_t r) { return static_cast<float>(7 * r); });
  if (has_edits) {
    add_setting(b, "repetition", DType::f32, rows, 1.2, {1, 1.2, 0.8});
    add_setting(b, "presence", DType::f32, rows, 0.5, {0, 0.5, -0.5});
    add_setting(b, "frequency", DType::f32, rows, 0.25, {0, 0.25, -0.125});
    fill_vector(b.dense("bias_starts", Role::input, DType::i32, {rows + 1}),
                [](int64_t r) { return static_cast<float>(r * kNumBiases); });
    // Distinct within a row: steps of a fifth of the vocabulary.
    fill_vector(b.dense("bias_tokens", Role::input, DType::i32, {rows * kNumBiases}),
                [&](int64_t i) {
                  const int64_t step = std::max<int64_t>(vocab / kNumBiases, 1);
                  return static_cast<float>(i % kNumBiases * step + i / kNumBiases % step);
                });
    const Random biases = b.random();
    fill_vector(b.dense("bias_values", Role::input, DType::f32, {rows * kNumBiases}),
                [&](int64_t i) {
                  if (i % 7 == 0) return -std::numeric_limits<float>::infinity();
                  return static_cast<float>(biases.integer(i, -16, 16)) * 0.5f;
                });
    fill_lists(b, rows, vocab);
  }
  if (has_masks) {  // one row in four has none
    const Random bits = b.random();
    const int64_t num_words = (vocab + 31) / 32;
    fill_rows(b.dense("masks", Role::input, DType::i32, {rows, num_words}),
              [&](int64_t r, int64_t i) {
                return static_cast<float>(bits.integer(r * num_words + i, 0, (1 << 24) - 1));
              });
    fill_vector(b.dense("mask_rows", Role::input, DType::i32, {rows}),
                [](int64_t r) { return static_cast<float>(r % 4 == 3 ? -1 : r); });
  }
  const auto call = [=](std::span<const TensorView> v, const Context& ctx) {
    SampleArgs args{.logits = v[0],
                    .tokens = v[1],
                    .temperature = v[2],
                    .top_k = v[3],
                    .typical_p = v[4],
                    .top_p = v[5],
                    .min_p = v[6],
                    .seeds = v[7],
                    .sequences = v[8],
                    .positions = v[9]};
    if (has_edits) {
      args.repetition = v[10];
      args.presence = v[11];
      args.frequency = v[12];
      args.bias_starts = v[13];
      args.bias_tokens = v[14];
      args.bias_values = v[15];
      args.slots = v[16];
      args.seen_tokens = v[17];
      args.seen_counts = v[18];
      args.num_seen = v[19];
    }
    if (has_masks) {
      args.masks = v[v.size() - 2];
      args.mask_rows = v.back();
    }
    sample(args, ctx);
  };
  return b.finish(call, static_cast<double>(rows * vocab), "");
}

Problem make_token_logprobs(RowKey, const Shape& shape, Fill fill, uint64_t seed) {
  Builder b(shape, fill, seed, {"rows", "vocab", "top", "spread", "odd", "stride", "offset"});
  const int64_t rows = b.get("rows"), vocab = b.get("vocab"), top = b.get("top");
  fill_logits(b, rows, vocab);
  fill_vector(b.dense("tokens", Role::input, DType::i32, {rows}),
              [&](int64_t r) { return static_cast<float>(r % 6 == 5 ? -1 : r * 37 % vocab); });
  // The sums are the same whole number; the logarithm may differ in its last bit.
  const Bound bound{.absolute = 1e-6, .relative = 0x1p-22};
  b.dense("logprobs", Role::output, DType::f32, {rows}, bound);
  if (top > 0) {
    b.dense("top_tokens", Role::output, DType::i32, {rows, top});
    b.dense("top_logprobs", Role::output, DType::f32, {rows, top}, bound);
  }
  const auto call = [=](std::span<const TensorView> v, const Context& ctx) {
    TokenLogprobsArgs args{.logits = v[0], .tokens = v[1], .logprobs = v[2]};
    if (top > 0) {
      args.top_tokens = v[3];
      args.top_logprobs = v[4];
    }
    token_logprobs(args, ctx);
  };
  return b.finish(call, static_cast<double>(2 * rows * vocab), "");
}

bool fits_every_shape(RowKey, const Shape&) { return true; }

// Empty, one token, ragged, strided and misaligned rows, and every number of blocks a row.
std::vector<Shape> layouts() {
  return {{{"rows", 0}, {"vocab", 80}},
          {{"rows", 1}, {"vocab", 1}},
          {{"rows", 9}, {"vocab", 7}},
          {{"rows", 40}, {"vocab", 1000}},
          {{"rows", 16}, {"vocab", 5001}},
          {{"rows", 4}, {"vocab", 8192}, {"stride", 8200}},
          {{"rows", 4}, {"vocab", 20000}, {"stride", 20003}, {"offset", 1}},
          {{"rows", 40}, {"vocab", 16384}},
          {{"rows", 20}, {"vocab", 32000}},
          {{"rows", 140}, {"vocab", 4096}},
          {{"rows", 2}, {"vocab", 128256}},
          {{"rows", 1}, {"vocab", 300000}}};
}

}  // namespace

ProblemMaker sample_maker() {
  std::vector<Shape> tests;
  for (const Shape& layout : layouts()) {
    tests.push_back(with_value(layout, "temperature", 0));
    tests.push_back(layout);
    tests.push_back(with_value(with_value(layout, "mixed", 1), "odd", 1));
    tests.push_back(with_value(with_value(layout, "mixed", 1), "spread", 40));
    tests.push_back(with_value(with_value(layout, "mixed", 1), "masks", 1));
    if (value_of(layout, "vocab") < kNumBiases) continue;
    tests.push_back(with_value(with_value(layout, "mixed", 1), "edits", 1));
  }
  const Shape row = {{"rows", 64}, {"vocab", 128256}};
  Shape usual = with_value(with_value(row, "temperature", 700), "top_k", 50);
  usual = with_value(usual, "top_p", 900);
  std::vector<Shape> timed;
  for (const int64_t rows : {1, 16, 64}) {
    timed.push_back(with_value(with_value(row, "rows", rows), "temperature", 0));
    timed.push_back(with_value(usual, "rows", rows));
    timed.push_back(with_value(with_value(row, "rows", rows), "top_p", 900));
    timed.push_back(with_value(row, "rows", rows));
  }
  timed.push_back(with_value(row, "typical_p", 900));
  timed.push_back(with_value(row, "min_p", 50));
  timed.push_back(with_value(usual, "edits", 1));
  return {"sample", &make_sample,        &fits_every_shape, {{DType::f32, DType::i32}},
          tests,    {{"sample", timed}}, "sampling"};
}

ProblemMaker token_logprobs_maker() {
  std::vector<Shape> tests;
  for (const Shape& layout : layouts()) {
    tests.push_back(layout);
    tests.push_back(with_value(with_value(layout, "top", 20), "odd", 1));
    tests.push_back(with_value(layout, "top", 256));
  }
  const Shape row = {{"rows", 64}, {"vocab", 128256}};
  return {"token_logprobs",
          &make_token_logprobs,
          &fits_every_shape,
          {{DType::f32, DType::f32}},
          tests,
          {{"logprobs", {row, with_value(row, "top", 20)}}},
          "sampling"};
}

}  // namespace tessera::bench
