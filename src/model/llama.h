// The Llama forward pass, written once for every device: a Batch in, logits out.
// SPDX-License-Identifier: MIT
#pragma once

#include "dist/communicator.h"
#include "model/batch.h"
#include "model/config.h"
#include "model/kv_memory.h"
#include "model/weights.h"
#include "tessera/core/context.h"

namespace tessera::model {

class Llama {
 public:
  // Takes the weights; keeps `communicator` by reference. All memory a step needs is taken here.
  Llama(ModelConfig config, LlamaWeights weights, DType dtype, Device device,
        const BatchLimits& limits, dist::Communicator& communicator);

  // Appends the batch's keys and values to `kv` and returns f32 [num_logits, vocab], a view of the
  // model's own memory that the next call overwrites. Allocates nothing.
  TensorView forward(const Batch& batch, KvMemory& kv, const Context& ctx);

  const ModelConfig& config() const { return config_; }
  const BatchLimits& limits() const { return limits_; }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  int64_t num_kv_heads() const;  // of this rank
  int64_t weight_bytes() const { return weights_.size_bytes(); }
  int64_t activation_bytes() const;

 private:
  ModelConfig config_;
  LlamaWeights weights_;
  DType dtype_;
  Device device_;
  BatchLimits limits_;
  dist::Communicator& communicator_;
  Tensor rope_table_;
  // Activations, each for limits_.tokens rows; see llama.cpp for who writes which.
  Tensor hidden_, normed_, qkv_, attended_, gate_up_, last_, logits_part_, logits_;
};

}  // namespace tessera::model
