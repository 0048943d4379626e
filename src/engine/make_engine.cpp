// Devices chosen and checked, model folders opened, and the parts of an engine put together.
// SPDX-License-Identifier: MIT
#include "engine/make_engine.h"

#include <chrono>
#include <utility>

#include "core/text.h"
#include "engine/draft_model.h"
#include "engine/draft_setup.h"
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
                                        .activations = options.activations,
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

// The draft's config, if the options ask for one.
std::optional<model::ModelConfig> open_draft(const model::ModelConfig& target,
                                             const EngineOptions& options) {
  if (options.speculation != Speculation::draft) return std::nullopt;
  const FieldNames& names = options.field_names;
  if (options.draft_folder.empty()) {
    fail(concat(names.prefix("engine"), names("speculation"), " draft needs ",
                names("draft_folder"), ": give the folder of a small model"));
  }
  model::ModelConfig draft = model::load_config(options.draft_folder);
  check_draft_vocab(target, draft, options);
  check_device(draft, options);
  return draft;
}

// Before the target's runner, which takes what is left of the memory.
std::unique_ptr<DraftSource> make_draft(std::unique_ptr<model::Model> draft,
                                        const model::ModelConfig& target,
                                        const EngineOptions& options) {
  const model::ModelConfig& config = draft->config();
  check_draft_vocab(target, config, options);
  const int64_t free_bytes = free_memory(options.device) -
                             memory_needs(target, options).activations -
                             memory_needs(config, options).activations;
  const EngineOptions own = draft_options(options, target, config, free_bytes);
  auto runner =
      std::make_unique<Runner>(std::move(draft), own, std::make_unique<dist::LocalCommunicator>());
  return std::make_unique<DraftModel>(std::move(runner), own);
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
  std::optional<model::ModelConfig> draft = open_draft(config, filled);
  if (draft) check_draft_tokenizer(tokenizer, folder, filled);
  return {.folder = folder,
          .config = std::move(config),
          .options = std::move(filled),
          .tokenizer = std::move(tokenizer),
          .early = std::move(early),
          .draft = std::move(draft)};
}

std::unique_ptr<Engine> load(OpenModel opened, std::unique_ptr<dist::Communicator> communicator) {
  const EngineOptions& options = opened.options;
  PhaseClock clock(options);
  std::shared_ptr<model::Carrier> carrier = opened.early.take_carrier(options.device);
  if (!options.device.is_cpu()) {
    clock.end({.name = "context", .seconds = opened.early.device_seconds()});
  }
  if (opened.draft) {
    check_memory_of_both(opened.config, *opened.draft, options);
  } else {
    check_memory(opened.config, options);
  }
  model::LoadOptions how = {.dtype = options.dtype,
                            .format = options.weights,
                            .weight_group = options.weight_group,
                            .activations = options.activations,
                            .device = options.device,
                            .rank = communicator->rank(),
                            .num_ranks = communicator->size(),
                            .check_values = options.check_weights,
                            .on_progress = options.on_load,
                            .carrier = std::move(carrier)};
  const auto read = [&](const std::filesystem::path& folder, const model::ModelConfig& config,
                        std::string_view phase) {
    std::unique_ptr<model::Model> model =
        model::load_model(model::Checkpoint::open(folder), config, how);
    clock.end({.name = phase,
               .num_bytes = model->weights().total_bytes(),
               .note = show(model->weights())});
    return model;
  };
  std::unique_ptr<model::Model> model = read(opened.folder, opened.config, "weights"), draft;
  if (opened.draft) {
    how.rank = 0;
    how.num_ranks = 1;
    draft = read(options.draft_folder, *opened.draft, "draft weights");
  }
  std::unique_ptr<Engine> engine = make_engine(std::move(model), std::move(opened.tokenizer),
                                               options, std::move(communicator), std::move(draft));
  clock.end({.name = "prepare"});
  return engine;
}

std::unique_ptr<Engine> make_engine(std::unique_ptr<model::Model> model,
                                    std::optional<Tokenizer> tokenizer,
                                    const EngineOptions& options,
                                    std::unique_ptr<dist::Communicator> communicator,
                                    std::unique_ptr<model::Model> draft) {
  check_device(model->config(), options);
  const EngineOptions filled = fill_options(options, model->config());
  expects((options.speculation == Speculation::draft) == (draft != nullptr),
          "make_engine: a draft model goes with Speculation::draft; give both or neither");
  std::unique_ptr<DraftSource> source;
  if (draft) source = make_draft(std::move(draft), model->config(), filled);
  auto runner = std::make_unique<Runner>(std::move(model), filled, std::move(communicator));
  return std::make_unique<EngineImpl>(std::move(runner), std::move(tokenizer), filled,
                                      std::move(source));
}

}  // namespace engine

std::unique_ptr<Engine> Engine::load(const std::filesystem::path& folder,
                                     const EngineOptions& options) {
  engine::check_options(options);
  return engine::load(engine::open_model(folder, model::load_config(folder), options));
}

}  // namespace tessera
