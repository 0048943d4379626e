// The residual streams in front of the first layer.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "quant_model/layer.h"

namespace tessera::quant {

// Sets the streams of all samples to their tokens' embeddings. Refuses tokens that the model does
// not have and samples that are longer than it takes.
void embed_samples(const model::ModelConfig& config, const model::WeightSource& source,
                   const std::vector<model::TensorSpec>& specs,
                   const std::vector<std::vector<int32_t>>& samples, const LayerRunner& runner);

}  // namespace tessera::quant
