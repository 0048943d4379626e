// Masks of the CPU's sampler against logits of -infinity.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "cpu/sample.h"

namespace tessera {
namespace {

template <class T>
TensorView mask_view(std::vector<T>& values, DType type) {
  return TensorView::contiguous(values.data(), type, {static_cast<int64_t>(values.size())});
}

// A mask is the same as logits of -infinity: the same token, in every way of drawing.
TEST(Sample, MasksDropTokensAsIfTheirLogitsWereMinusInfinity) {
  std::mt19937_64 random(19);
  const auto any = [&](std::initializer_list<double> choices) {
    return static_cast<float>(*(choices.begin() + random() % choices.size()));
  };
  for (int trial = 0; trial < 1500; ++trial) {
    const int64_t vocab = 1 + static_cast<int64_t>(random() % 300), words = (vocab + 31) / 32;
    constexpr int64_t kRows = 3;
    std::normal_distribution<float> normal(0, 2);
    std::vector<float> logits(static_cast<size_t>(kRows * vocab));
    for (float& logit : logits) logit = normal(random);
    std::vector<uint32_t> masks(static_cast<size_t>(2 * words));
    for (uint32_t& word : masks) {
      word = static_cast<uint32_t>(random() & (trial % 2 == 0 ? random() : ~uint64_t{0}));
    }
    std::vector<int32_t> mask_rows = {static_cast<int32_t>(random() % 2), -1, 1};
    if (trial % 5 == 0) mask_rows[1] = 2;  // there is none
    std::vector<float> expected = logits;
    for (int64_t r = 0; r < kRows; ++r) {
      const int32_t mask = mask_rows[static_cast<size_t>(r)];
      for (int64_t t = 0; t < vocab && (mask == 0 || mask == 1); ++t) {
        const uint32_t word = masks[static_cast<size_t>(mask * words + t / 32)];
        if ((word >> (t % 32) & 1u) == 0)
          expected[static_cast<size_t>(r * vocab + t)] = -std::numeric_limits<float>::infinity();
      }
    }
    std::vector<float> temperature(kRows, any({0, 0.5, 1})), top_p(kRows, any({1, 0.5, 0.9}));
    std::vector<int32_t> top_k(kRows, static_cast<int32_t>(any({0, 1, 20})));
    std::vector<int64_t> seeds(kRows, static_cast<int64_t>(random()));
    std::vector<int32_t> tokens(kRows), want(kRows);
    SampleArgs args{.logits = TensorView::contiguous(logits.data(), DType::f32, {kRows, vocab}),
                    .tokens = mask_view(tokens, DType::i32),
                    .temperature = mask_view(temperature, DType::f32),
                    .top_k = mask_view(top_k, DType::i32),
                    .top_p = mask_view(top_p, DType::f32),
                    .seeds = mask_view(seeds, DType::i64),
                    .masks = TensorView::contiguous(masks.data(), DType::i32, {2, words}),
                    .mask_rows = mask_view(mask_rows, DType::i32)};
    const std::vector<float> before = logits;
    cpu::sample(args);
    EXPECT_EQ(logits, before) << "the row itself is unchanged";
    args.logits = TensorView::contiguous(expected.data(), DType::f32, {kRows, vocab});
    args.tokens = mask_view(want, DType::i32);
    args.masks.reset();
    args.mask_rows.reset();
    cpu::sample(args);
    ASSERT_EQ(tokens, want) << "trial " << trial;
  }
}

}  // namespace
}  // namespace tessera
