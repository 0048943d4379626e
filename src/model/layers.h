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
#include "tessera/ops/attention.h"
#include "tessera/ops/gemm.h"
#include "tessera/ops/norm.h"

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
  bool is_fused =
      false;  // norms inside products, appends inside attention, where there are kernels
  TensorView states = {};  // [tokens, hidden]: what the head read, if the batch wants it

  // Activations [num_tokens, cols], until the caller's Arena::Scope ends.
  TensorView take(int64_t cols) { return arena.take(dtype, batch.num_tokens(), cols); }
};

// What a linear layer reads: values, or codes with their scales.
struct LinearInput {
  LinearInput(const TensorView& values) : x(values) {}
  LinearInput(const TensorView& codes, const TensorView& of_codes) : x(codes), scale(of_codes) {}

  TensorView x;           // [tokens, inputs]
  TensorView scale = {};  // f32 [1], [tokens] or [tokens, groups]; rank 0: x holds values
  std::optional<RmsNormArgs> norm = {};  // makes x, which is not written yet
};

// The residual stream.
struct Stream {
  TensorView hidden;        // [tokens, hidden]: the sum so far
  TensorView block;         // [tokens, hidden]: values a block reads, then what it adds to the sum
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
    std::optional<Activation> gate = {};       // halves the outputs: activation(gate) * up
    std::optional<TensorView> residual = {};   // added
    std::optional<TensorView> out_scale = {};  // out holds codes with this static scale
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
  // In which form the layer reads. Values given to a layer that reads codes are quantised first; an
  // input with a norm is normalised.
  const InputForm& inputs() const { return weight_.inputs; }
  void forward(const LinearInput& x, const TensorView& out, const Epilogue& epilogue,
               Step& step) const;
  // For by_inputs: out = the sum over all ranks.
  void forward_sum(const LinearInput& x, const TensorView& out, Step& step) const;
  // For by_inputs: the same, added to the stream.
  void add_to(Stream& stream, const LinearInput& x, Step& step) const;
  // Whether a scale serves a block of several outputs.
  bool has_blocks() const { return weight_.rows_per_scale > 1; }
  // Whether the device has a batch-invariant kernel that applies a gate, perhaps writing codes of
  // a type, or adds a residual.
  bool can_gate(Activation activation, std::optional<DType> codes = {}) const;
  bool can_add() const;

 private:
  Linear(const LinearWeight& weight, DType dtype) : weight_(weight), dtype_(dtype) {}
  GemmArgs args(const LinearInput& x, const TensorView& out, const Epilogue& epilogue) const;
  LinearInput dry_input(TensorPool& dry) const;

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

  // norm(stream.hidden), after what is pending was added to hidden, for layers that read `form`:
  // values in stream.block, or codes in memory of the caller's scope.
  LinearInput read(Stream& stream, const InputForm& form, Step& step) const;
  // The same for one layer, which may do it as part of its product.
  LinearInput defer(Stream& stream, const InputForm& form, Step& step) const;
  void forward(const TensorView& x, const TensorView& out, const Context& ctx) const;

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

// Whether queries and keys are normalised before RoPE, and over what.
enum class QkNorm : uint8_t { none, heads, whole };

// Attention over the paged cache: projections, norms of queries and keys, RoPE, the append, and
// what prompts and generated tokens each read. (attention.cpp)
class Attention {
 public:
  struct Options {
    int64_t layer = 0;
    std::vector<Linear::Output> qkv;  // q, k and v
    QkNorm norm = QkNorm::none;       // weights q_norm and k_norm
  };
  // Queries, keys and values from tensors of their own: q_proj, k_proj and v_proj.
  static std::vector<Linear::Output> separate_qkv(const ModelConfig& config);
  // All from one tensor, one below the other.
  static std::vector<Linear::Output> fused_qkv(const ModelConfig& config, std::string_view name);

  Attention(const WeightScope& scope, const ModelConfig& config, const Options& options);

  const InputForm& inputs() const { return qkv_.inputs(); }
  void forward(const LinearInput& x, const TensorView& out, Step& step) const;
  // Adds attention(norm(hidden)) to the stream.
  void add_to(Stream& stream, const Norm& norm, Step& step) const;

 private:
  // A step's queries, keys and values by head [tokens, heads, head_dim]; attention writes `out`.
  struct Heads {
    TensorView q, k, v, out;
  };
  // The attended values [tokens, num_heads * head_dim], in memory of the caller's scope.
  TensorView attend(const LinearInput& x, Step& step) const;
  Heads project(const LinearInput& x, Step& step) const;
  void normalise_heads(const TensorView& qkv, Heads& heads, Step& step) const;
  TensorView normalise_whole(const TensorView& part, const Norm& norm, Step& step) const;
  void append(const Heads& heads, const PagedKv& kv, Step& step) const;
  void keep_tails(const PagedKv& kv, Step& step) const;
  static KvAppendArgs tokens_of(const Heads& heads, const PagedKv& kv, const Step& step);
  DecodeAttentionArgs decodes_of(const Heads& heads, const PagedKv& kv, const Step& step) const;
  void append_and_attend(const Heads& heads, const PagedKv& kv, Step& step) const;
  void attend_chunks(const Heads& heads, const PagedKv& kv, Step& step) const;
  void attend_gathered(const ChunkPass& pass, const Heads& heads, const PagedKv& kv,
                       Step& step) const;
  AttentionMask mask() const {
    return {.left = window_ > 0 ? window_ - 1 : -1, .right = 0, .intervals = {}};
  }

  int64_t layer_;
  int64_t num_heads_;     // this rank's share
  int64_t num_kv_heads_;  // likewise
  int64_t head_dim_;
  int64_t window_;  // keys a token sees, itself among them; 0: all
  float scale_;     // of scores; 0: 1 / sqrt(head_dim)
  float softcap_;   // of scores; 0: none
  QkNorm norm_;
  Linear qkv_;
  Norm q_norm_;
  Norm k_norm_;
  Linear output_;
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

  const InputForm& inputs() const { return gate_up_.inputs(); }
  void forward(const LinearInput& x, const TensorView& out, Step& step) const;
  // Adds mlp(norm(hidden)) to the stream.
  void add_to(Stream& stream, const Norm& norm, Step& step) const;

 private:
  // activation(gate(x)) * up(x): [tokens, inter], in memory of the caller's scope.
  LinearInput gated(const LinearInput& x, Step& step) const;

  Activation activation_;
  bool is_fused_ = false;      // gate and up are interleaved, and the product applies the gate
  bool writes_codes_ = false;  // and it writes codes with the static scale of down's inputs
  Linear gate_up_;
  Linear down_;
};

// The last norm and the logits of the rows that are wanted.
class Head {
 public:
  Head(const WeightScope& scope, const ModelConfig& config, const Embedding& embedding,
       const Norm& norm);
  // f32 [num_logits, vocab], in memory of the step's arena. Sets step.states if the batch wants it.
  TensorView forward(Stream& stream, Step& step) const;

 private:
  Norm norm_;
  Linear linear_;
  float scale_ = 1.0f;
  float softcap_ = 0.0f;
};

}  // namespace tessera::model
