// Constraints on a GPU: outputs satisfy them, and are the same with and without CUDA graphs, run
// ahead or not.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "tests/engine/scheduler/tiny_model.h"
#include "tests/gpu.h"

namespace tessera {
namespace {

using namespace tessera::testing;

// The test may run on another machine than it was built on, in the root of a copy of the tree.
std::filesystem::path model_folder() {
  const std::filesystem::path place = "models/tessera-13m";
  std::error_code ignored;
  const std::filesystem::path built = std::filesystem::path(TESSERA_SOURCE_DIR) / place;
  return std::filesystem::exists(built / "config.json", ignored) ? built : place;
}

class ConstraintOnGpu : public GpuTest {};

TEST_F(ConstraintOnGpu, OutputsAreAlikeWithGraphsAndRunAhead) {
  const auto constraint = Constraint::compile(
      {.text = R"({"type":"object","properties":{"name":{"type":"string","maxLength":8},
                   "age":{"type":"integer","minimum":0,"maximum":120}},
                   "required":["name","age"]})"});
  Outcomes first;
  for (const bool use_graphs : {true, false}) {
    for (const bool runs_ahead : {true, false}) {
      EngineOptions options;
      options.device = cuda_device();
      options.max_context = 256;
      options.max_batch = 8;
      options.use_graphs = use_graphs;
      options.runs_ahead = runs_ahead;
      const std::unique_ptr<Engine> engine = Engine::load(model_folder(), options);
      for (uint64_t i = 0; i < 8; ++i) {
        Request request;
        request.prompt = engine->tokenizer()->encode("A person as JSON:");
        request.sampling.seed = i;
        request.max_new_tokens = 48;
        if (i % 4 != 3) request.constraint = constraint;
        engine->submit(request);
      }
      Outcomes outcomes;
      while (engine->has_work()) collect(engine->step(), outcomes);
      ASSERT_EQ(outcomes.size(), 8u);
      for (const auto& [id, outcome] : outcomes) {
        ASSERT_EQ(outcome.error, "");
        const bool is_complete = outcome.finish == FinishReason::stop;
        const bool is_constrained = (id.first - outcomes.begin()->first.first) % 4 != 3;
        EXPECT_TRUE(!is_constrained || !is_complete || constraint->matches(outcome.text))
            << outcome.text;
        if (first.contains(id)) {
          EXPECT_EQ(outcome.tokens, first[id].tokens) << use_graphs << runs_ahead;
        }
      }
      if (first.empty()) first = outcomes;
      EXPECT_EQ(engine->metrics().num_replays > 0, use_graphs);
    }
  }
}

}  // namespace
}  // namespace tessera
