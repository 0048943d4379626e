// What a run has finished so far, kept beside its files so that it can be resumed.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model/safetensors.h"
#include "quant_model/stored_weight.h"
#include "tessera/quant/quantize_model.h"

namespace tessera::quant {

// Tells runs apart: options, samples, and names, types and sizes of the checkpoint's tensors.
std::string fingerprint(const ModelQuantOptions& options, const model::Checkpoint& checkpoint);

// One file of tensors for each layer, and one for the rest; quantization_report.json names those
// that are complete.
class RunState {
 public:
  // Makes the folder, or takes up the run that left it. Refuses a folder that holds anything else.
  RunState(std::filesystem::path folder, std::string fingerprint, int64_t num_layers);

  std::filesystem::path shard(int64_t layer) const;
  bool has_layer(int64_t layer) const { return layers_.contains(layer); }
  void add_layer(int64_t layer, const std::vector<LinearReport>& linears,
                 const std::vector<FileTensor>& tensors, int64_t num_bytes);
  // Writes the index and config.json, and copies the tokenizer's and all other small files.
  ModelQuantReport finish(const std::filesystem::path& from, const ModelQuantOptions& options,
                          const StoredForm& form, const std::vector<std::string>& ignored) const;

 private:
  struct Layer {
    std::vector<LinearReport> linears;
    std::vector<std::string> tensors;
    int64_t num_bytes = 0;
  };
  std::filesystem::path report_path() const { return folder_ / "quantization_report.json"; }
  void read();
  void write() const;

  std::filesystem::path folder_;
  std::string fingerprint_;
  int64_t num_layers_ = 0;
  std::map<int64_t, Layer> layers_;
};

}  // namespace tessera::quant
