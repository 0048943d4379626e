// No text and no file can make the tokenizer hang or exhaust memory.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <ctime>
#include <thread>

#include "tests/core/message_of.h"
#include "tests/text/tokenizer/files.h"

namespace tessera::testing {
namespace {

using nlohmann::json;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSlowdown = 10.0;
#else
constexpr double kSlowdown = 1.0;
#endif

// The time of an action, corrected for instrumented builds.
template <class Action>
double cpu_seconds(Action&& action) {
  const std::clock_t begin = std::clock();
  action();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC / kSlowdown;
}

std::string repeated(std::string_view text, size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += text;
  return out;
}

TEST(Bounds, OneMegabyteOfOneWordTakesLessThanTwoSeconds) {
  constexpr size_t kBytes = 1'000'000;
  std::vector<std::pair<std::string, Tokenizer>> tokenizers;
  for (const char* name : {"gpt2", "qwen2", "llama2", "metaspace"}) {
    tokenizers.emplace_back(name, Tokenizer::load(data_file(name)));
  }
  tokenizers.emplace_back("tessera-13m",
                          Tokenizer::load(kRepository / "models/tessera-13m/tokenizer.json"));
  for (const auto& [name, tokenizer] : tokenizers) {
    for (const char* unit : {"a", " ", "\n", "e ", "\t ", "1", "the", "!", "\u9752", "'s", "\xFF",
                             "\xF0\x9F", "\u0301", "<", "<|", "<tool_call", "tile", " a\n"}) {
      const std::string text = repeated(unit, kBytes);
      std::vector<int32_t> ids;
      EXPECT_LT(cpu_seconds([&] { ids = tokenizer.encode(text); }), 2.0) << name << ": " << unit;
      EXPECT_LT(cpu_seconds([&] { tokenizer.decode(ids); }), 2.0) << name << ": " << unit;
    }
  }
}

TEST(Bounds, MarksInTheWorstOrderAreNormalisedInTime) {
  // 150,000 marks above, then as many below: swapping neighbours would take 2e10 steps.
  const std::string text = repeated("\u0301", 300'000).append(repeated("\u0316", 300'000));
  json file = byte_level_file();
  for (const char* form : {"NFC", "NFD", "NFKC", "NFKD"}) {
    file["normalizer"] = {{"type", form}};
    const Tokenizer tokenizer = parse(file);
    EXPECT_LT(cpu_seconds([&] { tokenizer.encode(text); }), 3.0) << form;
  }
}

// A pattern may match or give up with a message, but never hang. The lowest CPU time of five runs,
// in seconds.
double encoding_time(const Tokenizer& tokenizer, const std::string& text) {
  double least = 1e9;
  for (int i = 0; i < 5; ++i) {
    const std::clock_t begin = std::clock();
    tokenizer.encode(text);
    least = std::min(least, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  return least;
}

TEST(Bounds, TextThatIsNormalIsNotSlowedByANormalizer) {
  std::string text;
  while (text.size() < 300'000) {
    text += "The tiles are cut by hand. caf\u00e9 na\u00efve \u9752\u3044\u30bf\u30a4\u30eb\u3002 ";
    text += "\u041f\u043b\u0438\u0442\u043a\u0430 \ud55c\uad6d\uc5b4 \u05e9\u05b8\u05dc 1234\n";
  }
  json file = read_data("qwen2");
  const double with = encoding_time(parse(file), text);
  file["normalizer"] = nullptr;
  const double without = encoding_time(parse(file), text);
  EXPECT_LT(with, 1.5 * without) << "decomposing everything takes twice as long";
}

TEST(Bounds, PatternsThatBacktrackGiveUp) {
  json file = byte_level_file();
  for (const char* pattern : {"(a+)+$b",
                              "(a|a)*b",
                              "(a*)*b",
                              "(a|b|ab)*c",
                              "a*a*a*a*a*a*a*a*b",
                              "(?=.*b)a",
                              "(.*)\\1b",
                              "(?R)?a",
                              "(a(?R)?b)",
                              "(?:a?){50}a{50}b",
                              "(*UTF)(a+)+b",
                              "(*LIMIT_MATCH=4000000000)(a+)+b",
                              "(*NO_JIT)(a+)+b",
                              "(?C1)a",
                              "(?=(a+))a*b\\1",
                              "^(a?)*$",
                              "x*",
                              "",
                              "()",
                              "(?:)",
                              "\\b",
                              "(?<=a)",
                              "(?:(?:a{0,50}){0,50}){0,50}b",
                              "\\X+b",
                              "a\\Ka",
                              "(?|(a)|(b))+c"}) {
    file["pre_tokenizer"] = {{"type", "Split"},
                             {"pattern", {{"Regex", pattern}}},
                             {"behavior", "Isolated"},
                             {"invert", false}};
    for (const size_t bytes : {30, 3'000, 60'000}) {
      const std::string text(bytes, 'a');
      std::string message;
      const double seconds =
          cpu_seconds([&] { message = message_of([&] { parse(file).encode(text); }); });
      EXPECT_LT(seconds, 15.0) << pattern << " on " << bytes << ": " << message;
    }
  }
}

TEST(Bounds, ReplacementsThatMultiplyAreStopped) {
  json file = byte_level_file();
  json steps = json::array();
  for (int step = 0; step < 40; ++step) {
    steps.push_back({{"type", "Replace"}, {"pattern", {{"Regex", "."}}}, {"content", "aaaa"}});
  }
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
  const Tokenizer tokenizer = parse(file);
  const std::string message = message_of([&] { tokenizer.encode("some text"); });
  EXPECT_NE(message.find("32 times the text"), std::string::npos) << message;
}

TEST(Bounds, DeepAndLongFilesAreRefusedInTime) {
  const auto refusal = [](const std::string& text) {
    std::string message;
    const auto parse_it = [&] { Tokenizer::parse(text, "tokenizer.json"); };
    EXPECT_LT(cpu_seconds([&] { message = message_of(parse_it); }), 5.0);
    return message;
  };
  for (const char* unit : {"[", "{\"a\":", "{\"model\":", "[{\"a\":["}) {
    EXPECT_NE(refusal(repeated(unit, 1'000'000)).find("nested deeper than 64"), std::string::npos)
        << unit;
  }
  EXPECT_NE(refusal(std::string(1, '[').append(repeated("{},", 4'000'000))).find("values beside"),
            std::string::npos);
  const std::string large(size_t{65} << 20, ' ');
  EXPECT_NE(refusal(large).find("bytes; at most"), std::string::npos);
  json steps = json::array();
  for (int step = 0; step < 65; ++step) steps.push_back({{"type", "Digits"}});
  json file = byte_level_file();
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
  EXPECT_NE(refusal(file.dump()).find("more than 64 steps"), std::string::npos);
}

TEST(Bounds, SharedBetweenThreadsNothingChanges) {
  const std::string text = repeated("The history of mathematics, in 1969. ", 20'000);
  const std::vector<int32_t> want = bundled().encode(text);
  std::vector<std::vector<int32_t>> got(4);
  std::vector<std::thread> threads;
  for (auto& ids : got) threads.emplace_back([&] { ids = bundled().encode(text); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& ids : got) EXPECT_EQ(ids, want);
}

}  // namespace
}  // namespace tessera::testing
