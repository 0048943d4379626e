// The engine through the C ABI, on the bundled model: text, tokens, several threads, refusals.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "tessera/c_engine.h"
#include "tests/c_api/expect.h"
#include "tests/c_api/plain_c.h"

namespace tessera::testing {
namespace {

const std::string kFolder = TESSERA_SOURCE_DIR "/models/tessera-13m";

// One engine for all tests; it is idle between them.
TesseraEngine* shared_engine() {
  static TesseraEngine* engine = [] {
    TesseraEngineOptions options;
    tessera_engine_options_init(&options);
    options.device = "cpu";
    options.dtype = "f32";
    options.max_context = 256;
    options.max_batch = 8;
    TesseraEngine* made = nullptr;
    expect_ok(tessera_engine_create(kFolder.c_str(), &options, &made));
    return made;
  }();
  return engine;
}

TesseraRequest greedy(const char* text, int64_t max_new_tokens) {
  TesseraRequest request;
  tessera_request_init(&request);
  request.text = text;
  request.temperature = 0;
  request.max_new_tokens = max_new_tokens;
  return request;
}

TesseraGeneration* submit(const TesseraRequest& request) {
  TesseraGeneration* generation = nullptr;
  expect_ok(tessera_engine_submit(shared_engine(), &request, 1, &generation));
  return generation;
}

struct Read {
  std::string text = {};
  std::vector<int32_t> tokens = {};
  std::vector<float> logprobs = {};
  int32_t finish = 0;
  int num_pieces = 0;
};

// Everything of sequence 0, and the end of the generation.
Read read_all(TesseraGeneration* generation, int32_t whole) {
  Read all;
  TesseraOutput output{};
  output.struct_size = sizeof output;
  while (output.is_last == 0) {
    const TesseraStatus status = tessera_generation_next(generation, -1, whole, &output);
    expect_ok(status);
    if (status != TESSERA_OK) break;
    if (output.index != 0) continue;
    all.text.append(output.text, static_cast<size_t>(output.text_bytes));
    all.tokens.insert(all.tokens.end(), output.tokens, output.tokens + output.num_tokens);
    if (output.logprobs != nullptr) {
      all.logprobs.insert(all.logprobs.end(), output.logprobs, output.logprobs + output.num_tokens);
    }
    all.finish = output.finish;
    ++all.num_pieces;
  }
  tessera_generation_destroy(generation);
  return all;
}

TEST(EngineInC, WholeAndStreamedTextAreTheSame) {
  const Read whole = read_all(submit(greedy("The history of", 12)), 1);
  const Read streamed = read_all(submit(greedy("The history of", 12)), 0);
  EXPECT_EQ(whole.num_pieces, 1);
  EXPECT_EQ(whole.tokens.size(), 12u);
  EXPECT_EQ(whole.finish, TESSERA_FINISH_LENGTH);
  EXPECT_FALSE(whole.text.empty());
  EXPECT_EQ(whole.text, streamed.text);
  EXPECT_EQ(whole.tokens, streamed.tokens);
}

TEST(EngineInC, TextTokensAndDecodedTokensAgree) {
  int32_t ids[64];
  int64_t count = 0;
  expect_ok(tessera_engine_encode(shared_engine(), "The history of", -1, 1, 0, ids, 64, &count));
  ASSERT_GT(count, 0);
  ASSERT_LE(count, 64);
  TesseraRequest request = greedy(nullptr, 12);
  request.tokens = ids;
  request.num_tokens = count;
  const Read by_tokens = read_all(submit(request), 1);
  const Read by_text = read_all(submit(greedy("The history of", 12)), 1);
  EXPECT_EQ(by_tokens.tokens, by_text.tokens);

  // Without room, the call tells how much is needed.
  expect_ok(tessera_engine_decode(shared_engine(), by_text.tokens.data(),
                                  std::ssize(by_text.tokens), 0, nullptr, 0, &count));
  std::string text(static_cast<size_t>(count), ' ');
  expect_ok(tessera_engine_decode(shared_engine(), by_text.tokens.data(),
                                  std::ssize(by_text.tokens), 0, text.data(), count, &count));
  EXPECT_EQ(text, by_text.text);
}

TEST(EngineInC, LogprobsOfThePromptAreThoseOfTheGeneration) {
  TesseraRequest request = greedy("The history of", 8);
  request.num_logprobs = 2;
  const Read made = read_all(submit(request), 1);
  ASSERT_EQ(made.logprobs.size(), 8u);

  int32_t ids[64];
  int64_t count = 0;
  expect_ok(tessera_engine_encode(shared_engine(), "The history of", -1, 1, 0, ids, 56, &count));
  std::copy(made.tokens.begin(), made.tokens.end(), ids + count);
  TesseraRequest score;
  tessera_request_init(&score);
  score.tokens = ids;
  score.num_tokens = count + 8;
  score.max_new_tokens = 0;
  score.wants_prompt_logprobs = 1;
  TesseraGeneration* generation = submit(score);
  TesseraOutput output{};
  output.struct_size = sizeof output;
  expect_ok(tessera_generation_next(generation, -1, 1, &output));
  ASSERT_EQ(output.num_prompt_logprobs, count + 7);
  EXPECT_EQ(output.num_prompt_tokens, count + 8);
  for (int i = 0; i < 8; ++i) {
    EXPECT_NEAR(output.prompt_logprobs[count - 1 + i], made.logprobs[static_cast<size_t>(i)], 1e-3);
  }
  tessera_generation_destroy(generation);
}

std::vector<float> embed(const char* text, int32_t pooling) {
  TesseraRequest request;
  tessera_request_init(&request);
  request.text = text;
  request.max_new_tokens = 0;
  request.pooling = pooling;
  TesseraGeneration* generation = submit(request);
  TesseraOutput output{};
  output.struct_size = sizeof output;
  expect_ok(tessera_generation_next(generation, -1, 1, &output));
  EXPECT_EQ(output.finish, TESSERA_FINISH_STOP) << output.error;
  EXPECT_EQ(output.num_tokens, 0);
  int64_t count = 0;
  expect_ok(tessera_generation_embedding(generation, nullptr, 0, &count));
  std::vector<float> values(static_cast<size_t>(count));
  expect_ok(tessera_generation_embedding(generation, values.data(), count, &count));
  tessera_generation_destroy(generation);
  return values;
}

TEST(EngineInC, EmbedsAText) {
  const std::vector<float> last = embed("Water is", 1), mean = embed("Water is", 2);
  EXPECT_EQ(last.size(), 384u);
  EXPECT_EQ(mean.size(), 384u);
  EXPECT_NE(last, mean);
  EXPECT_EQ(embed("Water is", 2), mean);
  EXPECT_NE(embed("Fire is", 2), mean);

  TesseraGeneration* generation = submit(greedy("Water", 1));
  int64_t count = -1;
  read_all(generation, 1);
  TesseraRequest wrong = greedy("Water", 0);
  wrong.pooling = 3;
  expect_refused(tessera_engine_submit(shared_engine(), &wrong, 1, &generation),
                 "request: pooling is 3; want 0 to 2");
  expect_refused(tessera_generation_embedding(nullptr, nullptr, 0, &count), "generation is NULL");
}

TEST(EngineInC, ThreadsShareAnEngine) {
  const char* prompts[] = {"The history of", "In the year", "A city is", "Water"};
  std::vector<Read> alone, together(4);
  for (const char* prompt : prompts) alone.push_back(read_all(submit(greedy(prompt, 10)), 1));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 4; ++i) {
    threads.emplace_back(
        [&, i] { together[i] = read_all(submit(greedy(prompts[i], 10)), i % 2 == 0 ? 1 : 0); });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(alone[i].tokens, together[i].tokens) << prompts[i];
}

TEST(EngineInC, MoreRequestsThanTheQueueHoldsAllRun) {
  constexpr int64_t kCount = 1100;  // the engine's queue holds 1024
  const std::vector<TesseraRequest> requests(kCount, greedy("Water", 1));
  std::vector<TesseraGeneration*> generations(kCount);
  expect_ok(tessera_engine_submit(shared_engine(), requests.data(), kCount, generations.data()));
  const Read first = read_all(generations[0], 1);
  for (size_t i = 1; i < kCount; ++i) EXPECT_EQ(read_all(generations[i], 1).tokens, first.tokens);
}

TEST(EngineInC, CancelEndsAGeneration) {
  TesseraRequest request = greedy("The history of", 200);
  request.ignores_eos = 1;
  TesseraGeneration* generation = submit(request);
  TesseraOutput output{};
  output.struct_size = sizeof output;
  expect_ok(tessera_generation_next(generation, -1, 0, &output));
  EXPECT_EQ(output.finish, TESSERA_FINISH_NONE);
  expect_ok(tessera_generation_cancel(generation));
  EXPECT_EQ(read_all(generation, 0).finish, TESSERA_FINISH_CANCELLED);
}

TEST(EngineInC, TheDescriptorIsReadableWhileOutputWaits) {
  TesseraGeneration* generation = submit(greedy("The history of", 5));
  int descriptor = -1;
  expect_ok(tessera_generation_descriptor(generation, &descriptor));
  TesseraOutput output{};
  output.struct_size = sizeof output;
  int64_t num_tokens = 0;
  while (output.is_last == 0) {
    pollfd waiting{descriptor, POLLIN, 0};
    ASSERT_EQ(poll(&waiting, 1, 60000), 1);
    expect_ok(tessera_generation_next(generation, 0, 0, &output));
    num_tokens += output.num_tokens;
  }
  EXPECT_EQ(num_tokens, 5);
  tessera_generation_destroy(generation);
}

TEST(EngineInC, StatsCountWhatRan) {
  TesseraEngineStats before{}, after{};
  before.struct_size = after.struct_size = sizeof before;
  expect_ok(tessera_engine_stats(shared_engine(), &before));
  read_all(submit(greedy("Water", 3)), 1);
  expect_ok(tessera_engine_stats(shared_engine(), &after));
  EXPECT_EQ(after.num_generated_tokens - before.num_generated_tokens, 3);
  EXPECT_EQ(after.num_running, 0);
  EXPECT_GT(after.weight_bytes, 0);
  TesseraEngineInfo info{};
  info.struct_size = sizeof info;
  expect_ok(tessera_engine_info(shared_engine(), &info));
  EXPECT_EQ(info.max_context, 256);
  EXPECT_EQ(info.device_index, -1);
  EXPECT_EQ(info.has_chat_template, 0);
}

TEST(EngineInC, AStructOfAnOlderHeaderHasDefaults) {
  TesseraRequest request = greedy("Water", 3);
  request.struct_size = offsetof(TesseraRequest, cache_salt);
  request.cache_salt = reinterpret_cast<const char*>(1);  // beyond its end, never read
  EXPECT_EQ(read_all(submit(request), 1).tokens.size(), 3u);
}

TEST(EngineInC, RefusesWithValuesAndRemedy) {
  TesseraEngine* engine = shared_engine();
  TesseraGeneration* generations[2] = {};
  TesseraRequest bad = greedy("Water", 3);
  bad.top_p = 7;
  expect_refused(tessera_engine_submit(engine, &bad, 1, generations), "top_p is 7");
  const TesseraRequest both[2] = {greedy("Water", 3), bad};
  expect_refused(tessera_engine_submit(engine, both, 2, generations), "request 1 of 2");
  bad = greedy(nullptr, 3);
  expect_refused(tessera_engine_submit(engine, &bad, 1, generations), "give exactly one");
  bad.messages_json = R"([{"role": "user", "content": "Hello"}])";
  expect_refused(tessera_engine_submit(engine, &bad, 1, generations), "no chat template");
  bad.messages_json = "{}";
  expect_refused(tessera_engine_submit(engine, &bad, 1, generations), "want a list");
  bad = greedy("Water", 3);
  bad.timeout_s = -1;
  expect_refused(tessera_engine_submit(engine, &bad, 1, generations), "timeout_s is -1");

  TesseraEngine* made = nullptr;
  TesseraEngineOptions options;
  const auto expect_option_refused = [&](const char* words) {
    expect_refused(tessera_engine_create(kFolder.c_str(), &options, &made), words);
    EXPECT_EQ(made, nullptr);
    tessera_engine_options_init(&options);
    options.device = "cpu";
  };
  tessera_engine_options_init(&options);
  options.device = "tpu";
  expect_option_refused("device is 'tpu'");
  options.weights = "int3";
  expect_option_refused("weights is 'int3'; want one of stored, plain, int8");
  options.kv = "int3";
  expect_option_refused("kv is 'int3'");
  options.dtype = "f64";
  expect_option_refused("dtype is 'f64'");
  options.num_threads = -2;
  expect_option_refused("num_threads is -2");
  expect_refused(tessera_engine_create("/nowhere", nullptr, &made), "/nowhere");
  int64_t count = 0;
  const int32_t far = 1 << 30;
  expect_refused(tessera_engine_decode(engine, &far, 1, 0, nullptr, 0, &count), "no token");
}

TEST(EngineInC, IsPlainC) { EXPECT_EQ(default_tokens_from_c(), 256); }

TEST(EngineInC, AChildProcessIsRefused) {
  TesseraEngine* engine = shared_engine();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const TesseraRequest request = greedy("Water", 3);
    TesseraGeneration* generation = nullptr;
    const TesseraStatus status = tessera_engine_submit(engine, &request, 1, &generation);
    const bool is_named = std::string(tessera_last_error()).find("fork") != std::string::npos;
    _exit(status == TESSERA_ERROR && is_named ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(EngineInC, DestroyEndsWhatRuns) {
  TesseraEngineOptions options;
  tessera_engine_options_init(&options);
  options.device = "cpu";
  options.max_context = 256;
  options.max_batch = 2;
  TesseraEngine* engine = nullptr;
  expect_ok(tessera_engine_create(kFolder.c_str(), &options, &engine));
  TesseraRequest request = greedy("The history of", 200);
  request.ignores_eos = 1;
  TesseraGeneration* generation = nullptr;
  expect_ok(tessera_engine_submit(engine, &request, 1, &generation));
  tessera_engine_destroy(engine);
  EXPECT_EQ(read_all(generation, 0).finish, TESSERA_FINISH_CANCELLED);
}

// Every function with NULL for each pointer: refused or ignored, never read.
TEST(EngineInC, SurvivesNull) {
  TesseraEngine* engine = shared_engine();
  TesseraEngineInfo info{};
  TesseraEngineStats stats{};
  TesseraOutput output{};
  int64_t count = 0;
  tessera_engine_options_init(nullptr);
  tessera_request_init(nullptr);
  tessera_engine_destroy(nullptr);
  tessera_generation_destroy(nullptr);
  EXPECT_EQ(tessera_engine_abi_version(), TESSERA_ENGINE_ABI_VERSION);
  TesseraEngine* made = nullptr;
  TesseraRequest request = greedy("Water", 3);
  TesseraGeneration* generation = nullptr;
  expect_refused(tessera_engine_create(nullptr, nullptr, &made), "folder is NULL");
  expect_refused(tessera_engine_create(kFolder.c_str(), nullptr, nullptr), "engine is NULL");
  expect_refused(tessera_engine_info(nullptr, &info), "struct_size");
  info.struct_size = sizeof info;
  expect_refused(tessera_engine_info(nullptr, &info), "engine is NULL");
  expect_refused(tessera_engine_info(engine, nullptr), "info is NULL");
  stats.struct_size = sizeof stats;
  expect_refused(tessera_engine_stats(nullptr, &stats), "engine is NULL");
  expect_refused(tessera_engine_stats(engine, nullptr), "stats is NULL");
  expect_refused(tessera_engine_submit(nullptr, &request, 1, &generation), "engine is NULL");
  expect_refused(tessera_engine_submit(engine, nullptr, 1, &generation), "requests is NULL");
  expect_refused(tessera_engine_submit(engine, &request, 1, nullptr), "generations is NULL");
  output.struct_size = sizeof output;
  expect_refused(tessera_generation_next(nullptr, 0, 0, &output), "generation is NULL");
  expect_refused(tessera_generation_next(nullptr, 0, 0, nullptr), "output is NULL");
  expect_refused(tessera_generation_descriptor(nullptr, nullptr), "descriptor is NULL");
  expect_refused(tessera_generation_cancel(nullptr), "generation is NULL");
  expect_refused(tessera_engine_encode(engine, nullptr, -1, 0, 0, nullptr, 0, &count), "NULL");
  expect_refused(tessera_engine_encode(engine, "a", -1, 0, 0, nullptr, 4, &count), "NULL");
  expect_refused(tessera_engine_encode(engine, "a", -1, 0, 0, nullptr, 0, nullptr), "NULL");
  expect_refused(tessera_engine_decode(engine, nullptr, 1, 0, nullptr, 0, &count), "NULL");
  expect_refused(tessera_engine_token(nullptr, 1, nullptr, 0, &count), "engine is NULL");
  expect_refused(tessera_engine_render(engine, nullptr, nullptr, 1, nullptr, 0, &count), "NULL");
  expect_refused(tessera_engine_encode_chat(engine, nullptr, nullptr, 1, nullptr, 0, &count),
                 "NULL");
}

}  // namespace
}  // namespace tessera::testing
