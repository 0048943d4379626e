// A model's weights as the forward pass reads them: fused, in one type, on one device.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "model/config.h"
#include "model/safetensors.h"
#include "tessera/core/tensor.h"

namespace tessera::model {

// y = x . weight^T + bias, with an optional scale per output for int8 codes.
struct Linear {
  Tensor weight;  // [out, in]; the model's dtype, or i8
  Tensor scale;   // f32 [out] for i8; empty otherwise
  Tensor bias;    // [out]; empty: none
};

struct LayerWeights {
  Tensor attention_norm;  // [hidden]
  Linear qkv;             // [(num_heads + 2 num_kv_heads) * head_dim, hidden]: q, k, v
  Linear output;          // [hidden, num_heads * head_dim]
  Tensor mlp_norm;        // [hidden]
  Linear gate_up;         // [2 inter, hidden]: gate, then up
  Linear down;            // [hidden, inter]
};

// With several ranks each holds its heads and its part of inter; counts above are then per rank.
struct LlamaWeights {
  Tensor embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  Tensor final_norm;  // [hidden]
  Linear head;        // [vocab, hidden]; weight empty where tied and not quantised: the embedding
  int64_t size_bytes() const;
};

enum class WeightFormat : uint8_t {
  plain,  // in the model's dtype
  int8,   // linear layers as int8 codes, one scale an output, rounded to nearest
};

struct LoadOptions {
  DType dtype = DType::bf16;  // of activations, and of weights that are not quantised
  WeightFormat format = WeightFormat::plain;
  Device device = {};
  int rank = 0;  // this rank's share of the heads and of inter
  int num_ranks = 1;
  bool check_values = false;  // refuse NaN and infinity, naming the tensor; always with int8
  std::function<void(int64_t done_bytes, int64_t total_bytes)> on_progress = {};
};

// Refuses, naming the tensor, one that is missing, or has another shape than the config asks for,
// before any weight is allocated.
LlamaWeights load_weights(const Checkpoint& checkpoint, const ModelConfig& config,
                          const LoadOptions& options);
// Normal random weights, small enough that activations stay finite: for benches and tests.
LlamaWeights make_random_weights(const ModelConfig& config, const LoadOptions& options,
                                 uint64_t seed);

}  // namespace tessera::model
