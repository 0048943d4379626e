// Every family against Hugging Face's library: small random checkpoints, and the logits and greedy
// tokens that data/make_families.py computed with it. A folder of data is a family that is tested.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "model/family.h"
#include "model/model.h"
#include "tests/dist/thread_communicator.h"
#include "tests/model/runner.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;
using Logits = std::vector<std::vector<float>>;
using Tokens = std::vector<int32_t>;

const fs::path kData = fs::path(TESSERA_SOURCE_DIR) / "tests" / "model" / "data";

std::vector<std::string> tested_families() {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(kData)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

template <class T>
std::vector<T> read_all(const model::WeightFile& file, std::string_view name) {
  for (const model::StoredTensor& tensor : parse_safetensors(file)) {
    if (tensor.name != name) continue;
    std::vector<T> values(static_cast<size_t>(tensor.num_bytes) / sizeof(T));
    file.read(tensor.begin, std::as_writable_bytes(std::span(values)));
    return values;
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

class Families : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    config_ = model::load_config(folder());
    const model::WeightFile file(folder() / "expected.safetensors");
    prompt_ = read_all<int32_t>(file, "prompt");
    greedy_ = read_all<int32_t>(file, "greedy");
    const std::vector<float> logits = read_all<float>(file, "logits");
    ASSERT_EQ(std::ssize(logits), std::ssize(prompt_) * config_.vocab);
    for (size_t i = 0; i < prompt_.size(); ++i) {
      const auto begin = logits.begin() + static_cast<int64_t>(i) * config_.vocab;
      logits_.emplace_back(begin, begin + config_.vocab);
    }
  }

  fs::path folder() const { return kData / GetParam(); }

  std::unique_ptr<model::Model> load(model::LoadOptions options = {.dtype = DType::f32}) const {
    return load_model(model::Checkpoint::open(folder()), config_, options);
  }

  // Both sides compute in f32, and every sum of up to `longest` terms is rounded at random: 2 per
  // layer in the stream, as many inside the blocks, and the last, sqrt(2 * sums * longest) units of
  // 2^-24 in all, in a direction of no account. A logit moves by that share of the logits' size.
  // Six deviations cover 10,000 logits; what is capped was larger before.
  double bound() const {
    const double sums = 4.0 * static_cast<double>(config_.num_layers) + 1.0;
    const auto longest = static_cast<double>(std::max(config_.inter, config_.hidden));
    const double relative = std::sqrt(2.0 * sums * longest) * std::ldexp(1.0, -24);
    double squares = 0.0;
    for (const std::vector<float>& row : logits_) {
      for (const float logit : row) squares += double{logit} * double{logit};
    }
    const auto count = static_cast<double>(logits_.size()) * static_cast<double>(config_.vocab);
    return 6.0 * relative * std::max(1.0, std::sqrt(squares / count));
  }

  model::ModelConfig config_;
  Tokens prompt_, greedy_;
  Logits logits_;
};

Logits rows_of(const TensorView& logits) {
  Logits rows;
  for (int64_t row = 0; row < logits.size(0); ++row) rows.push_back(row_of(logits, row));
  return rows;
}

double largest_difference(const Logits& a, const Logits& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0.0;
  for (size_t row = 0; row < std::min(a.size(), b.size()); ++row) {
    for (size_t i = 0; i < a[row].size(); ++i) {
      worst = std::max(worst, std::fabs(double{a[row][i]} - double{b[row][i]}));
    }
  }
  return worst;
}

// A prompt in chunks, every row of logits.
Logits run_prompt(Runner& runner, Sequence& sequence, const Tokens& prompt, size_t chunk_size) {
  Logits rows;
  for (size_t begin = 0; begin < prompt.size(); begin += chunk_size) {
    const size_t end = std::min(prompt.size(), begin + chunk_size);
    const Tokens part(prompt.begin() + static_cast<int64_t>(begin),
                      prompt.begin() + static_cast<int64_t>(end));
    const std::vector<Chunk> chunks = {{&sequence, part, true, true}};
    for (std::vector<float>& row : rows_of(runner.step(chunks))) rows.push_back(std::move(row));
  }
  return rows;
}

TEST_P(Families, GivesTheLogitsOfHuggingFace) {
  dist::LocalCommunicator local;
  Runner runner(load(), local);
  Sequence sequence;
  const double worst =
      largest_difference(run_prompt(runner, sequence, prompt_, prompt_.size()), logits_);
  EXPECT_LE(worst, bound());
  RecordProperty("worst", std::to_string(worst));
}

TEST_P(Families, GeneratesTheTokensOfHuggingFace) {
  dist::LocalCommunicator local;
  Runner runner(load(), local);
  Sequence sequence;
  Tokens tokens = {argmax_of(run_prompt(runner, sequence, prompt_, 16).back())};
  while (tokens.size() < greedy_.size()) {
    const std::vector<Chunk> chunks = {{&sequence, {tokens.back()}}};
    tokens.push_back(argmax_of(row_of(runner.step(chunks), 0)));
  }
  EXPECT_EQ(tokens, greedy_);
}

// Bit for bit, whatever else is in the step and however a prompt is cut.
TEST_P(Families, ChunksAndBatchMatesChangeNothing) {
  dist::LocalCommunicator local;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Runner runner(load({.dtype = dtype}), local);
    Sequence whole, cut, first, second;
    const Logits want = run_prompt(runner, whole, prompt_, prompt_.size());
    EXPECT_EQ(run_prompt(runner, cut, prompt_, 7), want);
    const Tokens other(prompt_.rbegin(), prompt_.rend());
    const std::vector<Chunk> both = {{&first, other, true, true}, {&second, prompt_, true, true}};
    const Logits together = rows_of(runner.step(both));
    EXPECT_EQ(Logits(together.end() - std::ssize(want), together.end()), want);
    const std::vector<Chunk> decodes = {{&first, {5}}, {&whole, {9}}};
    const std::vector<float> beside = row_of(runner.step(decodes), 1);
    const std::vector<Chunk> alone = {{&cut, {9}}};
    EXPECT_EQ(row_of(runner.step(alone), 0), beside);
  }
}

TEST_P(Families, TwoRanksGiveTheLogitsOfOne) {
  std::vector<Logits> ranks(2);
  run_ranks(2, [&](dist::Communicator& communicator) {
    Runner runner(load({.dtype = DType::f32, .rank = communicator.rank(), .num_ranks = 2}),
                  communicator);
    Sequence sequence;
    ranks[static_cast<size_t>(communicator.rank())] =
        run_prompt(runner, sequence, prompt_, prompt_.size());
  });
  EXPECT_EQ(ranks[0], ranks[1]);
  EXPECT_LE(largest_difference(ranks[0], logits_), bound());
}

TEST_P(Families, TakesEveryTypeOfWeightsAndCache) {
  for (const model::WeightFormat format : {model::WeightFormat::plain, model::WeightFormat::int8}) {
    for (const KvFormat kv_type : kAllKvFormats) {
      EXPECT_EQ(find_missing_operation(config_, {.format = format}, kv_type, 32), "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Families, ::testing::ValuesIn(tested_families()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace tessera::testing
