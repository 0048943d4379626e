// The Llama forward pass, written once for every device: a Batch in, logits out.
// SPDX-License-Identifier: MIT
#pragma once

#include "dist/communicator.h"
#include "model/batch.h"
#include "model/config.h"
#include "model/kv_memory.h"
#include "model/weights.h"
#include "tessera/core/context.h"
#include "tessera/ops/rope.h"

namespace tessera::model {

class Llama {
 public:
  // Takes the weights; keeps `communicator` by reference. All memory a step needs is taken here.
  // The weights are this rank's share, made with the communicator's rank and size.
  Llama(ModelConfig config, LlamaWeights weights, DType dtype, Device device,
        const BatchLimits& limits, dist::Communicator& communicator);

  // Appends the batch's keys and values to `kv` and returns f32 [num_logits, vocab], a view of the
  // model's own memory that the next call overwrites. Allocates nothing.
  TensorView forward(const Batch& batch, KvMemory& kv, const Context& ctx);
  // Makes the angles of the first num_positions positions that are still missing. forward does it
  // by itself; whoever captures a forward pass calls this before, so that the copy of new rows is
  // not part of what is captured. The table's address never changes. Allocates nothing.
  void make_angles(int64_t num_positions, const Context& ctx) {
    rope_table_.make_rows(num_positions, ctx);
  }

  const ModelConfig& config() const { return config_; }
  const BatchLimits& limits() const { return limits_; }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  int64_t num_kv_heads() const { return config_.num_kv_heads / communicator_.size(); }  // its share
  int64_t weight_bytes() const { return weights_.size_bytes(); }
  int64_t activation_bytes() const;

 private:
  // The parts of a step's queries, keys and values, with heads; `out` is where attention writes.
  struct Heads {
    TensorView q, k, v, out;
  };
  void attend(const Batch& batch, int64_t layer, const TensorView& qkv, KvMemory& kv,
              const Context& ctx);
  void keep_tails(const Batch& batch, const PagedKv& kv, const Context& ctx);
  void append(const Batch& batch, const Heads& heads, const PagedKv& kv, const Context& ctx);
  void attend_chunks(const Batch& batch, int64_t window, const Heads& heads, const PagedKv& kv,
                     const Context& ctx);
  void attend_gathered(const Batch& batch, const ChunkPass& pass, int64_t window,
                       const Heads& heads, const PagedKv& kv, const Context& ctx);
  void run_layer(const Batch& batch, int64_t layer, KvMemory& kv, const Context& ctx);
  TensorView compute_logits(const Batch& batch, const Context& ctx);
  void check(const Batch& batch, const KvMemory& kv) const;

  ModelConfig config_;
  LlamaWeights weights_;
  DType dtype_;
  Device device_;
  BatchLimits limits_;
  dist::Communicator& communicator_;
  RopeTable rope_table_;
  // Activations of one step, limits_.tokens rows each, then those of the logits' rows.
  Tensor hidden_;       // [tokens, hidden]: the residual stream
  Tensor normed_;       // [tokens, hidden]: what a block reads, then what it adds to the stream
  Tensor qkv_;          // [tokens, (num_heads + 2 num_kv_heads) * head_dim]
  Tensor attended_;     // [tokens, num_heads * head_dim]
  Tensor scratch_k_;    // [pages, page_size, num_kv_heads, head_dim]: the cache read back for
  Tensor scratch_v_;    // chunks, as chunk_plan.h says; empty where the cache is plain
  Tensor gate_up_;      // [tokens, 2 inter]
  Tensor last_;         // [logits, hidden]: hidden_ of the rows whose logits are wanted
  Tensor last_normed_;  // [logits, hidden]: likewise normed_
  Tensor logits_part_;  // f32 [logits, vocab / ranks]
  Tensor logits_;       // f32 [logits, vocab]; empty in a world of one, whose part is the whole
};

}  // namespace tessera::model
