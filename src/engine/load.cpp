// Engines from a model folder, and over a model that is in memory already.
// SPDX-License-Identifier: MIT
#include <system_error>
#include <utility>

#include "core/text.h"
#include "engine/check_request.h"
#include "engine/engine_impl.h"
#include "engine/make_engine.h"
#include "tessera/core/error.h"

namespace tessera {
namespace {

Tokenizer load_tokenizer(const std::filesystem::path& folder, int64_t vocab) {
  const std::filesystem::path file = folder / "tokenizer.json";
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) {
    fail(concat("engine: ", shown_path(folder.native()),
                " has no tokenizer.json; give a folder with config.json, tokenizer.json and "
                "safetensors"));
  }
  Tokenizer tokenizer = Tokenizer::load(file);
  if (tokenizer.num_ids() > vocab) {
    fail(concat("engine: ", shown_path(file.native()), " has ids up to ", tokenizer.num_ids() - 1,
                "; config.json says vocab_size ", vocab, ": they do not belong together"));
  }
  return tokenizer;
}

}  // namespace

std::unique_ptr<Engine> Engine::load(const std::filesystem::path& folder,
                                     const EngineOptions& options) {
  engine::check_options(options);
  const model::ModelConfig config = model::load_config(folder);
  engine::check_device(config, options);
  Tokenizer tokenizer = load_tokenizer(folder, config.vocab);
  const model::Checkpoint checkpoint = model::Checkpoint::open(folder);
  model::LlamaWeights weights = model::load_weights(
      checkpoint, config,
      {.dtype = options.dtype,
       .format = options.use_int8_weights ? model::WeightFormat::int8 : model::WeightFormat::plain,
       .device = options.device,
       .check_values = options.check_weights,
       .on_progress = options.on_load});
  return engine::make_engine(config, std::move(weights), std::move(tokenizer), options);
}

namespace engine {

std::unique_ptr<Engine> make_engine(const model::ModelConfig& config, model::LlamaWeights weights,
                                    std::optional<Tokenizer> tokenizer,
                                    const EngineOptions& options) {
  check_device(config, options);
  return std::make_unique<EngineImpl>(config, std::move(weights), std::move(tokenizer), options);
}

}  // namespace engine
}  // namespace tessera
