// A runner without an engine: steps are plain values, on one rank and on two.
// SPDX-License-Identifier: MIT
#include "engine/runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/validate.h"
#include "tests/dist/thread_communicator.h"
#include "tests/engine/scheduler/tiny_model.h"

namespace tessera::testing {
namespace {

using engine::Runner;
using engine::StepInput;
using Logits = std::vector<float>;

model::ModelConfig config_for_ranks() {
  model::ModelConfig config = tiny_config();
  config.num_heads = 4;
  config.num_kv_heads = 2;
  return config;
}

std::unique_ptr<Runner> make_runner(const EngineOptions& options,
                                    std::unique_ptr<dist::Communicator> communicator =
                                        std::make_unique<dist::LocalCommunicator>()) {
  const model::ModelConfig config = config_for_ranks();
  std::unique_ptr<model::Model> model = model::make_random_model(
      config,
      {.dtype = DType::f32, .rank = communicator->rank(), .num_ranks = communicator->size()},
      /*seed=*/5);
  return std::make_unique<Runner>(std::move(model), engine::fill_options(options, config),
                                  std::move(communicator));
}

// Tokens [begin, end) of one sequence, whose token i is 3 i + 1, in the given pages.
StepInput tokens_of(int32_t begin, int32_t end, std::vector<int32_t> pages, int32_t page_size) {
  StepInput step;
  model::HostBatch& batch = step.batch;
  for (int32_t i = begin; i < end; ++i) {
    batch.tokens.push_back((3 * i + 1) % static_cast<int32_t>(kTinyVocab));
    batch.positions.push_back(i);
    batch.slots.push_back(pages[static_cast<size_t>(i / page_size)] * page_size + i % page_size);
  }
  batch.seq_lens = {end};
  batch.query_starts = {0, end - begin};
  batch.logit_rows = {end - begin - 1};
  batch.max_pages = std::ssize(pages);
  batch.page_table = std::move(pages);
  batch.num_decodes = end - begin == 1 ? 1 : 0;
  return step;
}

// The logits of a step, from each row of which the largest is drawn as well.
Logits run(Runner& runner, StepInput step) {
  step.sampling.draws.resize(step.batch.logit_rows.size());
  step.sampling.wants_logits = true;
  runner.launch(step);
  const model::SampledStep sampled = runner.wait();
  runner.release();
  Logits logits(sampled.logits.begin(), sampled.logits.end());
  EXPECT_EQ(sampled.tokens.size(), step.batch.logit_rows.size());
  for (size_t row = 0; row < sampled.tokens.size(); ++row) {
    const auto first = logits.begin() + static_cast<int64_t>(row) * kTinyVocab;
    EXPECT_EQ(sampled.tokens[row], std::max_element(first, first + kTinyVocab) - first);
  }
  return logits;
}

TEST(Runner, ChunksOfAPromptGiveTheLogitsOfTheWhole) {
  const auto whole = make_runner(tiny_options());
  const Logits want = run(*whole, tokens_of(0, 11, {0, 1, 2}, 4));
  ASSERT_EQ(std::ssize(want), kTinyVocab);
  const auto chunks = make_runner(tiny_options());
  run(*chunks, tokens_of(0, 5, {7, 3}, 4));
  EXPECT_EQ(run(*chunks, tokens_of(5, 11, {7, 3, 9}, 4)), want);
}

TEST(Runner, CopiesPagesBeforeTheModelReadsThem) {
  const auto runner = make_runner(tiny_options());
  run(*runner, tokens_of(0, 6, {0, 1}, 4));
  StepInput copied = tokens_of(6, 7, {0, 5}, 4);
  copied.page_copies = {{1, 5}};
  const Logits from_copy = run(*runner, copied);
  EXPECT_EQ(run(*runner, tokens_of(6, 7, {0, 1}, 4)), from_copy);
  EXPECT_NE(run(*runner, tokens_of(6, 7, {0, 8}, 4)), from_copy) << "page 8 holds nothing";
}

TEST(Runner, CopiesTailsForForkedSequences) {
  EngineOptions options = tiny_options();
  options.kv_type = KvFormat::int4;
  options.page_size = 32;
  options.kv_bytes = int64_t{1} << 22;
  const auto runner = make_runner(options);
  StepInput prompt = tokens_of(0, 20, {0}, 32);
  prompt.batch.tails = {2};
  run(*runner, prompt);
  const std::pair<int32_t, int32_t> copy{2, 4};
  runner->copy_tails({&copy, 1});
  StepInput fork = tokens_of(20, 21, {0}, 32);
  fork.batch.tails = {4};
  const Logits of_fork = run(*runner, fork);
  fork.batch.tails = {2};
  EXPECT_EQ(run(*runner, fork), of_fork);
  fork.batch.tails = {3};
  EXPECT_NE(run(*runner, fork), of_fork) << "tail 3 holds nothing";
}

// The next step is launched before anyone has seen the token it begins with.
TEST(Runner, ADrawnTokenFeedsTheNextStepOnTheDevice) {
  const auto known = make_runner(tiny_options());
  const StepInput prompt = tokens_of(0, 6, {0, 1}, 4);
  const Logits first = run(*known, prompt);
  const auto drawn = static_cast<int32_t>(std::ranges::max_element(first) - first.begin());
  StepInput next = tokens_of(6, 7, {0, 1}, 4);
  next.batch.tokens = {drawn};
  const Logits want = run(*known, next);

  const auto ahead = make_runner(tiny_options());
  StepInput launched = prompt;
  launched.sampling.draws.resize(1);
  ahead->launch(launched);
  next.batch.tokens = {-1};  // draw 0 of the step before
  next.sampling.draws.resize(1);
  next.sampling.wants_logits = true;
  ahead->launch(next);
  EXPECT_EQ(ahead->wait().tokens[0], drawn);
  ahead->release();
  const model::SampledStep second = ahead->wait();
  EXPECT_EQ(Logits(second.logits.begin(), second.logits.end()), want);
}

TEST(Runner, AStepWithoutLogitsReturnsNone) {
  const auto runner = make_runner(tiny_options());
  StepInput step = tokens_of(0, 6, {0, 1}, 4);
  step.batch.logit_rows.clear();
  EXPECT_TRUE(run(*runner, step).empty());
}

// One plan drives the runners of all ranks. Their sums are rounded in another order than those of
// one rank, so the logits differ from its by some f32 roundings.
TEST(Runner, OneStepInputDrivesEveryRank) {
  const StepInput prompt = tokens_of(0, 9, {4, 2, 6}, 4);
  const StepInput next = tokens_of(9, 10, {4, 2, 6}, 4);
  const auto alone = make_runner(tiny_options());
  run(*alone, prompt);
  const Logits want = run(*alone, next);
  std::vector<Logits> got(2);
  ThreadWorld world(2);
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        const auto runner =
            make_runner(tiny_options(), std::make_unique<ThreadCommunicator>(world, rank));
        run(*runner, prompt);
        got[static_cast<size_t>(rank)] = run(*runner, next);
      });
    }
  }
  EXPECT_EQ(got[0], got[1]);
  ASSERT_EQ(got[0].size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[0][i], want[i], 1e-4);
}

}  // namespace
}  // namespace tessera::testing
