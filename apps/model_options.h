// Which model, in which types, on which device: the flags of every verb that runs one.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "engine/make_engine.h"
#include "model/config.h"
#include "tessera/engine/engine.h"
#include "tessera/engine/field_names.h"

namespace tessera::apps {

class Verb;

struct ModelOptions {
  std::string dtype = "bf16";
  std::string weights = "stored";
  std::string activations = "auto";
  int64_t group = kDefaultWeightGroup;
  std::string kv = "plain";
  std::string device = "auto";
  int64_t threads = 0;
  int64_t context = 0;
  int64_t kv_bytes = 0;
  bool check_weights = false;
  std::optional<double> step_timeout;
  std::string graphs = "on";
  std::string fuse = "on";
  std::string ahead = "auto";
  std::string speculate = "off";
  std::string draft;
  int64_t draft_tokens = 15;
};

// --dtype, --weights, --activations, --group, --kv, --threads, --device, --context, --kv-bytes,
// --check-weights, --graphs, --fuse, --ahead, --speculate, --draft, --draft-tokens, --step-timeout.
void add_model_flags(const Verb& verb, ModelOptions& options);

DType parse_dtype(const std::string& text);  // f32, bf16, f16
KvFormat parse_kv_type(const std::string& text);
Device parse_device(const std::string& text);  // cpu, cuda, cuda:1

// The engine's options for a model; also sets the number of threads of this process. Device "auto"
// is the first GPU if it has all kernels that the model needs, else the CPU.
EngineOptions engine_options(const ModelOptions& options, const model::ModelConfig& config);
// Makes max_batch, so far the number of sequences, large enough for the drafts of each.
void add_draft_rows(EngineOptions& options);
// Sets the number of threads for CPU operations; 0 keeps it.
void use_threads(int64_t threads);

// The folder of a model as the user gave it; it must have a config.json. Empty: the default model,
// which is the folder in TESSERA_MODEL or the bundled one.
std::filesystem::path find_model(const std::string& given);
// models/tessera-13m above the executable, in the source tree or in the current folder; empty if
// not found.
std::filesystem::path bundled_model();

// Begins, on other threads, with the GPU (the first for device "auto") and the tokenizer, for
// engine::open_model; with nothing if there is no GPU driver. Also sets the number of threads.
engine::EarlyStart start_early(const ModelOptions& options, const std::filesystem::path& folder);
// "[1.234 s] weights: 803.0 ms, 16.1 GB, 20.0 GB/s", and a newline; the time is the program's.
std::string show_phase(const LoadPhase& phase);
// Loads the weights, with a progress bar on a terminal.
std::unique_ptr<Engine> load_engine(engine::OpenModel opened);

// {"max_new_tokens", "--max-tokens"} and so on, for every field that a flag sets.
std::span<const std::pair<std::string_view, std::string_view>> field_flags();

// Makes the engine's messages name flags instead of fields.
FieldNames flag_names();

}  // namespace tessera::apps
