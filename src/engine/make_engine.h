// How an engine is made: from a folder, whose weights are read last, or from weights that are in
// memory already (tests, and benches with random ones). And which device a model can run on.
// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "dist/communicator.h"
#include "engine/early_start.h"
#include "model/config.h"
#include "model/model.h"
#include "tessera/engine/engine.h"

namespace tessera::engine {

// Refuses a device that does not exist, or that lacks a kernel the model needs, naming it.
void check_device(const model::ModelConfig& config, const EngineOptions& options);
// The first GPU if it has kernels for everything the model needs in these types; otherwise the CPU,
// and why the GPU or its driver is not used. Ignores options.device.
struct DeviceChoice {
  Device device;
  std::string why_no_gpu = {};
};
DeviceChoice choose_device(const model::ModelConfig& config, const EngineOptions& options);

// A model folder with everything but the weights read and checked.
struct OpenModel {
  std::filesystem::path folder;
  model::ModelConfig config;
  EngineOptions options;  // with every default filled in
  Tokenizer tokenizer;
  EarlyStart early = {};
  std::optional<model::ModelConfig> draft = {};  // of options.draft_folder
};
// Refuses unusable options, device, config or tokenizer, and a draft that does not belong to them.
// `early` may have begun with the device and the tokenizer.
OpenModel open_model(const std::filesystem::path& folder, model::ModelConfig config,
                     const EngineOptions& options, EarlyStart early = {});
// Throws OutOfMemory if the model does not fit into free memory, before any weight is read. The
// communicator says which rank's share of the weights to read.
std::unique_ptr<Engine> load(OpenModel opened, std::unique_ptr<dist::Communicator> communicator =
                                                   std::make_unique<dist::LocalCommunicator>());

// `model` has the share of the communicator's rank; `draft` is whole, and needed for
// Speculation::draft alone.
std::unique_ptr<Engine> make_engine(
    std::unique_ptr<model::Model> model, std::optional<Tokenizer> tokenizer,
    const EngineOptions& options,
    std::unique_ptr<dist::Communicator> communicator = std::make_unique<dist::LocalCommunicator>(),
    std::unique_ptr<model::Model> draft = nullptr);

}  // namespace tessera::engine
