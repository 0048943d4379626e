// What a run of quantize_model refuses before it begins.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/quant/quantize_model.h"

namespace tessera::quant {

// Whether calibration samples are run through the layers.
bool needs_samples(const ModelQuantOptions& options);
// Refuses, by name, options that do not go together.
void check_options(const ModelQuantOptions& options);

}  // namespace tessera::quant
