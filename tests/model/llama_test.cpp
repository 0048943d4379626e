// The forward pass on small random models: ranks, windows, biases and what it refuses.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "model/model.h"
#include "tests/core/message_of.h"
#include "tests/dist/thread_communicator.h"
#include "tests/model/runner.h"
#include "tests/model/tiny_model.h"

namespace tessera::testing {
namespace {

using model::ModelConfig;
using Logits = std::vector<std::vector<float>>;

constexpr uint64_t kSeed = 5;

std::vector<int32_t> tokens_of(size_t count) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>((i * 37 + 11) % 128));
  return tokens;
}

// The logits of a prompt and of a few decodes after it, as one rank computes them.
Logits run(const ModelConfig& config, dist::Communicator& communicator) {
  Runner runner(
      make_random_model(
          config,
          {.dtype = DType::f32, .rank = communicator.rank(), .num_ranks = communicator.size()},
          kSeed),
      communicator);
  Sequence sequence;
  Logits rows;
  std::vector<Chunk> chunks = {{&sequence, tokens_of(21), true}};
  for (int step = 0; step < 4; ++step) {
    const TensorView logits = runner.step(chunks);
    for (int64_t row = 0; row < logits.size(0); ++row) rows.push_back(row_of(logits, row));
    chunks = {{&sequence, {static_cast<int32_t>(step)}}};
  }
  return rows;
}

Logits run_alone(const ModelConfig& config) {
  dist::LocalCommunicator local;
  return run(config, local);
}

double worst_difference(const Logits& a, const Logits& b) {
  double worst = 0.0;
  for (size_t row = 0; row < a.size(); ++row) {
    for (size_t i = 0; i < a[row].size(); ++i) {
      worst = std::max(worst, std::fabs(double{a[row][i]} - double{b[row][i]}));
    }
  }
  return worst;
}

// Two ranks add the terms of each sum, up to 256, in another order than one. Over the five sums of
// the stream the rounding errors add up like a random walk: sqrt(2 * 5 * 256) units of 2^-24. The
// hidden state has norm 8 and is off by that share in a random direction; rows of the head have
// norm
// 1. Five standard deviations.
TEST(Llama, TwoRanksGiveTheLogitsOfOne) {
  const double relative = std::sqrt(2.0 * 5.0 * 256.0) * std::ldexp(1.0, -24);
  const double bound = 5.0 * relative * 8.0 / std::sqrt(64.0);
  for (const bool is_tied : {false, true}) {
    ModelConfig config = tiny_config();
    config.has_qkv_bias = config.has_output_bias = config.has_mlp_bias = true;
    config.has_tied_embeddings = is_tied;
    const Logits alone = run_alone(config);
    std::vector<Logits> ranks(2);
    run_ranks(2, [&](dist::Communicator& communicator) {
      ranks[static_cast<size_t>(communicator.rank())] = run(config, communicator);
    });
    EXPECT_EQ(ranks[0], ranks[1]);
    EXPECT_EQ(ranks[0].size(), alone.size());
    EXPECT_LE(worst_difference(ranks[0], alone), bound);
    RecordProperty("worst", std::to_string(worst_difference(ranks[0], alone)));
  }
}

TEST(Llama, EveryBiasCounts) {
  ModelConfig config = tiny_config();
  const Logits plain = run_alone(config);
  for (bool ModelConfig::*bias :
       {&ModelConfig::has_qkv_bias, &ModelConfig::has_output_bias, &ModelConfig::has_mlp_bias}) {
    ModelConfig biased = config;
    biased.*bias = true;
    EXPECT_GT(worst_difference(run_alone(biased), plain), 1e-3);
  }
}

TEST(Llama, AWindowHidesWhatLiesBeforeIt) {
  ModelConfig config = tiny_config();
  const Logits plain = run_alone(config);
  config.window = 64;  // wider than the sequence
  EXPECT_EQ(run_alone(config), plain);
  config.window = 8;
  const Logits windowed = run_alone(config);
  for (size_t row = 0; row < plain.size(); ++row) {
    EXPECT_EQ(windowed[row] == plain[row], row < 8) << row;
  }
  // A single layer without a window lets earlier tokens reach the end.
  config.windowed_layers = {false, true};
  EXPECT_NE(run_alone(config), windowed);
  EXPECT_NE(run_alone(config), plain);
  config.windowed_layers = {false, false};
  EXPECT_EQ(run_alone(config), plain);
}

TEST(Llama, LogitsComeOnlyForTheRowsAskedFor) {
  dist::LocalCommunicator local;
  const ModelConfig config = tiny_config();
  Runner runner(make_random_model(config, {.dtype = DType::f32}, kSeed), local);
  Sequence first, second;
  const std::vector<Chunk> chunks = {{&first, tokens_of(9)}, {&second, tokens_of(17)}};
  const TensorView logits = runner.step(chunks);
  EXPECT_EQ(logits.size(0), 2);
  EXPECT_EQ(logits.size(1), config.vocab);
  EXPECT_EQ(logits.dtype, DType::f32);
  const Logits want = run_alone(config);
  EXPECT_EQ(row_of(logits, 0), want[8]);
  EXPECT_EQ(row_of(logits, 1), want[16]);
}

TEST(Llama, AStepWithoutLogitsAndAnEmptyStepReturnNone) {
  dist::LocalCommunicator local;
  const ModelConfig config = tiny_config();
  const model::BatchLimits limits{.tokens = 8, .batch = 2, .max_pages = 2, .logits = 4};
  const auto llama = make_random_model(config, {.dtype = DType::f32}, kSeed);
  llama->prepare(limits, local);
  model::KvMemory kv(config, 2, {.num_pages = 4, .dtype = DType::f32}, cpu_device());
  model::BatchBuffers buffers(limits, cpu_device());
  model::HostBatch host{.tokens = {1, 2},
                        .positions = {0, 1},
                        .slots = {16, 17},
                        .page_table = {1},
                        .seq_lens = {2},
                        .query_starts = {0, 2},
                        .logit_rows = {},
                        .max_pages = 1};
  EXPECT_EQ(llama->forward(buffers.upload(host, {}), kv, {}).size(0), 0);
  host.clear();
  host.query_starts = {0};
  EXPECT_EQ(llama->forward(buffers.upload(host, {}), kv, {}).size(0), 0);
  EXPECT_GT(llama->weight_bytes(), 0);
  EXPECT_GT(llama->activation_bytes(), 0);
}

TEST(Llama, RefusesWeightsOfAnotherRankAndPagesOfAnotherType) {
  dist::LocalCommunicator local;
  const ModelConfig config = tiny_config();
  const model::BatchLimits limits{.tokens = 8, .batch = 2, .max_pages = 2, .logits = 4};
  const std::string message = message_of([&] {
    make_random_model(config, {.dtype = DType::f32, .num_ranks = 2}, kSeed)->prepare(limits, local);
  });
  EXPECT_NE(message.find("those of rank 0 of 2 and the communicator is rank 0 of 1"),
            std::string::npos)
      << message;
  const auto llama = make_random_model(config, {.dtype = DType::f32}, kSeed);
  llama->prepare(limits, local);
  model::KvMemory kv(config, 2, {.num_pages = 4, .dtype = DType::bf16}, cpu_device());
  model::BatchBuffers buffers(limits, cpu_device());
  model::HostBatch host;
  host.query_starts = {0};
  const model::Batch batch = buffers.upload(host, {});
  EXPECT_NE(message_of([&] { llama->forward(batch, kv, {}); })
                .find("the KV cache has 2 heads, plain of bf16; this rank was made for 2, plain of "
                      "f32"),
            std::string::npos);
  model::KvMemory codes(config, 2, {.num_pages = 4, .dtype = DType::f32, .type = KvFormat::int8},
                        cpu_device());
  EXPECT_NE(message_of([&] { llama->forward(batch, codes, {}); }).find("2 heads, int8 of f32"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::testing
