// `tessera inspect`: what a model is, what it takes, and what fits where.
// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/fit.h"
#include "apps/inspect_text.h"
#include "apps/json_text.h"
#include "apps/machine.h"
#include "apps/model_options.h"
#include "apps/options.h"
#include "apps/output.h"
#include "apps/verbs.h"
#include "core/text.h"
#include "model/config.h"
#include "model/model.h"
#include "model/safetensors.h"
#include "tessera/text/chat_template.h"

namespace tessera::apps {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kPageSize = 16;  // as the engine's default
// Lengths of the workload e2e/locked while it runs: 512 tokens of prompt, 512 to come.
constexpr int64_t kShortest = 512;
constexpr int64_t kLongest = 1024;

struct InspectOptions {
  std::string model;
  bool is_json = false;
  bool has_tensors = false;
};

Json tensor_json(const model::StoredTensor& tensor) {
  return {{"name", tensor.name},
          {"type", tensor.type},
          {"shape", tensor.shape},
          {"bytes", tensor.num_bytes}};
}

int64_t num_elements(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

// Counts over tensors, and the table of them where asked for.
Json tensors_json(const std::vector<const model::StoredTensor*>& tensors, bool has_table) {
  std::map<std::string, int64_t> elements_by_type;
  for (const model::StoredTensor* tensor : tensors) {
    elements_by_type[std::string(tensor->type)] += num_elements(tensor->shape);
  }
  Json json = {{"count", tensors.size()}, {"elements_by_type", elements_by_type}};
  if (!has_table) return json;
  json["table"] = Json::array();
  for (const model::StoredTensor* tensor : tensors) json["table"].push_back(tensor_json(*tensor));
  return json;
}

std::string_view name_of(RopeScalingKind kind) {
  switch (kind) {
    case RopeScalingKind::none: return "none";
    case RopeScalingKind::linear: return "linear";
    case RopeScalingKind::llama3: return "llama3";
    case RopeScalingKind::yarn: return "yarn";
  }
  return "";
}

Json config_json(const model::ModelConfig& config) {
  return {{"architecture", config.architecture},
          {"parameters", config.num_parameters()},
          {"dtype", name(config.dtype)},
          {"num_layers", config.num_layers},
          {"hidden", config.hidden},
          {"inter", config.inter},
          {"num_heads", config.num_heads},
          {"num_kv_heads", config.num_kv_heads},
          {"head_dim", config.head_dim},
          {"vocab", config.vocab},
          {"max_positions", config.max_positions},
          {"tied_embeddings", config.has_tied_embeddings},
          {"window", config.window},
          {"rope",
           {{"theta", config.rope_theta},
            {"scaling", name_of(config.rope_scaling.kind)},
            {"factor", config.rope_scaling.factor}}}};
}

Json fit_json(const model::ModelConfig& config) {
  const int64_t kv_bytes = config.kv_bytes_per_token(DType::bf16);
  Json rows = Json::array();
  for (const MemoryPlace& place : memory_places()) {
    for (const bool is_int8 : {false, true}) {
      const int64_t weights = weight_bytes(
          config, DType::bf16, is_int8 ? model::WeightFormat::int8 : model::WeightFormat::plain);
      Json sequences = Json::object();
      for (const int64_t context : contexts_to_show(config.max_positions)) {
        sequences[std::to_string(context)] =
            sequences_that_fit(place.bytes, weights, kv_bytes, context, kPageSize);
      }
      rows.push_back({{"memory", place.name},
                      {"memory_bytes", place.bytes},
                      {"weights", is_int8 ? "int8" : "bf16"},
                      {"sequences_by_context", std::move(sequences)}});
    }
  }
  return rows;
}

Json cache_json(const model::ModelConfig& config) {
  const int64_t longest = std::min(kLongest, config.max_positions);
  const std::vector<int64_t> lengths = even_lengths(std::min(kShortest, longest), longest, longest);
  const CacheWaste waste = cache_waste(lengths, kPageSize, config.max_positions);
  return {{"bytes_per_token",
           {{"bf16", config.kv_bytes_per_token(DType::bf16)},
            {"f32", config.kv_bytes_per_token(DType::f32)}}},
          {"page_size", kPageSize},
          {"lengths", {lengths.front(), lengths.back()}},
          {"paged_waste", rounded(waste.paged)},
          {"contiguous_waste", rounded(waste.contiguous)},
          {"paged_share_of_contiguous",
           rounded((1 - waste.contiguous) / std::max(1e-9, 1 - waste.paged))}};
}

Json files_json(const fs::path& folder) {
  std::map<std::string, int64_t> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file()) {
      files[entry.path().filename().string()] = static_cast<int64_t>(entry.file_size());
    }
  }
  return files;
}

Json inspect_folder(const fs::path& folder, bool has_table) {
  const model::ModelConfig config = model::load_config(folder);
  const model::Checkpoint checkpoint = model::Checkpoint::open(folder);
  std::vector<const model::StoredTensor*> tensors;
  for (const auto& [name, tensor] : checkpoint.tensors()) tensors.push_back(&tensor);
  std::error_code ignored;
  Json json = {{"model", folder.string()}, {"config", config_json(config)}};
  json["has_tokenizer"] = fs::exists(folder / "tokenizer.json", ignored);
  json["has_chat_template"] = load_chat_settings(folder).template_source.has_value();
  json["files"] = files_json(folder);
  json["tensors"] = tensors_json(tensors, has_table);
  json["weight_bytes"] = {{"f32", weight_bytes(config, DType::f32, model::WeightFormat::plain)},
                          {"bf16", weight_bytes(config, DType::bf16, model::WeightFormat::plain)},
                          {"int8", weight_bytes(config, DType::bf16, model::WeightFormat::int8)}};
  json["kv_cache"] = cache_json(config);
  json["fit"] = fit_json(config);
  return json;
}

Json inspect_file(const fs::path& file, bool has_table) {
  const model::WeightFile opened(file);
  const std::vector<model::StoredTensor> stored = model::parse_safetensors(opened);
  std::vector<const model::StoredTensor*> tensors;
  for (const model::StoredTensor& tensor : stored) tensors.push_back(&tensor);
  return {{"file", file.string()},
          {"bytes", opened.size_bytes()},
          {"tensors", tensors_json(tensors, has_table)}};
}

}  // namespace

void add_inspect(CLI::App& app, int&) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App* verb = app.add_subcommand("inspect", "Shows a model: shapes, sizes, what fits where");
  verb->add_option("MODEL", options->model,
                   "A model's folder, or one .safetensors file; the bundled model if absent");
  FlagSet flags(*verb, "Output");
  flags.toggle("--tensors", options->has_tensors, "List every tensor");
  flags.toggle("--json", options->is_json, "One JSON object instead of text");
  verb->callback([options] {
    const bool is_file = fs::path(options->model).extension() == ".safetensors";
    const Json json = is_file ? inspect_file(options->model, options->has_tensors)
                              : inspect_folder(find_model(options->model), options->has_tensors);
    write_out(options->is_json ? json_text(json) : inspect_text(json));
  });
}

}  // namespace tessera::apps
