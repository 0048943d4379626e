// `tessera inspect`: what a model is, what it needs, and what fits where.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/json_text.h"
#include "apps/machine.h"
#include "apps/model_options.h"
#include "apps/options.h"
#include "apps/output.h"
#include "apps/verbs.h"
#include "core/text.h"
#include "engine/early_start.h"
#include "model/config.h"
#include "model/formats/stored_format.h"
#include "model/gguf/gguf.h"
#include "model/model.h"
#include "model/safetensors.h"

namespace tessera::apps {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kPageSize = 16;  // the engine's default
// Sequence lengths during the workload e2e/locked: 512 prompt tokens, then 512 generated.
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

// Counts of tensors and elements, and the table of tensors if asked for.
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

std::string format_of(const model::ModelConfig& config) {
  return config.formats == nullptr ? "values" : config.formats->method;
}

// The device that a model is loaded on by default. It matters here because a GPU packs some
// weights, which then take less memory.
Device default_device() { return num_cuda_devices() > 0 ? cuda_device() : cpu_device(); }

int64_t bytes_as(const model::ModelConfig& config, model::WeightFormat format,
                 DType dtype = DType::bf16) {
  return weight_bytes(config, dtype, format, default_device());
}

// How linear layers are kept if the model is loaded as it is stored.
Json kept_json(const model::ModelConfig& config) {
  Json rows = Json::array();
  const auto dry =
      model::make_dry_model(config, {.dtype = DType::bf16, .device = default_device()});
  for (const model::KeptWeights& kept : dry->weights().kept()) {
    rows.push_back({{"as", kept.as}, {"count", kept.count}, {"bytes", kept.num_bytes}});
  }
  return rows;
}

Json config_json(const model::ModelConfig& config) {
  return {{"architecture", config.architecture},
          {"format", format_of(config)},
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

// What a model may be loaded as; "stored" is of quantised checkpoints alone.
constexpr std::pair<std::string_view, model::WeightFormat> kFitFormats[] = {
    {"stored", model::WeightFormat::stored},
    {"bf16", model::WeightFormat::plain},
    {"int8", model::WeightFormat::int8},
    {"int4", model::WeightFormat::int4}};

Json fit_json(const model::ModelConfig& config) {
  const int64_t kv_bytes = config.kv_bytes_per_token(DType::bf16);
  Json rows = Json::array();
  for (const MemoryPlace& place : memory_places()) {
    for (const auto& [as, format] : kFitFormats) {
      if (format == model::WeightFormat::stored && config.formats == nullptr) continue;
      const int64_t weights = bytes_as(config, format);
      Json sequences = Json::object();
      for (const int64_t context : contexts_to_show(config.max_positions)) {
        sequences[std::to_string(context)] =
            sequences_that_fit(place.bytes, weights, kv_bytes, context, kPageSize);
      }
      rows.push_back({{"memory", place.name},
                      {"memory_bytes", place.bytes},
                      {"weights", as},
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
  if (fs::is_regular_file(folder)) {
    files[folder.filename().string()] = static_cast<int64_t>(fs::file_size(folder));
    return files;
  }
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
  json["has_tokenizer"] = model::is_gguf(folder) || fs::exists(folder / "tokenizer.json", ignored);
  json["has_chat_template"] = engine::read_chat_settings(folder).template_source.has_value();
  json["files"] = files_json(folder);
  json["tensors"] = tensors_json(tensors, has_table);
  json["weight_bytes"] = {{"f32", bytes_as(config, model::WeightFormat::plain, DType::f32)},
                          {"bf16", bytes_as(config, model::WeightFormat::plain)},
                          {"int8", bytes_as(config, model::WeightFormat::int8)},
                          {"int4", bytes_as(config, model::WeightFormat::int4)}};
  json["weight_bytes"]["stored"] = bytes_as(config, model::WeightFormat::stored);
  json["linear_layers"] = kept_json(config);
  json["notes"] = config.formats == nullptr ? Json::array() : Json(config.formats->notes);
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

std::string padded(std::string text, size_t width, bool is_right = false) {
  if (text.size() >= width) return text;
  const std::string spaces(width - text.size(), ' ');
  return is_right ? spaces + text : text + spaces;
}

std::string bytes_at(const Json& json) { return show_bytes(json.get<int64_t>()); }

std::string percent(const Json& share) { return fixed(share.get<double>() * 100, 1) + " %"; }

std::string text_of(const Json& json) { return json.get<std::string>(); }

std::string config_text(const Json& json) {
  const Json& c = json["config"];
  const int64_t window = c["window"].get<int64_t>();
  std::string rope = concat("rope theta ", c["rope"]["theta"].get<double>());
  if (text_of(c["rope"]["scaling"]) != "none") {
    rope += concat(", ", text_of(c["rope"]["scaling"]), " x", c["rope"]["factor"].get<double>());
  }
  return concat(
      text_of(c["architecture"]), ", ", show_count(c["parameters"].get<int64_t>()),
      " parameters, stored as ",
      text_of(c["format"]) == "values" ? text_of(c["dtype"]) : text_of(c["format"]), "\n  ",
      c["num_layers"], " layers, hidden ", c["hidden"], ", inter ", c["inter"], ", heads ",
      c["num_heads"], ", KV heads ", c["num_kv_heads"], ", head_dim ", c["head_dim"], ", vocab ",
      c["vocab"], "\n  context ", c["max_positions"], ", ", rope,
      window > 0 ? concat(", window ", window) : std::string(),
      c["tied_embeddings"].get<bool>() ? ", tied embeddings" : "", "\n  ",
      json["has_tokenizer"].get<bool>() ? "tokenizer" : "no tokenizer.json", ", ",
      json["has_chat_template"].get<bool>() ? "chat template" : "no chat template: a base model",
      "\n");
}

std::string linear_text(const Json& json) {
  std::string text =
      concat("Linear layers, ", bytes_at(json["weight_bytes"]["stored"]), " of weights in all\n");
  for (const Json& kept : json["linear_layers"]) {
    text += concat("  ", kept["count"], " as ", text_of(kept["as"]), ", ", bytes_at(kept["bytes"]),
                   "\n");
  }
  for (const Json& note : json["notes"]) text += concat("  note: ", text_of(note), "\n");
  return text;
}

std::string tensors_text(const Json& tensors) {
  std::string text = concat("Tensors: ", tensors["count"]);
  for (const auto& [type, count] : tensors["elements_by_type"].items()) {
    text += concat(", ", show_count(count.get<int64_t>()), " elements of ", type);
  }
  text += "\n";
  if (!tensors.contains("table")) return text;
  for (const Json& tensor : tensors["table"]) {
    text += concat("  ", padded(shown(text_of(tensor["name"])), 48),
                   padded(text_of(tensor["type"]), 6), padded(tensor["shape"].dump(), 18),
                   padded(bytes_at(tensor["bytes"]), 10, true), "\n");
  }
  return text;
}

std::string files_text(const Json& files) {
  std::string text = "Files\n";
  for (const auto& [name, bytes] : files.items()) {
    text += concat("  ", padded(shown(name), 40), padded(bytes_at(bytes), 10, true), "\n");
  }
  return text;
}

std::string fit_text(const Json& json) {
  std::string text =
      "Sequences that fit beside the weights, by context (keys and values in bf16)\n";
  std::string header = "  " + padded("memory", 22) + padded("weights", 8);
  bool has_header = false;
  for (const Json& row : json["fit"]) {
    std::string line =
        "  " + padded(concat(text_of(row["memory"]), ", ", bytes_at(row["memory_bytes"])), 22) +
        padded(text_of(row["weights"]), 8);
    for (const auto& [context, count] : row["sequences_by_context"].items()) {
      if (!has_header) header += padded(context, 10, true);
      line += padded(show_count(count.get<int64_t>()), 10, true);
    }
    if (!has_header) text += header + "\n";
    has_header = true;
    text += line + "\n";
  }
  return text;
}

std::string cache_text(const Json& json) {
  const Json& cache = json["kv_cache"];
  const Json& weights = json["weight_bytes"];
  return concat("Memory\n  weights ", bytes_at(weights["f32"]), " in f32, ",
                bytes_at(weights["bf16"]), " in bf16, ", bytes_at(weights["int8"]), " as int8, ",
                bytes_at(weights["int4"]), " as int4\n  ", "keys and values ",
                show_count(cache["bytes_per_token"]["bf16"].get<int64_t>()),
                " bytes a token in bf16, ",
                show_count(cache["bytes_per_token"]["f32"].get<int64_t>()), " in f32\n  ",
                "sequences of ", cache["lengths"][0], " to ", cache["lengths"][1],
                " tokens: pages of ", cache["page_size"], " waste ", percent(cache["paged_waste"]),
                ", whole contexts ", percent(cache["contiguous_waste"]), ";\n  pages take ",
                percent(cache["paged_share_of_contiguous"]), " of the memory\n");
}

std::string inspect_text(const Json& json) {
  if (json.contains("file")) {
    return concat(shown_path(text_of(json["file"])), ": ", bytes_at(json["bytes"]), "\n",
                  tensors_text(json["tensors"]));
  }
  return concat(shown_path(text_of(json["model"])), ": ", config_text(json),
                files_text(json["files"]), tensors_text(json["tensors"]), linear_text(json),
                cache_text(json), fit_text(json));
}

}  // namespace

void add_inspect(CLI::App& app, int&) {
  const auto options = std::make_shared<InspectOptions>();
  Verb verb(app, "inspect", "Shows a model: shapes, sizes, what fits where");
  verb.positional("MODEL", options->model,
                  "A model's folder, a .gguf file, or one .safetensors file; the bundled model if "
                  "absent");
  FlagSet flags(verb, "Output");
  flags.toggle("--tensors", options->has_tensors, "List every tensor");
  flags.toggle("--json", options->is_json, "One JSON object instead of text");
  verb.on_run([options] {
    const bool is_file = fs::path(options->model).extension() == ".safetensors";
    const Json json = is_file ? inspect_file(options->model, options->has_tensors)
                              : inspect_folder(find_model(options->model), options->has_tensors);
    write_out(options->is_json ? json_text(json) : inspect_text(json));
  });
}

}  // namespace tessera::apps
