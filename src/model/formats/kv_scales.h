// Scales of keys and values that quantised checkpoints hold.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/kv_memory.h"
#include "model/safetensors.h"

namespace tessera::model {

// One number that a checkpoint holds; none if the tensor is not there. Refuses, by name, a tensor
// that is not one F32, F16 or BF16 number.
std::optional<float> read_number(const Checkpoint& checkpoint, const std::string& name);

// Of every layer, from self_attn.k_scale, self_attn.k_proj.k_scale or self_attn.k_proj.output_scale
// and the same with v; 1 where a layer has none. Empty if no layer has one. Refuses one that is not
// finite and above 0.
std::vector<KvScale> read_kv_scales(const Checkpoint& checkpoint, int64_t num_layers);

}  // namespace tessera::model
