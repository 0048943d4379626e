// A model: its layers, their weights, and the memory of a step. Families (families/) put layers
// together; everything else, from loading to "does it run here", is the same for all of them.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "model/batch.h"
#include "model/config.h"
#include "model/kv_memory.h"
#include "model/layers.h"
#include "model/memory.h"
#include "model/weights.h"
#include "tessera/core/context.h"
#include "tessera/ops/rope.h"

namespace tessera::model {

class Model {
 public:
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Takes all memory that a step within the limits needs, so that forward allocates nothing. Keeps
  // `communicator` by reference; it must be of the rank whose weights these are.
  void prepare(const BatchLimits& limits, dist::Communicator& communicator);
  // Appends the batch's keys and values to `kv` and returns f32 [num_logits, vocab], a view of the
  // model's own memory that the next call overwrites. Its activations lie at addresses that depend
  // on the batch's shape alone.
  TensorView forward(const Batch& batch, KvMemory& kv, const Context& ctx);
  // [tokens, hidden]: the states behind the last norm, of the last forward whose batch wanted them;
  // the next call overwrites them.
  const TensorView& states() const { return states_; }
  // Runs one block alone: `hidden` [tokens, hidden], the residual stream in front of it, becomes
  // the stream behind it. For quantisers, which go through a model block by block.
  void forward_block(int64_t layer, const TensorView& hidden, const Batch& batch, KvMemory& kv,
                     const Context& ctx);
  // Makes the angles of the first num_positions positions that are still missing. forward does this
  // by itself; call it first when forward is captured, so that the copy of new rows is not part of
  // the graph. The table's address never changes. Allocates nothing.
  void make_angles(int64_t num_positions, const Context& ctx) {
    angles_.make_rows(num_positions, ctx);
  }

  const ModelConfig& config() const { return config_; }
  const BatchLimits& limits() const { return limits_; }
  const Weights& weights() const { return weights_; }
  DType dtype() const { return weights_.options().dtype; }
  Device device() const { return weights_.options().device; }
  int64_t num_kv_heads() const;  // this rank's share
  // Scales of keys and values that the checkpoint holds, by layer; empty: it has none.
  const std::vector<KvScale>& kv_scales() const { return kv_scales_; }
  int64_t weight_bytes() const { return weights_.size_bytes(); }
  int64_t activation_bytes() const { return memory_.size_bytes() + angles_.size_bytes(); }
  // Runs the forward pass dry, for generated tokens and for prompts of the sizes the model was
  // prepared for, and returns why the first call that cannot run was refused; empty: all can.
  std::string find_refusal(int64_t page_size) const;

 protected:
  explicit Model(const ModelConfig& config) : config_(config), weights_(LoadOptions{}) {}
  virtual TensorView run(Step& step) const = 0;
  virtual void run_block(int64_t layer, Stream& stream, Step& step) const = 0;

 private:
  friend std::unique_ptr<Model> make_model(const ModelConfig& config, Weights weights);
  friend std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, const ModelConfig& config,
                                           const LoadOptions& options);
  void check(const Batch& batch, const KvMemory& kv) const;
  TensorView angles() const { return memory_.is_dry() ? dry_angles_ : angles_.view(); }
  // The most bytes of activations that a step takes.
  int64_t rehearse(int64_t page_size, DryRun& dry_run) const;

  ModelConfig config_;
  Weights weights_;
  std::vector<KvScale> kv_scales_;
  BatchLimits limits_;
  dist::Communicator* communicator_ = nullptr;
  TensorPool memory_;
  RopeTable angles_;
  TensorView dry_angles_;  // stands for the table in a dry model
  TensorView chunk_k_;     // [pages, page_size, num_kv_heads, head_dim], as chunk_plan.h says;
  TensorView chunk_v_;     // rank 0 where the cache is plain
  TensorView activations_;
  TensorView states_;
};

// The shape nearly all families have: embeddings, blocks one after the other, a norm and a head. A
// block is constructed from (WeightScope, ModelConfig, layer) and has forward(Stream&, Step&).
template <class Block>
class Decoder final : public Model {
 public:
  Decoder(const ModelConfig& config, Weights& weights, const Norm::Options& norm)
      : Model(config), embedding_(WeightScope(weights).at("model"), config) {
    const WeightScope model = WeightScope(weights).at("model");
    for (int64_t layer = 0; layer < config.num_layers; ++layer) {
      blocks_.emplace_back(model.at("layers." + std::to_string(layer)), config, layer);
    }
    head_.emplace_back(WeightScope(weights), config, embedding_,
                       Norm(model, "norm", config.hidden, norm));
  }

 protected:
  TensorView run(Step& step) const override {
    Stream stream = embedding_.forward(step);
    for (const Block& block : blocks_) block.forward(stream, step);
    return head_.front().forward(stream, step);
  }
  void run_block(int64_t layer, Stream& stream, Step& step) const override {
    blocks_.at(static_cast<size_t>(layer)).forward(stream, step);
  }

 private:
  Embedding embedding_;
  std::vector<Block> blocks_;
  std::vector<Head> head_;
};

// The layers of config.architecture's family, over these weights.
std::unique_ptr<Model> make_model(const ModelConfig& config, Weights weights);

// Refuses, before any weight is allocated and by name, a tensor that is missing, has another shape
// than the config asks for, or has no place in the model.
std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, const ModelConfig& config,
                                  const LoadOptions& options);
// Normal random weights, small enough that activations stay finite: for benches and tests.
std::unique_ptr<Model> make_random_model(const ModelConfig& config, const LoadOptions& options,
                                         uint64_t seed);
// A model without memory: for its sizes, and for find_refusal.
std::unique_ptr<Model> make_dry_model(const ModelConfig& config, const LoadOptions& options);

// What a model takes, known before it is loaded; one rank.
struct ModelNeeds {
  int64_t weights = 0;
  int64_t host = 0;         // what loading to a GPU holds on the host for a while
  int64_t activations = 0;  // and tables
};
ModelNeeds measure_model(const ModelConfig& config, const LoadOptions& options,
                         const BatchLimits& limits);
int64_t weight_bytes(const ModelConfig& config, DType dtype, WeightFormat format,
                     Device device = {});

// The refusal of the first operation the model needs that options.device has no batch-invariant
// kernel for; empty where it has all, as the CPU does.
std::string find_missing_operation(const ModelConfig& config, const LoadOptions& options,
                                   KvFormat kv_type, int64_t page_size);

}  // namespace tessera::model
