// Reports of runs, and the files that complete a checkpoint.
// SPDX-License-Identifier: MIT
#include "quant_model/run_state.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/read_file.h"
#include "core/text.h"
#include "quant_model/output_config.h"
#include "tessera/core/error.h"

namespace tessera::quant {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kMaxReportBytes = 256 << 20;
constexpr int64_t kMaxCopiedBytes = 256 << 20;

// Weights of other kinds that may lie beside a checkpoint.
bool is_weight_file(const fs::path& path) {
  const std::string ending = path.extension().string();
  return ending == ".safetensors" || ending == ".bin" || ending == ".pt" || ending == ".pth" ||
         ending == ".gguf" || ending == ".h5" || ending == ".msgpack";
}

}  // namespace

std::string fingerprint(const ModelQuantOptions& options, const model::Checkpoint& checkpoint) {
  uint64_t hash = 14695981039346656037u;
  const auto add = [&](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
    hash = (hash ^ 255u) * 1099511628211u;
  };
  add(concat(name(options.method), " ", name(options.format.codes), " ", options.format.group, " ",
             options.format.is_symmetric, " ", name(options.files), " ", options.gptq.damping, " ",
             options.gptq.block, " ", static_cast<int>(options.gptq.order), " ",
             options.gptq.search_clip, " ", options.search_clip, " ", options.alpha, " ",
             options.quantizes_inputs, options.has_static_inputs, options.calibrates_kv, " ",
             options.device.is_cpu() ? "cpu" : "gpu"));
  for (const std::string& part : options.keep) add(part);
  for (const auto& [tensor, stored] : checkpoint.tensors()) {
    add(concat(tensor, " ", stored.type, " ", stored.num_bytes));
  }
  for (const std::vector<int32_t>& sample : options.samples) {
    add(std::string_view(reinterpret_cast<const char*>(sample.data()), 4 * sample.size()));
  }
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

RunState::RunState(fs::path folder, std::string fingerprint, int64_t num_layers)
    : folder_(std::move(folder)), fingerprint_(std::move(fingerprint)), num_layers_(num_layers) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) {
    fail(concat(shown_path(folder_.native()), ": cannot be made: ", error.message()));
  }
  if (fs::exists(report_path())) {
    read();
    return;
  }
  if (!fs::is_empty(folder_)) {
    fail(concat(shown_path(folder_.native()),
                ": is not empty and not of a run of quantize; give an empty folder or a new name"));
  }
  write();
}

fs::path RunState::shard(int64_t layer) const {
  char file[64];
  std::snprintf(file, sizeof(file), "model-%05d-of-%05d.safetensors", static_cast<int>(layer + 1),
                static_cast<int>(num_layers_ + 1));
  return folder_ / file;
}

void RunState::read() {
  const fs::path path = report_path();
  try {
    const Json report = Json::parse(read_file(path, kMaxReportBytes));
    if (report.at("fingerprint") != fingerprint_) {
      fail(concat(shown_path(folder_.native()),
                  ": holds a run with other options, samples or weights; give them again to resume "
                  "it, or another folder"));
    }
    for (const Json& one : report.at("layers")) {
      const auto layer = one.at("layer").get<int64_t>();
      if (!fs::exists(shard(layer))) continue;
      Layer& made = layers_[layer];
      made.num_bytes = one.at("bytes").get<int64_t>();
      made.tensors = one.at("tensors").get<std::vector<std::string>>();
      for (const Json& linear : one.at("linears")) {
        made.linears.push_back({.name = linear.at("name").get<std::string>(),
                                .weight_error = linear.at("weight_error").get<double>(),
                                .output_error = linear.at("output_error").get<double>()});
      }
    }
  } catch (const nlohmann::json::exception& problem) {
    fail(concat(shown_path(path.native()), ": ", shown(problem.what(), 200),
                "; remove the folder and start again"));
  }
}

void RunState::write() const {
  Json layers = Json::array();
  for (const auto& [layer, made] : layers_) {
    Json linears = Json::array();
    for (const LinearReport& one : made.linears) {
      linears.push_back({{"name", one.name},
                         {"weight_error", one.weight_error},
                         {"output_error", one.output_error}});
    }
    layers.push_back({{"layer", layer},
                      {"bytes", made.num_bytes},
                      {"linears", linears},
                      {"tensors", made.tensors}});
  }
  const Json report = {{"fingerprint", fingerprint_}, {"layers", layers}};
  write_text(report_path(), report.dump(1) + "\n");
}

void RunState::add_layer(int64_t layer, const std::vector<LinearReport>& linears,
                         const std::vector<FileTensor>& tensors, int64_t num_bytes) {
  Layer& made = layers_[layer];
  made = {.linears = linears, .tensors = {}, .num_bytes = num_bytes};
  for (const FileTensor& tensor : tensors) made.tensors.push_back(tensor.name);
  write();
}

ModelQuantReport RunState::finish(const fs::path& from, const ModelQuantOptions& options,
                                  const StoredForm& form,
                                  const std::vector<std::string>& ignored) const {
  ModelQuantReport report;
  Json map = Json::object();
  for (const auto& [layer, made] : layers_) {
    for (const std::string& tensor : made.tensors) map[tensor] = shard(layer).filename().string();
    report.bytes_after += made.num_bytes;
    report.layers.insert(report.layers.end(), made.linears.begin(), made.linears.end());
  }
  const Json index = {{"metadata", {{"total_size", report.bytes_after}}}, {"weight_map", map}};
  write_text(folder_ / "model.safetensors.index.json", index.dump(2) + "\n");
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    const fs::path name = entry.path().filename();
    if (!entry.is_regular_file() || is_weight_file(name) || name == "config.json" ||
        name == "model.safetensors.index.json" || name == "oracle.json" ||
        name == "calibration.txt" || entry.file_size() > static_cast<uintmax_t>(kMaxCopiedBytes)) {
      continue;
    }
    write_text(folder_ / name, read_file(entry.path(), kMaxCopiedBytes));
  }
  write_text(folder_ / "config.json",
             quantized_config(read_file(from / "config.json", 1 << 20), options, form, ignored));
  return report;
}

}  // namespace tessera::quant
