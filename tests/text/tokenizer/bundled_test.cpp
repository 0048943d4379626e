// The bundled tokenizer against records from its training.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <ctime>
#include <sstream>

#include "tests/text/tokenizer/files.h"

namespace tessera::testing {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

TEST(Bundled, PromptsOfTheOracleHaveItsIds) {
  const json oracle = json::parse(read_text(kRepository / "models/tessera-13m/oracle.json"));
  for (size_t idx = 0; idx < oracle["prompts"].size(); ++idx) {
    Ids ids = bundled().prefix();
    for (const int32_t id : bundled().encode(oracle["prompts"][idx].get<std::string>())) {
      ids.push_back(id);
    }
    EXPECT_EQ(ids, oracle["prompt_ids"][idx].get<Ids>()) << oracle["prompts"][idx];
  }
}

// The perplexity rule of models/tessera-13m: 453,189 tokens of enwiki_val.txt in whole windows.
TEST(Bundled, TheHeldOutTextsHaveTheTokensThatPerplexityCounts) {
  struct Case {
    const char* file;
    size_t num_tokens;
  };
  for (const Case& c : {Case{"enwiki_val.txt", 453'189}, Case{"wiki.test.raw", 360'096}}) {
    const auto path = kShared / "data/text" / c.file;
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not here";
    std::istringstream lines(read_text(path));
    std::string text;
    for (std::string line; std::getline(lines, line);) {
      if (line == "<|endoftext|>") continue;
      text += line;
      if (!lines.eof()) text += '\n';
    }
    EXPECT_EQ(bundled().encode(text).size() / 1023 * 1023, c.num_tokens) << c.file;
  }
}

TEST(Bundled, TextsComeBackWholeAndLineByLine) {
  for (const char* name : {"enwiki_val.txt", "wiki.test.raw"}) {
    const auto path = kShared / "data/text" / name;
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not here";
    const std::string text = read_text(path);
    EXPECT_TRUE(bundled().decode(bundled().encode(text), true) == text) << name;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      ASSERT_EQ(bundled().decode(bundled().encode(line), true), line) << name;
    }
  }
}

TEST(Bundled, FiveMegabytesASecondAreEncoded) {
  const auto path = kShared / "data/text/enwiki_val.txt";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not here";
  const std::string text = read_text(path);
  const std::clock_t begin = std::clock();
  bundled().encode(text);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  RecordProperty("mb_per_s", std::to_string(static_cast<double>(text.size()) / seconds / 1e6));
  // A tenth of the target: sanitizers and slow machines pass, a quadratic algorithm does not.
  EXPECT_LT(seconds, static_cast<double>(text.size()) / 0.5e6);
}

}  // namespace
}  // namespace tessera::testing
