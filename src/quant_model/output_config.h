// What describes a quantised checkpoint: its config.json.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "quant_model/stored_weight.h"
#include "tessera/quant/quantize_model.h"

namespace tessera::quant {

// config.json of the original with a quantization_config. `ignored` are modules that stay as they
// were.
std::string quantized_config(const std::string& original, const ModelQuantOptions& options,
                             const StoredForm& form, const std::vector<std::string>& ignored);

}  // namespace tessera::quant
