// How much memory a model takes, known from its config alone. Tests hold each figure against what
// is then really taken.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "model/batch.h"
#include "model/config.h"
#include "model/weights.h"

namespace tessera::model {

// Of LlamaWeights on one rank: all in `dtype`, or linear layers as codes with a scale an output.
int64_t weight_bytes(const ModelConfig& config, DType dtype, WeightFormat format);
// Of the largest single tensor of them: what loading holds on the host on its way to a GPU.
int64_t largest_weight_bytes(const ModelConfig& config, DType dtype, WeightFormat format);

// What a Llama on one rank takes beside its weights: the table of angles, and the activations.
int64_t rope_table_bytes(const ModelConfig& config, const BatchLimits& limits);
int64_t activation_bytes(const ModelConfig& config, DType dtype, const BatchLimits& limits);

}  // namespace tessera::model
