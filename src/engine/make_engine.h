// How an engine is made: from a folder in two steps, the weights in the second; or over weights
// that are in memory already, for tests and for benches with random ones. And on which device a
// model can run.
// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "model/config.h"
#include "model/model.h"
#include "tessera/engine/engine.h"

namespace tessera::engine {

// Refuses a device that is not there, or that lacks a kernel the model needs, naming it.
void check_device(const model::ModelConfig& config, const EngineOptions& options);
// The first GPU, if there is one and it has kernels for all that the model needs in these types;
// else the CPU, and why a GPU or driver that is there is not used. What options.device says does
// not count.
struct DeviceChoice {
  Device device;
  std::string why_no_gpu = {};
};
DeviceChoice choose_device(const model::ModelConfig& config, const EngineOptions& options);

// A model folder of which everything but the weights has been read and checked.
struct OpenModel {
  std::filesystem::path folder;
  model::ModelConfig config;
  EngineOptions options;  // with every default filled in
  Tokenizer tokenizer;
};
// Refuses options, a device, a config or a tokenizer that make no engine.
OpenModel open_model(const std::filesystem::path& folder, model::ModelConfig config,
                     const EngineOptions& options);
// Refuses with OutOfMemory what does not fit into free memory, before weights are read.
std::unique_ptr<Engine> load(OpenModel opened);

std::unique_ptr<Engine> make_engine(std::unique_ptr<model::Model> model,
                                    std::optional<Tokenizer> tokenizer,
                                    const EngineOptions& options);

}  // namespace tessera::engine
