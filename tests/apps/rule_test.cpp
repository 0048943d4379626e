// Tests of the perplexity rule, of the arithmetic of memory, and of workload names.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <filesystem>

#include "apps/e2e.h"
#include "apps/machine.h"
#include "apps/perplexity.h"
#include "apps/text_file.h"
#include "model/model.h"
#include "tessera/core/memory_use.h"
#include "tessera/text/tokenizer.h"
#include "tests/core/message_of.h"

namespace tessera::apps {
namespace {

using testing::message_of;

TEST(Separators, AreDroppedAsWholeLinesOnly) {
  EXPECT_EQ(drop_separators("a\n<|endoftext|>\nb\n"), "a\nb\n");
  EXPECT_EQ(drop_separators("<|endoftext|>\na <|endoftext|>\n<|endoftext|> b\n<|endoftext|>"),
            "a <|endoftext|>\n<|endoftext|> b\n");
  EXPECT_EQ(drop_separators("a\n\n\nb"), "a\n\n\nb");
  EXPECT_EQ(drop_separators(""), "");
}

TEST(Windows, BeginWithThePrefixAndDropTheRest) {
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6, 7};
  const std::vector<ScoreJob> windows = cut_windows(tokens, {0}, 4);
  ASSERT_EQ(windows.size(), 2u);
  EXPECT_EQ(windows[0].tokens, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(windows[1].tokens, (std::vector<int32_t>{0, 4, 5, 6}));
  EXPECT_EQ(windows[1].num_scored, 3);
}

TEST(Windows, WithoutAPrefixLeaveTheFirstTokenUnscored) {
  const std::vector<int32_t> tokens = {1, 2, 3, 4};
  const std::vector<ScoreJob> windows = cut_windows(tokens, {}, 4);
  ASSERT_EQ(windows.size(), 1u);
  EXPECT_EQ(windows[0].num_scored, 3);
}

TEST(Windows, TooSmallAreRefused) {
  EXPECT_NE(message_of([] {
              cut_windows(std::vector<int32_t>{1, 2}, {0}, 1);
            }).find("--window is 1"),
            std::string::npos);
}

// The token counts behind the reference perplexities.
TEST(Windows, OfTheReferenceTextsHoldTheOraclesTokens) {
  const std::filesystem::path data =
      std::filesystem::path(TESSERA_SOURCE_DIR) / "../shared/data/text";
  if (!std::filesystem::exists(data)) GTEST_SKIP() << "the reference texts are not here";
  const Tokenizer tokenizer =
      Tokenizer::load(TESSERA_SOURCE_DIR "/models/tessera-13m/tokenizer.json");
  for (const auto& [file, want] :
       {std::pair("enwiki_val.txt", 453189), {"wiki.test.raw", 360096}}) {
    const std::vector<int32_t> tokens =
        tokenizer.encode(drop_separators(read_text_file(data / file)));
    int64_t num_scored = 0;
    for (const ScoreJob& job : cut_windows(tokens, tokenizer.prefix(), 1024)) {
      num_scored += job.num_scored;
    }
    EXPECT_EQ(num_scored, want) << file;
  }
}

TEST(WeightBytes, CountEveryParameter) {
  const model::ModelConfig config = model::load_config(TESSERA_SOURCE_DIR "/models/tessera-13m");
  using model::WeightFormat;
  EXPECT_EQ(weight_bytes(config, DType::bf16, WeightFormat::plain), config.num_parameters() * 2);
  EXPECT_EQ(weight_bytes(config, DType::f32, WeightFormat::plain), config.num_parameters() * 4);
  // A layer: qkv 640 x 384, output 384 x 384, gate and up 2048 x 384, down 384 x 1024; norms 2 x
  // 384. The head is the embedding's codes, beside the embedding itself in bf16.
  const int64_t codes = 6 * (640 * 384 + 384 * 384 + 2048 * 384 + 384 * 1024) + 8192 * 384;
  const int64_t outputs = 6 * (640 + 384 + 2048 + 384) + 8192;
  const int64_t plain = 8192 * 384 + 6 * 2 * 384 + 384;
  EXPECT_EQ(weight_bytes(config, DType::bf16, WeightFormat::int8), codes + 4 * outputs + 2 * plain);
}

TEST(Fit, LeavesRoomForWeightsAndWholePages) {
  // 900 bytes are usable; 100 are weights; a sequence of 17 tokens takes two pages of 16 rows.
  EXPECT_EQ(sequences_that_fit(1000, 100, 1, 17, 16), 25);
  EXPECT_EQ(sequences_that_fit(1000, 100, 1, 16, 16), 50);
  EXPECT_EQ(sequences_that_fit(100, 100, 1, 16, 16), 0);
}

TEST(Fit, ShowsTheModelsOwnContextLast) {
  EXPECT_EQ(contexts_to_show(2048), (std::vector<int64_t>{512, 2048}));
  EXPECT_EQ(contexts_to_show(131072), (std::vector<int64_t>{512, 2048, 8192, 32768, 131072}));
  EXPECT_EQ(contexts_to_show(300), (std::vector<int64_t>{300}));
}

TEST(CacheWaste, IsTheRowsThatHoldNoToken) {
  const std::vector<int64_t> lengths = {16, 17};
  const CacheWaste waste = cache_waste(lengths, 16, 64);
  EXPECT_DOUBLE_EQ(waste.paged, 1.0 - 33.0 / 48.0);
  EXPECT_DOUBLE_EQ(waste.contiguous, 1.0 - 33.0 / 128.0);
}

TEST(CacheWaste, IsUnderFourPerCentAtTheLockedWorkloadsLengths) {
  EXPECT_LT(cache_waste(even_lengths(512, 1024, 513), 16, 8192).paged, 0.04);
}

TEST(Workloads, AreFoundByName) {
  EXPECT_EQ(find_e2e_workload("e2e/single")->shapes[0].prompt, 512);
  EXPECT_EQ(find_e2e_workload("locked")->shapes[0].batch, 16);
  EXPECT_EQ(find_e2e_workload("batch64")->shapes[0].batch, 64);
  const std::vector<E2eShape> contexts = find_e2e_workload("context")->shapes;
  EXPECT_EQ(contexts.size(), 24u);
  EXPECT_EQ(contexts.back().num_tokens() + 1, 131'072);
  for (const E2eShape& shape : contexts) {  // the first to start is still there when the last does
    EXPECT_GE(shape.generate, 16 + (shape.batch - 1) * shape.prompt / 2048) << shape.prompt;
    EXPECT_GT(shape.prompt, 900);
  }
  EXPECT_EQ(find_e2e_workload("prefill")->shapes.size(), 6u);
  EXPECT_EQ(find_e2e_workload("pp512")->shapes[0].generate, 0);
  EXPECT_EQ(find_e2e_workload("tg128")->shapes[0].prompt, 1);
  const E2eShape both = find_e2e_workload("pp1K+tg64")->shapes[0];
  EXPECT_EQ(both.prompt, 1024);
  EXPECT_EQ(both.generate, 64);
  for (const char* name : {"", "pp", "tg0", "pp512+", "pp512+x", "tg1+pp1", "single2"}) {
    EXPECT_FALSE(find_e2e_workload(name)) << name;
  }
}

TEST(Machine, HasMemory) {
  EXPECT_GT(total_memory_bytes(), int64_t{1} << 28);
  EXPECT_GE(total_memory_bytes(), available_memory_bytes());
  EXPECT_GT(peak_host_bytes(), int64_t{1} << 20);
  EXPECT_GE(memory_places().size(), 3u);
}

}  // namespace
}  // namespace tessera::apps
