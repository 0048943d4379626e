// The parts models are made of. A layer knows the names and shapes of its tensors, how they are
// shared among ranks, and its forward pass. Constructing it loads it; constructing it from dry
// weights only counts what it needs.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dist/communicator.h"
#include "model/batch.h"
#include "model/kv_memory.h"
#include "model/memory.h"
#include "model/weights.h"
#include "tessera/core/context.h"
#include "tessera/ops/activation.h"
#include "tessera/ops/gemm.h"

namespace tessera::model {

// What all layers of one forward pass use.
struct Step {
  const Batch& batch;
  KvMemory& kv;
  Arena& arena;  // for activations
  dist::Communicator& communicator;
  const Context& ctx;
  DType dtype;         // of activations
  TensorView angles;   // f32 [num_positions, rotary_dim]: RoPE's table
  TensorView chunk_k;  // pages that a quantised cache is read back into for prompts (chunk_plan.h);
  TensorView chunk_v;  // rank 0 where the cache is plain

  // Activations [num_tokens, cols], until the caller's Arena::Scope ends.
  TensorView take(int64_t cols) { return arena.take(dtype, batch.num_tokens(), cols); }
};

// The residual stream.
struct Stream {
  TensorView hidden;        // [tokens, hidden]: the sum so far
  TensorView block;         // [tokens, hidden]: what a block reads, then what it adds to the sum
  bool is_pending = false;  // `block` is not yet in the sum; the next norm adds it as it reads

  // hidden += scale * block.
  void add(float scale, const Step& step);
};

// out = x . weight^T + bias
class Linear {
 public:
  // Rows of a tensor in the checkpoint that become outputs of this layer.
  struct Output {
    std::string_view name;  // "q_proj"
    int64_t size = 0;
    int64_t begin = 0;  // first row, where the tensor holds several outputs
    int64_t of = 0;     // rows of the whole tensor; 0: `size`
  };
  // What the product does beyond the bias.
  struct Epilogue {
    std::optional<Activation> gate = {};      // halves the outputs: activation(gate) * up
    std::optional<TensorView> residual = {};  // added
  };

  Linear() = default;
  // Each rank computes its share of every output. `interleave` as in Weights::dense.
  static Linear by_outputs(const WeightScope& scope, std::string_view name,
                           const std::vector<Output>& outputs, int64_t in, bool has_bias,
                           int64_t interleave = 0);
  // Each rank holds the weights of its share of the inputs; the results of all ranks are added.
  static Linear by_inputs(const WeightScope& scope, std::string_view name, int64_t out, int64_t in,
                          bool has_bias);
  // Over rows [begin, end) of a dense weight that another layer owns.
  static Linear over(const TensorView& weight, int64_t begin, int64_t end);

  int64_t num_outputs() const { return weight_.values.size(0); }
  void forward(const TensorView& x, const TensorView& out, const Epilogue& epilogue,
               const Context& ctx) const;
  // For by_inputs: out = the sum over all ranks.
  void forward_sum(const TensorView& x, const TensorView& out, Step& step) const;
  // For by_inputs: the same, added to the stream.
  void add_to(Stream& stream, const TensorView& x, Step& step) const;
  // Whether the device has a batch-invariant kernel that applies a gate, or adds a residual.
  bool can_gate(Activation activation) const;
  bool can_add() const;

 private:
  Linear(const LinearWeight& weight, DType dtype) : weight_(weight), dtype_(dtype) {}
  GemmArgs args(const TensorView& x, const TensorView& out, const Epilogue& epilogue) const;

  LinearWeight weight_;
  DType dtype_ = DType::bf16;   // of activations
  TensorView bias_;             // [out]; rank 0: none
  bool adds_in_place_ = false;  // add_to: the product adds the residual itself
};

// RMSNorm
class Norm {
 public:
  struct Options {
    float eps = 1e-6f;
    float offset = 0.0f;  // added to the stored weight: Gemma stores weight - 1
  };
  Norm() = default;
  Norm(const WeightScope& scope, std::string_view name, int64_t size, const Options& options);

  // stream.block = norm(stream.hidden), after what is pending was added to hidden.
  void read(Stream& stream, const Step& step) const;
  void forward(const TensorView& x, const TensorView& out, const Context& ctx) const;
  // out = norm(residual += x)
  void forward_added(const TensorView& x, const TensorView& residual, const TensorView& out,
                     const Context& ctx) const;

 private:
  TensorView weight_;  // [size]
  float eps_ = 0.0f;
};

// Token embeddings, every rank holding all of them.
class Embedding {
 public:
  Embedding(const WeightScope& scope, const ModelConfig& config);
  // A stream with the embeddings of the step's tokens, times config.embedding_scale.
  Stream forward(Step& step) const;
  const TensorView& table() const { return table_; }  // [vocab, hidden]

 private:
  TensorView table_;
  float scale_ = 1.0f;
};

// down(activation(gate(x)) * up(x))
class Mlp {
 public:
  struct Options {
    Linear::Output gate;
    Linear::Output up;
    bool has_bias = false;
  };
  // Gate and up as tensors of their own: gate_proj and up_proj.
  static Options separate(const ModelConfig& config);

  Mlp(const WeightScope& scope, const ModelConfig& config, const Options& options);

  void forward(const TensorView& x, const TensorView& out, Step& step) const;
  void add_to(Stream& stream, Step& step) const;  // reads stream.block

 private:
  // activation(gate(x)) * up(x): [tokens, inter], in memory of the caller's scope.
  TensorView gated(const TensorView& x, Step& step) const;

  Activation activation_;
  bool is_fused_ = false;  // gate and up are interleaved, and the product applies the gate
  Linear gate_up_;
  Linear down_;
};

// The last norm and the logits of the rows that are wanted.
class Head {
 public:
  Head(const WeightScope& scope, const ModelConfig& config, const Embedding& embedding,
       const Norm& norm);
  // f32 [num_logits, vocab], in memory of the step's arena.
  TensorView forward(const Stream& stream, Step& step) const;

 private:
  Norm norm_;
  Linear linear_;
  float scale_ = 1.0f;
  float softcap_ = 0.0f;
};

}  // namespace tessera::model
