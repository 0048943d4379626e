// Requests and options that are refused, and the words of the refusal.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "core/text.h"
#include "engine/make_engine.h"
#include "engine/validate.h"
#include "tests/core/message_of.h"
#include "tests/engine/scheduler/tiny_model.h"

namespace tessera {
namespace {

using namespace tessera::testing;

struct RefusedRequest {
  std::string want;
  std::function<void(Request&)> spoil;
};

void expect_refused(engine::EngineImpl& engine, const std::vector<RefusedRequest>& cases) {
  for (const RefusedRequest& one : cases) {
    Request request;
    request.prompt = {1, 2, 3};
    request.max_new_tokens = 4;
    one.spoil(request);
    const std::string message = message_of([&] { engine.submit(request); });
    EXPECT_TRUE(message.starts_with(one.want)) << "got: " << message << "\nwant: " << one.want;
    EXPECT_FALSE(engine.has_work());
  }
}

TEST(Refusal, OfPromptsAndLengths) {
  const auto engine = tiny_engine();
  expect_refused(
      *engine,
      {{"request: prompt is empty", [](Request& r) { r.prompt.clear(); }},
       {"request: prompt[1] is 96; the vocabulary has ids 0 to 95",
        [](Request& r) {
          r.prompt = {0, 96};
        }},
       {"request: prompt[0] is -1;", [](Request& r) { r.prompt = {-1}; }},
       {"request: prompt has 128 tokens; a context of 128 has room for 127",
        [](Request& r) { r.prompt.assign(128, 1); }},
       {"request: prompt has 129 tokens; a context of 128 has room for 128",
        [](Request& r) {
          r.prompt.assign(129, 1);
          r.wants_prompt_logprobs = true;
          r.max_new_tokens = 0;
        }},
       {"request: max_new_tokens is 0; give at least 1", [](Request& r) { r.max_new_tokens = 0; }},
       {"request: max_new_tokens is -5; give at least 0",
        [](Request& r) {
          r.max_new_tokens = -5;
          r.wants_prompt_logprobs = true;
        }},
       {"request: min_new_tokens is -1", [](Request& r) { r.min_new_tokens = -1; }}});
  Request request;
  request.prompt.assign(127, 1);
  request.max_new_tokens = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(run_one(*engine, request).tokens.size(), 1u) << "what does not fit is cut";
}

TEST(Refusal, OfStops) {
  const auto engine = script_engine({"a", "b", "c", "d", "e"});
  expect_refused(
      *engine,
      {{"request: stop has 17 strings; give at most 16",
        [](Request& r) { r.stop.assign(17, "x"); }},
       {"request: stop[1] is empty",
        [](Request& r) {
          r.stop = {"x", ""};
        }},
       {"request: stop[0] has 257 bytes; give at most 256",
        [](Request& r) { r.stop = {std::string(257, 'x')}; }},
       {"request: stop[0] is not UTF-8", [](Request& r) { r.stop = {"\xa9"}; }},
       {"request: stop[0] is not UTF-8", [](Request& r) { r.stop = {"a\xe2\x82"}; }},
       {"request: stop_tokens[0] is 5;", [](Request& r) { r.stop_tokens = {5}; }},
       {"request: stop_tokens has 257 ids", [](Request& r) { r.stop_tokens.assign(257, 1); }},
       {"request: min_new_tokens is 1, but every token", [](Request& r) {
          r.stop_tokens = {0, 1, 2, 3};
          r.min_new_tokens = 1;
        }}});
  const auto wordless = tiny_engine();
  expect_refused(*wordless,
                 {{"request: stop needs a tokenizer", [](Request& r) { r.stop = {"x"}; }}});
}

TEST(Refusal, OfCounts) {
  const auto engine = tiny_engine(tiny_options(64));
  expect_refused(
      *engine,
      {{"request: num_outputs is 0; give 1 to 64", [](Request& r) { r.num_outputs = 0; }},
       {"request: num_outputs is 65; give 1 to 64", [](Request& r) { r.num_outputs = 65; }},
       {"request: num_outputs is 9; a step takes 8", [](Request& r) { r.num_outputs = 9; }},
       {"request: beam_width is 33; give 0 to 32", [](Request& r) { r.beam_width = 33; }},
       {"request: beam_width is -1;", [](Request& r) { r.beam_width = -1; }},
       {"request: beam_width is 9; a step takes 8", [](Request& r) { r.beam_width = 9; }},
       {"request: num_outputs is 3 of beam_width 2",
        [](Request& r) {
          r.beam_width = 2;
          r.num_outputs = 3;
        }},
       {"request: num_logprobs is 21; give -1 to 20", [](Request& r) { r.num_logprobs = 21; }},
       {"request: num_logprobs is -2;", [](Request& r) { r.num_logprobs = -2; }},
       {"request: length_penalty is inf",
        [](Request& r) { r.length_penalty = std::numeric_limits<float>::infinity(); }},
       {"request: logit_bias and penalties are not for beam_width",
        [](Request& r) {
          r.beam_width = 2;
          r.sampling.presence_penalty = 1.0f;
        }},
       // 2 shared pages, and for each of 4 beams the other 23 of 100 tokens.
       {"request: prompt, max_new_tokens and beam_width need 94 pages of the KV cache, which has "
        "64",
        [](Request& r) {
          r.prompt.assign(10, 1);
          r.max_new_tokens = 90;
          r.beam_width = 4;
        }}});
  Request request;
  request.prompt = {1};
  request.sampling.temperature = -1.0f;
  EXPECT_NE(message_of([&] { engine->submit(request); }).find("temperature"), std::string::npos);
}

// Every refusal names the field as the caller knows it, and by no other name.
TEST(Refusal, UsesTheCallersNames) {
  engine::Capacity capacity{.vocab = 96,
                            .max_context = 128,
                            .max_batch = 8,
                            .max_step_tokens = 64,
                            .max_step_logits = 8,
                            .page_size = 4,
                            .num_pages = 64,
                            .has_tokenizer = true,
                            .names = {[](std::string_view field) {
                              std::string flag = concat("--", field);
                              std::ranges::replace(flag, '_', '-');
                              return flag;
                            }}};
  const std::vector<RefusedRequest> cases = {
      {"--max-new-tokens is 0; give at least 1", [](Request& r) { r.max_new_tokens = 0; }},
      {"--min-new-tokens is -1", [](Request& r) { r.min_new_tokens = -1; }},
      {"--stop is empty",
       [](Request& r) {
         r.stop = {"x", ""};
       }},
      {"--stop-tokens is 96;", [](Request& r) { r.stop_tokens = {96}; }},
      {"--num-outputs is 65; give 1 to 64", [](Request& r) { r.num_outputs = 65; }},
      {"--beam-width is 33; give 0 to 32", [](Request& r) { r.beam_width = 33; }},
      {"--num-logprobs is 21;", [](Request& r) { r.num_logprobs = 21; }},
      {"--length-penalty is inf",
       [](Request& r) { r.length_penalty = std::numeric_limits<float>::infinity(); }},
      {"--temperature is nan; give 0 to 10",
       [](Request& r) { r.sampling.temperature = std::numeric_limits<float>::quiet_NaN(); }},
      {"--top-p is 2;", [](Request& r) { r.sampling.top_p = 2.0f; }},
      {"--logit-bias names token 96;",
       [](Request& r) {
         r.sampling.logit_bias = {{96, 1.0f}};
       }},
  };
  for (const RefusedRequest& one : cases) {
    Request request;
    one.spoil(request);
    const std::string message = message_of([&] { check_settings(request, capacity); });
    EXPECT_TRUE(message.starts_with(one.want)) << "got: " << message << "\nwant: " << one.want;
    EXPECT_EQ(message.find("request: "), std::string::npos) << message;
  }
}

TEST(Refusal, OfOptions) {
  const auto message_with = [](const std::function<void(EngineOptions&)>& spoil) {
    EngineOptions options = tiny_options();
    spoil(options);
    return message_of([&] { tiny_engine(options); });
  };
  const std::vector<std::pair<std::string, std::function<void(EngineOptions&)>>> cases = {
      {"engine: page_size is 0;", [](EngineOptions& o) { o.page_size = 0; }},
      {"engine: max_batch is 0;", [](EngineOptions& o) { o.max_batch = 0; }},
      {"engine: max_step_tokens is -1;", [](EngineOptions& o) { o.max_step_tokens = -1; }},
      {"engine: max_queue is 0;", [](EngineOptions& o) { o.max_queue = 0; }},
      {"engine: max_context is 129; the model was made for 128 tokens",
       [](EngineOptions& o) { o.max_context = 129; }},
      {"engine: dtype is i8; give f32, f16 or bf16", [](EngineOptions& o) { o.dtype = DType::i8; }},
      {"engine: a context of 128 tokens needs 131072 bytes of KV cache; kv_bytes is 131071: "
       "lower max_context to 124 or less, or raise kv_bytes",
       [](EngineOptions& o) { o.kv_bytes = 128 * 1024 - 1; }}};
  for (const auto& [want, spoil] : cases) {
    const std::string message = message_with(spoil);
    EXPECT_TRUE(message.starts_with(want)) << "got: " << message << "\nwant: " << want;
  }
}

TEST(Refusal, OfAFolderWithoutATokenizer) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / "tessera_engine_no_tokenizer";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(TESSERA_SOURCE_DIR "/models/tessera-13m/config.json",
                             folder / "config.json",
                             std::filesystem::copy_options::overwrite_existing);
  const std::string message = message_of([&] { Engine::load(folder, {}); });
  EXPECT_NE(message.find("has no tokenizer.json"), std::string::npos) << message;
  std::filesystem::remove_all(folder);
}

TEST(Refusal, OfATokenizerWithIdsBeyondTheModel) {
  const model::ModelConfig config = tiny_config();
  const std::string file = TESSERA_SOURCE_DIR "/models/tessera-13m/tokenizer.json";
  const std::string message = message_of(
      [&] { engine::make_engine(tiny_model(config), Tokenizer::load(file), tiny_options()); });
  EXPECT_TRUE(
      message.starts_with("engine: the tokenizer has ids up to 8191; the model's "
                          "vocabulary ends at 95"))
      << message;
}

}  // namespace
}  // namespace tessera
