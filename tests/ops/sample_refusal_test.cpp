// Arguments sample and token_logprobs refuse, and the rows they find; no kernel runs.
// SPDX-License-Identifier: MIT
#include <functional>

#include "kernels/sampling/params.h"
#include "kernels/sampling/rows.h"
#include "ops/dispatch.h"
#include "tests/ops/refusal.h"

namespace tessera::testing {
namespace {

class RefusedSample : public ::testing::Test {
 protected:
  ::testing::AssertionResult refuses(const std::function<void(SampleArgs&)>& change,
                                     const Words& words) const {
    return refused_with<SampleArgs>(good, &sample, change, words);
  }

  Tensor logits = Tensor::zeros(DType::f32, {3, 10}), tokens = Tensor::zeros(DType::i32, {3});
  Tensor floats = Tensor::zeros(DType::f32, {3}), ints = Tensor::zeros(DType::i32, {3});
  Tensor longs = Tensor::zeros(DType::i64, {3}), starts = Tensor::zeros(DType::i32, {4});
  Tensor bias_tokens = Tensor::zeros(DType::i32, {5}), biases = Tensor::zeros(DType::f32, {5});
  Tensor seen_tokens = Tensor::zeros(DType::i32, {2, 6});
  Tensor seen_counts = Tensor::zeros(DType::i32, {2, 6}), sizes = Tensor::zeros(DType::i32, {2});
  SampleArgs good{.logits = logits,
                  .tokens = tokens,
                  .temperature = floats,
                  .top_k = ints,
                  .seeds = longs,
                  .bias_starts = starts,
                  .bias_tokens = bias_tokens,
                  .bias_values = biases,
                  .slots = ints,
                  .seen_tokens = seen_tokens,
                  .seen_counts = seen_counts,
                  .num_seen = sizes,
                  .repetition = floats};
};

TEST_F(RefusedSample, WrongLogitsAndTokens) {
  EXPECT_TRUE(refuses([&](auto& a) { a.logits = ints; }, {"sample: logits is i32[3]", "f32"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.logits = floats; }, {"sample: logits", "must be 2"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.logits.shape[1] = 0; },
                      {"sample: logits is f32[3, 0]", "1 to 1048576 logits"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.logits.shape[1] = (1 << 20) + 1; },
                      {"f32[3, 1048577]", "1 to 1048576 logits"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.tokens = sizes; }, {"sample: tokens is i32[2]", "have 3"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.tokens = longs; }, {"sample: tokens is i64[3]", "i32"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.tokens = on_gpu(tokens); }, {"tokens is on cuda:3"}));
}

TEST_F(RefusedSample, WrongMasks) {
  const Tensor masks = Tensor::zeros(DType::i32, {2, 1}), wide = Tensor::zeros(DType::i32, {2, 2});
  EXPECT_TRUE(refuses([&](auto& a) { a.masks = masks; }, {"give masks and mask_rows, or neither"}));
  EXPECT_TRUE(
      refuses([&](auto& a) { a.masks = wide, a.mask_rows = ints; }, {"words of a mask", "2", "1"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.masks = masks, a.mask_rows = sizes; },
                      {"sample: mask_rows is i32[2]", "must have 3"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.masks = logits, a.mask_rows = ints; },
                      {"sample: masks is f32[3, 10]", "i32"}));
}

TEST_F(RefusedSample, WrongSettings) {
  EXPECT_TRUE(refuses([&](auto& a) { a.temperature = ints; }, {"sample: temperature is i32[3]"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.temperature = biases; },
                      {"sample: temperature is f32[5]", "must have 3", "row of logits"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.top_k = floats; }, {"sample: top_k is f32[3]", "i32"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.typical_p = biases; }, {"sample: typical_p", "have 3"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.top_p = ints; }, {"sample: top_p is i32[3]"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.min_p = biases; }, {"sample: min_p is f32[5]"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.seeds = ints; }, {"sample: seeds is i32[3]", "i64"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.sequences = longs; }, {"sample: sequences is i64[3]"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.positions = sizes; }, {"sample: positions is i32[2]"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.repetition = ints; }, {"sample: repetition is i32[3]"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.presence = biases; }, {"sample: presence is f32[5]"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.frequency = ints; }, {"sample: frequency is i32[3]"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.min_p = on_gpu(floats); }, {"min_p is on cuda:3"}));
}

TEST_F(RefusedSample, WrongBiases) {
  EXPECT_TRUE(refuses([&](auto& a) { a.bias_values = {}; }, {"bias_tokens and bias_values, or"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.bias_starts = {}; }, {"give bias_starts, bias_tokens"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.bias_starts = ints; },
                      {"sample: bias_starts is i32[3]", "must have 4", "and one more"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.bias_values = floats; },
                      {"sample: bias_values is f32[3]", "must have 5", "entry of bias_tokens"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.bias_tokens = biases; }, {"bias_tokens is f32[5]"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.logits = with_stride(logits, 0, 0); },
                      {"sample: logits"}));  // edited in place, so rows may not be one memory
}

TEST_F(RefusedSample, WrongLists) {
  EXPECT_TRUE(refuses([&](auto& a) { a.slots = {}; }, {"give slots, seen_tokens"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.num_seen = {}; }, {"seen_counts and num_seen, or none"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.slots = sizes; }, {"sample: slots is i32[2]", "have 3"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.seen_tokens = sizes; }, {"seen_tokens", "must be 2"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.seen_counts = seen_counts.view().slice(1, 0, 5); },
                      {"sample: seen_counts is i32[2, 5]", "seen_tokens is i32[2, 6]"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.num_seen = ints; }, {"sample: num_seen is i32[3]"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.seen_counts = seen_tokens; }, {"shares memory with"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.seen_tokens = with_stride(seen_tokens, 0, 0); },
                      {"sample: seen_tokens"}));
}

TEST(RefusedTokenLogprobs, WrongTensors) {
  const Tensor logits(DType::f32, {3, 10}), tokens(DType::i32, {3}), out(DType::f32, {3});
  const Tensor best(DType::i32, {3, 4}), best_out(DType::f32, {3, 4}), two(DType::i32, {2, 4});
  const Tensor many(DType::i32, {3, 257}), many_out(DType::f32, {3, 257});
  const TokenLogprobsArgs good{.logits = logits,
                               .tokens = tokens,
                               .logprobs = out,
                               .top_tokens = best,
                               .top_logprobs = best_out};
  const auto refuses = [&](const std::function<void(TokenLogprobsArgs&)>& change,
                           const Words& words) {
    return refused_with<TokenLogprobsArgs>(good, &token_logprobs, change, words);
  };
  EXPECT_TRUE(refuses([&](auto& a) { a.logits = best; }, {"token_logprobs: logits is i32[3, 4]"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.tokens = out; }, {"tokens is f32[3]", "i32"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.logprobs = tokens; }, {"logprobs is i32[3]", "f32"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.top_tokens = {}; }, {"give top_tokens and top_logprobs"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.top_tokens = two; }, {"top_logprobs is f32[3, 4]"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.top_tokens = many, a.top_logprobs = many_out; },
                      {"top_tokens is i32[3, 257]", "at most 256"}));
}

TEST(SampleParts, FillTheGpuAndNeverSplitAChunk) {
  using kernels::choose_sample_parts;
  EXPECT_EQ(choose_sample_parts(1, 128256, 132), 8);
  EXPECT_EQ(choose_sample_parts(16, 128256, 132), 8);
  EXPECT_EQ(choose_sample_parts(33, 128256, 132), 4);
  EXPECT_EQ(choose_sample_parts(34, 128256, 132), 2);
  EXPECT_EQ(choose_sample_parts(64, 128256, 132), 2);
  EXPECT_EQ(choose_sample_parts(67, 128256, 132), 1);
  EXPECT_EQ(choose_sample_parts(1, 1000, 132), 1);
  EXPECT_EQ(choose_sample_parts(1, 4096, 132), 2);
}

}  // namespace
}  // namespace tessera::testing
