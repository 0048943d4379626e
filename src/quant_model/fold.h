// Scales of a linear layer's inputs that are taken over by what comes before it: AWQ and
// SmoothQuant.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"
#include "quant_model/layer.h"

namespace tessera::quant {

// Where the inputs of a linear layer come from, so that they can be divided by a scale: a norm's
// weight, or rows of a linear layer (values in front of the output projection, up in front of
// down).
struct Fold {
  std::string linear;                // "self_attn.qkv"
  std::string norm = {};             // "input_layernorm.weight"; empty: rows of a tensor
  float norm_offset = 0.0f;          // what the model adds to the stored weight
  std::string tensor = {};           // "self_attn.v_proj.weight"
  int64_t first_row = 0;             // of the tensor
  std::vector<int32_t> owners = {};  // by input: its row, counted from first_row; empty: a norm
};

// In the order of the computation. Refuses a family whose norms do not precede its linear layers.
std::vector<Fold> find_folds(const model::ModelConfig& config);

// Multiplies the columns of the linear's tensors by `scales` and divides what precedes them. A
// norm's weight is rounded to `norm_dtype`, in which it is stored, and the scales are set to what
// the rounded weight stands for, so that the function of the layer does not change.
void fold_scales(const Fold& fold, const Linear& linear, DType norm_dtype,
                 std::vector<float>& scales, LayerTensors& tensors);

}  // namespace tessera::quant
