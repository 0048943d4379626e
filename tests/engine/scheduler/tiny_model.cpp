// Tiny models, and the outputs of many steps joined.
// SPDX-License-Identifier: MIT
#include "tests/engine/scheduler/tiny_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "core/text.h"
#include "engine/make_engine.h"
#include "engine/validate.h"
#include "tessera/core/error.h"

namespace tessera::testing {
namespace {

void fill(const TensorView& tensor, float value) {
  std::fill_n(tensor.as<float>(), tensor.num_elements(), value);
}

// A byte in the spelling of byte-level vocabularies: printable bytes are themselves, the others
// letters from U+0100 on. Returned as a JSON escape.
std::string spell(unsigned char byte) {
  const auto is_plain = [](int value) {
    return (value >= '!' && value <= '~') || (value >= 0xa1 && value <= 0xac) || value >= 0xae;
  };
  int code = byte;
  if (!is_plain(byte)) {
    code = 0x100;
    for (int other = 0; other < byte; ++other) code += is_plain(other) ? 0 : 1;
  }
  char text[16];
  std::snprintf(text, sizeof text, "\\u%04x", code);
  return text;
}

Tokenizer script_tokenizer(const std::vector<std::string>& pieces) {
  std::string vocab;
  for (size_t i = 0; i < pieces.size(); ++i) {
    std::string spelled;
    for (const char byte : pieces[i]) spelled += spell(static_cast<unsigned char>(byte));
    vocab += concat(i > 0 ? "," : "", "\"", spelled, "\":", i);
  }
  return Tokenizer::parse(
      concat(R"({"version":"1.0","added_tokens":[],"normalizer":null,"post_processor":null,)",
             R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},)",
             R"("decoder":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},)",
             R"("model":{"type":"BPE","vocab":{)", vocab, R"(},"merges":[]}})"),
      "script");
}

}  // namespace

model::ModelConfig tiny_config(int64_t vocab) {
  model::ModelConfig config;
  config.num_layers = 2;
  config.hidden = 64;
  config.inter = 96;
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = 64;
  config.vocab = vocab;
  config.max_positions = kTinyContext;
  config.dtype = DType::f32;
  return config;
}

std::unique_ptr<model::Model> tiny_model(const model::ModelConfig& config, DType dtype,
                                         Device device, uint64_t seed) {
  return model::make_random_model(config, {.dtype = dtype, .device = device}, seed);
}

EngineOptions tiny_options(int64_t num_pages) {
  EngineOptions options;
  options.dtype = DType::f32;
  options.page_size = 4;
  options.max_batch = 8;
  options.max_step_tokens = 32;
  options.kv_bytes = num_pages * 4 * tiny_config().kv_bytes_per_token(DType::f32);
  return options;
}

std::unique_ptr<engine::EngineImpl> engine_over(std::unique_ptr<model::Model> model,
                                                const EngineOptions& options,
                                                std::optional<Tokenizer> tokenizer,
                                                std::unique_ptr<model::Model> draft) {
  std::unique_ptr<Engine> made =
      engine::make_engine(std::move(model), std::move(tokenizer), options,
                          std::make_unique<dist::LocalCommunicator>(), std::move(draft));
  return std::unique_ptr<engine::EngineImpl>(static_cast<engine::EngineImpl*>(made.release()));
}

std::unique_ptr<engine::EngineImpl> tiny_engine(const EngineOptions& options, int64_t vocab) {
  engine::check_options(options);
  return engine_over(tiny_model(tiny_config(vocab), options.dtype, options.device), options);
}

std::unique_ptr<model::Model> tiny_draft(DraftKind kind, const EngineOptions& options) {
  model::ModelConfig config = tiny_config();
  if (kind == DraftKind::similar) config.num_layers = 1;
  const uint64_t seed = kind == DraftKind::other ? 12 : 11;
  return tiny_model(config, options.dtype, options.device, seed);
}

std::unique_ptr<engine::EngineImpl> drafting_engine(DraftKind kind, EngineOptions options) {
  options.speculation = Speculation::draft;
  return engine_over(tiny_model(tiny_config(), options.dtype, options.device), options, {},
                     tiny_draft(kind, options));
}

// The layers add nothing, so a token's own embedding reaches the head; the head's row i + 1 is the
// embedding of token i.
std::unique_ptr<engine::EngineImpl> script_engine(std::vector<std::string> pieces,
                                                  EngineOptions options) {
  const auto vocab = std::ssize(pieces);
  model::ModelConfig config = tiny_config(vocab);
  config.eos_tokens = {static_cast<int32_t>(vocab - 1)};
  std::unique_ptr<model::Model> model = tiny_model(config);
  const auto weight = [&](const std::string& name) { return model->weights().find(name).values; };
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    fill(weight(concat("model.layers.", layer, ".self_attn.o_proj.weight")), 0.0f);
    fill(weight(concat("model.layers.", layer, ".mlp.down_proj.weight")), 0.0f);
  }
  const int64_t hidden = config.hidden;
  const auto* from = weight("model.embed_tokens.weight").as<float>();
  auto* to = weight("lm_head.weight").as<float>();
  for (int64_t i = 0; i < vocab; ++i) {
    std::copy_n(from + i * hidden, hidden, to + (i + 1) % vocab * hidden);
  }
  return engine_over(std::move(model), options, script_tokenizer(pieces));
}

std::vector<int32_t> ids_of(std::span<const OutputToken> tokens) {
  std::vector<int32_t> ids;
  for (const OutputToken& token : tokens) ids.push_back(token.token);
  return ids;
}

void collect(std::span<const SequenceOutput> news, Outcomes& outcomes) {
  for (const SequenceOutput& output : news) {
    Outcome& outcome = outcomes[{output.request, output.index}];
    EXPECT_EQ(outcome.finish, FinishReason::none) << "news after the end";
    for (const OutputToken& token : output.tokens) {
      outcome.tokens.push_back(token.token);
      outcome.logprobs.push_back(token.logprob);
    }
    outcome.text += output.text;
    outcome.finish = output.finish;
    outcome.error = output.error;
    outcome.num_cached_tokens += output.num_cached_tokens;
    outcome.score = output.score;
    if (!output.prompt_logprobs.empty()) outcome.prompt_logprobs = output.prompt_logprobs;
    if (!output.embedding.empty()) outcome.embedding = output.embedding;
  }
}

void run_all(engine::EngineImpl& engine, Outcomes& outcomes) {
  for (int num_steps = 0; engine.has_work(); ++num_steps) {
    ASSERT_LT(num_steps, 20000) << "the engine does not come to an end";
    collect(engine.step(), outcomes);
    engine.check_pages();
  }
}

Outcome run_one(engine::EngineImpl& engine, Request request) {
  const std::optional<RequestId> id = engine.submit(std::move(request));
  expects(id.has_value(), "run_one: the queue is full");
  Outcomes outcomes;
  run_all(engine, outcomes);
  return outcomes[{*id, 0}];
}

}  // namespace tessera::testing
