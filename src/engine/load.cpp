// Engines from a model folder, and over a model that is in memory already.
// SPDX-License-Identifier: MIT
#include <system_error>
#include <utility>

#include "core/text.h"
#include "engine/engine_impl.h"
#include "engine/fill_options.h"
#include "engine/make_engine.h"
#include "engine/memory_check.h"
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
  return engine::load(engine::open_model(folder, model::load_config(folder), options));
}

namespace engine {

OpenModel open_model(const std::filesystem::path& folder, model::ModelConfig config,
                     const EngineOptions& options) {
  EngineOptions filled = fill_options(options, config);
  check_device(config, filled);
  Tokenizer tokenizer = load_tokenizer(folder, config.vocab);
  return {.folder = folder,
          .config = std::move(config),
          .options = std::move(filled),
          .tokenizer = std::move(tokenizer)};
}

std::unique_ptr<Engine> load(OpenModel opened) {
  const EngineOptions& options = opened.options;
  check_memory(opened.config, options);
  const model::Checkpoint checkpoint = model::Checkpoint::open(opened.folder);
  std::unique_ptr<model::Model> model = model::load_model(checkpoint, opened.config,
                                                          {.dtype = options.dtype,
                                                           .format = options.weights,
                                                           .device = options.device,
                                                           .check_values = options.check_weights,
                                                           .on_progress = options.on_load});
  return make_engine(std::move(model), std::move(opened.tokenizer), options);
}

std::unique_ptr<Engine> make_engine(std::unique_ptr<model::Model> model,
                                    std::optional<Tokenizer> tokenizer,
                                    const EngineOptions& options) {
  check_device(model->config(), options);
  return std::make_unique<EngineImpl>(std::move(model), std::move(tokenizer), options);
}

}  // namespace engine
}  // namespace tessera
