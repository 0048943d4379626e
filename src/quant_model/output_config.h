// What describes a quantised checkpoint: config.json, the index of its tensors, and the report.
// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "quant_model/stored_weight.h"
#include "tessera/quant/quantize_model.h"

namespace tessera::quant {

// config.json of the original with a quantization_config. `ignored` are modules that stay as they
// were.
std::string quantized_config(const std::string& original, const ModelQuantOptions& options,
                             const StoredForm& form, const std::vector<std::string>& ignored);

// How a folder that quantize_model wrote stores its weights, read from its config.json.
struct FolderForm {
  bool is_quantized = false;
  StoredForm form;
  bool quantizes_inputs = false;
};
FolderForm read_form(const std::filesystem::path& folder, DType dtype);

}  // namespace tessera::quant
