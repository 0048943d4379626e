// Sampling on a GPU chooses the CPU's tokens, bit for bit: thousands of random settings, mixed in
// one batch, and a captured call that serves settings it was not captured with.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/library.h"
#include "ops/registry.h"
#include "tests/gpu.h"
#include "tests/ops/graph_capture.h"
#include "tests/ops/sample_batch.h"

namespace tessera::testing {
namespace {

class SampleOnGpu : public GpuTest {
 protected:
  // The rows of an operation that run here.
  static std::vector<std::string> rows_of(std::string_view op) {
    std::vector<std::string> names;
    for (const ops::RowInfo& row : ops::all_rows()) {
      const int capability = device_info(cuda_device()).compute_capability;
      if (row.op == op && runs_on(row.library, capability)) names.emplace_back(row.name);
    }
    return names;
  }

  // Runs a batch on the GPU and on the CPU and compares everything that is written.
  static void expect_same(Batch& batch, const std::string& row) {
    DeviceBatch device(batch);
    sample(device.args(), {.row = row});
    synchronize(cuda_device());
    const std::string before = bytes_of(batch.logits);
    EXPECT_EQ(device.bytes_of(batch.logits.data()) == before, true) << "the logits have changed";
    const std::string tokens = device.bytes_of(batch.tokens.data());
    const std::string seen_tokens = device.bytes_of(batch.seen_tokens.data());
    const std::string seen_counts = device.bytes_of(batch.seen_counts.data());
    const std::string num_seen = device.bytes_of(batch.num_seen.data());
    Batch want = batch;
    sample(want.args());
    for (int64_t r = 0; r < batch.rows; ++r) {
      const auto i = static_cast<size_t>(r);
      int32_t token;
      std::memcpy(&token, tokens.data() + i * sizeof token, sizeof token);
      EXPECT_EQ(token, want.tokens[i])
          << "row " << r << ": temperature " << batch.temperature[i] << " top_k " << batch.top_k[i]
          << " typical_p " << batch.typical_p[i] << " top_p " << batch.top_p[i] << " min_p "
          << batch.min_p[i] << " seed " << batch.seeds[i];
    }
    EXPECT_TRUE(seen_tokens == bytes_of(want.seen_tokens));
    EXPECT_TRUE(seen_counts == bytes_of(want.seen_counts));
    EXPECT_TRUE(num_seen == bytes_of(want.num_seen));
  }
};

TEST_F(SampleOnGpu, ChoosesTheTokensOfTheCpu) {
  for (const std::string& row : rows_of("sample")) {
    std::mt19937_64 random(17);
    int num_rows = 0;
    for (int trial = 0; trial < 160; ++trial) {
      constexpr int64_t kVocabs[] = {1, 2, 7, 100, 511, 1000, 2049, 4096, 8191, 20000};
      constexpr int64_t kRows[] = {1, 3, 17, 40, 70};
      const int64_t vocab = kVocabs[random() % std::size(kVocabs)];
      Batch batch(random, kRows[random() % std::size(kRows)], vocab, trial % 3 == 0);
      SCOPED_TRACE(row + " trial " + std::to_string(trial) + ": " + std::to_string(batch.rows) +
                   " rows of " + std::to_string(vocab));
      expect_same(batch, row);
      num_rows += static_cast<int>(batch.rows);
      if (HasFailure()) return;
    }
    EXPECT_GT(num_rows, 3000);
  }
}

TEST_F(SampleOnGpu, ChoosesTheTokensOfTheCpuInLargeVocabularies) {
  for (const std::string& row : rows_of("sample")) {
    std::mt19937_64 random(18);
    for (const auto& [rows, vocab] : {std::pair<int64_t, int64_t>{1, 1 << 20},
                                      {2, 300001},
                                      {12, 128256},
                                      {64, 128256},
                                      {140, 32000},
                                      {30, 151936},
                                      {20, 50257}}) {
      Batch batch(random, rows, vocab, false);
      SCOPED_TRACE(row + ": " + std::to_string(rows) + " rows of " + std::to_string(vocab));
      expect_same(batch, row);
    }
  }
}

TEST_F(SampleOnGpu, AnAbsentSettingHasItsDefault) {
  std::mt19937_64 random(19);
  Batch batch(random, 9, 3000, false);
  DeviceBatch device(batch);
  const SampleArgs on_gpu{.logits = device.args().logits, .tokens = device.args().tokens};
  const SampleArgs on_cpu{.logits = batch.args().logits, .tokens = batch.args().tokens};
  sample(on_gpu);
  const std::string tokens = device.bytes_of(batch.tokens.data());
  sample(on_cpu);
  EXPECT_EQ(tokens, bytes_of(batch.tokens));
}

// A graph is captured once and serves every step: what differs is in device memory.
TEST_F(SampleOnGpu, ACapturedCallServesOtherSettings) {
  std::mt19937_64 random(20);
  Batch batch(random, 25, 6000, false);  // with masks
  DeviceBatch device(batch);
  const OwnStream stream;
  Graph graph(stream, [&] { sample(device.args(), {.stream = stream.get()}); });
  graph.instantiate();
  for (int step = 0; step < 20; ++step) {
    std::shuffle(batch.temperature.begin(), batch.temperature.end(), random);
    std::shuffle(batch.top_k.begin(), batch.top_k.end(), random);
    std::shuffle(batch.typical_p.begin(), batch.typical_p.end(), random);
    std::shuffle(batch.top_p.begin(), batch.top_p.end(), random);
    std::shuffle(batch.min_p.begin(), batch.min_p.end(), random);
    std::shuffle(batch.repetition.begin(), batch.repetition.end(), random);
    std::shuffle(batch.slots.begin(), batch.slots.end(), random);
    std::shuffle(batch.masks.begin(), batch.masks.end(), random);
    std::shuffle(batch.mask_rows.begin(), batch.mask_rows.end(), random);
    for (int64_t row = 0; row < batch.rows; ++row) batch.fill_logits(random, batch.row_of(row));
    device.upload();
    graph.replay(stream);
    stream.wait();
    sample(batch.args());
    EXPECT_EQ(device.bytes_of(batch.tokens.data()), bytes_of(batch.tokens)) << "step " << step;
    EXPECT_EQ(device.bytes_of(batch.seen_counts.data()), bytes_of(batch.seen_counts)) << step;
    EXPECT_EQ(device.bytes_of(batch.num_seen.data()), bytes_of(batch.num_seen)) << step;
  }
}

// --- log-probabilities ------------------------------------------------------------------------

struct Logprobs {
  std::vector<float> logprobs, top_logprobs;
  std::vector<int32_t> top_tokens;
};

Logprobs logprobs_on(Device where, std::vector<float>& logits, std::vector<int32_t>& tokens,
                     int64_t top, const std::string& row) {
  const auto rows = static_cast<int64_t>(tokens.size());
  const auto vocab = static_cast<int64_t>(logits.size()) / rows;
  Tensor x(DType::f32, {rows, vocab}), ids(DType::i32, {rows});
  std::ranges::copy(logits, x.view().as<float>());
  std::ranges::copy(tokens, ids.view().as<int32_t>());
  const Tensor x_there = x.to(where), ids_there = ids.to(where);
  const Tensor out(DType::f32, {rows}, where), best(DType::i32, {rows, top}, where);
  const Tensor best_out(DType::f32, {rows, top}, where);
  token_logprobs({.logits = x_there,
                  .tokens = ids_there,
                  .logprobs = out,
                  .top_tokens = best,
                  .top_logprobs = best_out},
                 {.row = row});
  const Tensor got = out.to(cpu_device()), got_best = best.to(cpu_device());
  const Tensor got_best_out = best_out.to(cpu_device());
  const auto values = [](const Tensor& t) {
    return std::vector<float>(t.view().as<float>(), t.view().as<float>() + t.view().num_elements());
  };
  const int32_t* first = got_best.view().as<int32_t>();
  return {values(got), values(got_best_out), {first, first + rows * top}};
}

// The sums are the same integers; a logarithm in double and a rounding to float differ by less
// than one unit of the last place.
void expect_near(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i]) || std::isinf(want[i])) {
      EXPECT_TRUE(std::isnan(got[i]) == std::isnan(want[i])) << i;
      continue;
    }
    EXPECT_NEAR(got[i], want[i], 0x1p-23 * std::fabs(double{want[i]}) + 1e-12) << i;
  }
}

TEST_F(SampleOnGpu, LogprobsAreThoseOfTheCpu) {
  std::mt19937_64 random(21);
  for (const auto& [rows, vocab, top] : {std::array<int64_t, 3>{5, 1, 1},
                                         {9, 300, 20},
                                         {9, 2049, 256},
                                         {33, 32000, 20},
                                         {3, 128256, 5},
                                         {64, 20000, 0},
                                         {2, 50257, 100}}) {
    std::vector<float> logits(static_cast<size_t>(rows * vocab));
    Batch shape(random, 1, vocab, false);
    for (int64_t r = 0; r < rows; ++r) shape.fill_logits(random, logits.data() + r * vocab);
    std::vector<int32_t> tokens(static_cast<size_t>(rows));
    for (int32_t& token : tokens) {
      token = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab + 2)) - 1;
    }
    const Logprobs want = logprobs_on(cpu_device(), logits, tokens, top, "");
    for (const std::string& row : rows_of("token_logprobs")) {
      SCOPED_TRACE(row + ": " + std::to_string(rows) + " rows of " + std::to_string(vocab));
      const Logprobs got = logprobs_on(cuda_device(), logits, tokens, top, row);
      EXPECT_EQ(got.top_tokens, want.top_tokens);
      expect_near(got.logprobs, want.logprobs);
      expect_near(got.top_logprobs, want.top_logprobs);
    }
  }
}

}  // namespace
}  // namespace tessera::testing
