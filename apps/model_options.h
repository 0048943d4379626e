// Which model, in which types, on what: the flags of every verb that runs one.
// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "engine/make_engine.h"
#include "model/config.h"
#include "tessera/engine/engine.h"

namespace tessera::apps {

struct ModelOptions {
  std::string dtype = "bf16";
  std::string weights = "plain";
  std::string kv = "plain";
  std::string device = "auto";
  int64_t threads = 0;
  int64_t context = 0;
  int64_t kv_bytes = 0;
  bool check_weights = false;
  std::optional<double> step_timeout;
};

// --dtype, --weights, --kv, --threads, --device, --context, --kv-bytes, --check-weights,
// --step-timeout.
void add_model_flags(CLI::App& verb, ModelOptions& options);

DType parse_dtype(const std::string& text);  // f32, bf16, f16
KvFormat parse_kv_type(const std::string& text);
Device parse_device(const std::string& text);  // cpu, cuda, cuda:1

// The engine's options for a model, with the number of threads set for this process. The device
// "auto" is the first GPU where it has all kernels the model needs, else the CPU.
EngineOptions engine_options(const ModelOptions& options, const model::ModelConfig& config);
// Threads that operations on the CPU use; 0 keeps what there is.
void use_threads(int64_t threads);

// What a person's MODEL means: a folder with a config.json; empty is the default model: the folder
// TESSERA_MODEL names, or the bundled one. Refuses what is not there.
std::filesystem::path find_model(const std::string& given);
// models/tessera-13m above the executable, in the source tree or here; empty where it is nowhere.
std::filesystem::path bundled_model();

// The weights of a model, with a progress bar where a terminal watches.
std::unique_ptr<Engine> load_engine(engine::OpenModel opened);

}  // namespace tessera::apps
