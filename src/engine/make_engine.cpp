// Devices chosen and checked, model folders opened, and the parts of an engine put together.
// SPDX-License-Identifier: MIT
#include "engine/make_engine.h"

#include <system_error>
#include <utility>

#include "core/text.h"
#include "engine/engine_impl.h"
#include "engine/memory_check.h"
#include "engine/validate.h"
#include "tessera/core/error.h"

namespace tessera {
namespace engine {
namespace {

std::string missing_on(Device device, const model::ModelConfig& config,
                       const EngineOptions& options) {
  return model::find_missing_operation(
      config, {.dtype = options.dtype, .format = options.weights, .device = device},
      options.kv_type, options.page_size);
}

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

void check_device(const model::ModelConfig& config, const EngineOptions& options) {
  const Device device = options.device;
  if (device.is_cpu()) return;
  const int num_devices = num_cuda_devices();
  if (device.index < 0 || device.index >= num_devices) {
    fail(concat("engine: ", to_string(device), " was asked for; ",
                num_devices > 0 ? concat("this machine has ", num_devices, " CUDA devices")
                : cuda_problem().empty()
                    ? std::string("no CUDA device was found, or this build has no CUDA")
                    : cuda_problem(),
                "; or use the cpu"));
  }
  const std::string missing = missing_on(device, config, options);
  if (missing.empty()) return;
  fail(concat("engine: this model needs an operation that ", to_string(device),
              " does not have; use the cpu, or other types: ", missing));
}

DeviceChoice choose_device(const model::ModelConfig& config, const EngineOptions& options) {
  if (num_cuda_devices() == 0) return {.device = cpu_device(), .why_no_gpu = cuda_problem()};
  const std::string missing = missing_on(cuda_device(), config, options);
  if (missing.empty()) return {.device = cuda_device()};
  return {.device = cpu_device(),
          .why_no_gpu = concat(to_string(cuda_device()), " lacks an operation: ", missing)};
}

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

std::unique_ptr<Engine> load(OpenModel opened, std::unique_ptr<dist::Communicator> communicator) {
  const EngineOptions& options = opened.options;
  check_memory(opened.config, options);
  const model::Checkpoint checkpoint = model::Checkpoint::open(opened.folder);
  std::unique_ptr<model::Model> model = model::load_model(checkpoint, opened.config,
                                                          {.dtype = options.dtype,
                                                           .format = options.weights,
                                                           .device = options.device,
                                                           .rank = communicator->rank(),
                                                           .num_ranks = communicator->size(),
                                                           .check_values = options.check_weights,
                                                           .on_progress = options.on_load});
  return make_engine(std::move(model), std::move(opened.tokenizer), options,
                     std::move(communicator));
}

std::unique_ptr<Engine> make_engine(std::unique_ptr<model::Model> model,
                                    std::optional<Tokenizer> tokenizer,
                                    const EngineOptions& options,
                                    std::unique_ptr<dist::Communicator> communicator) {
  check_device(model->config(), options);
  const EngineOptions filled = fill_options(options, model->config());
  auto runner = std::make_unique<Runner>(std::move(model), filled, std::move(communicator));
  return std::make_unique<EngineImpl>(std::move(runner), std::move(tokenizer), filled);
}

}  // namespace engine

std::unique_ptr<Engine> Engine::load(const std::filesystem::path& folder,
                                     const EngineOptions& options) {
  engine::check_options(options);
  return engine::load(engine::open_model(folder, model::load_config(folder), options));
}

}  // namespace tessera
