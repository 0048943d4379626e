// Devices chosen and checked, model folders opened, and the parts of an engine put together.
// SPDX-License-Identifier: MIT
#include "engine/make_engine.h"

#include <chrono>
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
  return model::find_missing_operation(config,
                                       {.dtype = options.dtype,
                                        .format = options.weights,
                                        .weight_group = options.weight_group,
                                        .device = device},
                                       options.kv_type, options.page_size);
}

void check_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& folder,
                     int64_t vocab) {
  if (tokenizer.num_ids() > vocab) {
    fail(concat("engine: ", shown_path((folder / "tokenizer.json").native()), " has ids up to ",
                tokenizer.num_ids() - 1, "; config.json says vocab_size ", vocab,
                ": they do not belong together"));
  }
}

// Reports, when it is over, how long a part of loading took.
class PhaseClock {
 public:
  explicit PhaseClock(const EngineOptions& options) : options_(options) {}

  void end(LoadPhase phase) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start_;
    if (phase.seconds == 0) phase.seconds = took.count();
    if (options_.on_phase) options_.on_phase(phase);
    start_ = std::chrono::steady_clock::now();
  }

 private:
  const EngineOptions& options_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// "0.31 s of it to read and copy, by 16 threads that read 3.90 s and waited 1.02 s"; empty on the
// CPU.
std::string show(const model::UploadTimes& times) {
  if (times.num_threads == 0) return {};
  const auto shown_seconds = [](double seconds) {
    const auto hundredths = static_cast<int64_t>(seconds * 100 + 0.5);
    return concat(hundredths / 100, ".", hundredths / 10 % 10, hundredths % 10, " s");
  };
  return concat(shown_seconds(times.seconds), " of it to read and copy, by ", times.num_threads,
                " threads that read ", shown_seconds(times.read_seconds), " and waited ",
                shown_seconds(times.wait_seconds));
}

// The same after how linear layers are kept: "linear layers: 24 as i4, groups of 128".
std::string show(const model::Weights& weights) {
  std::string text;
  for (const model::KeptWeights& kept : weights.kept()) {
    text += concat(text.empty() ? "linear layers: " : "; ", kept.count, " as ", kept.as);
  }
  const std::string times = show(weights.upload_times());
  return times.empty() ? text : concat(text, ", ", times);
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
                     const EngineOptions& options, EarlyStart early) {
  EngineOptions filled = fill_options(options, config);
  check_device(config, filled);
  early.begin_device(filled.device);
  PhaseClock clock(filled);
  std::optional<Tokenizer> begun = early.take_tokenizer();
  Tokenizer tokenizer = begun ? std::move(*begun) : read_tokenizer(folder);
  clock.end({.name = "tokenizer", .seconds = early.tokenizer_seconds()});
  check_tokenizer(tokenizer, folder, config.vocab);
  return {.folder = folder,
          .config = std::move(config),
          .options = std::move(filled),
          .tokenizer = std::move(tokenizer),
          .early = std::move(early)};
}

std::unique_ptr<Engine> load(OpenModel opened, std::unique_ptr<dist::Communicator> communicator) {
  const EngineOptions& options = opened.options;
  PhaseClock clock(options);
  std::shared_ptr<model::Carrier> carrier = opened.early.take_carrier(options.device);
  if (!options.device.is_cpu()) {
    clock.end({.name = "context", .seconds = opened.early.device_seconds()});
  }
  check_memory(opened.config, options);
  const model::Checkpoint checkpoint = model::Checkpoint::open(opened.folder);
  std::unique_ptr<model::Model> model = model::load_model(checkpoint, opened.config,
                                                          {.dtype = options.dtype,
                                                           .format = options.weights,
                                                           .weight_group = options.weight_group,
                                                           .device = options.device,
                                                           .rank = communicator->rank(),
                                                           .num_ranks = communicator->size(),
                                                           .check_values = options.check_weights,
                                                           .on_progress = options.on_load,
                                                           .carrier = std::move(carrier)});
  clock.end({.name = "weights",
             .num_bytes = model->weights().total_bytes(),
             .note = show(model->weights())});
  std::unique_ptr<Engine> engine =
      make_engine(std::move(model), std::move(opened.tokenizer), options, std::move(communicator));
  clock.end({.name = "prepare"});
  return engine;
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
