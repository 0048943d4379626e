// The forward pass. Every activation lives in memory taken once; a step slices it to its size.
// SPDX-License-Identifier: MIT
#include "model/llama.h"

#include <utility>

#include "core/text.h"
#include "model/chunk_plan.h"
#include "tessera/core/error.h"
#include "tessera/ops/activation.h"
#include "tessera/ops/embedding.h"
#include "tessera/ops/gemm.h"
#include "tessera/ops/norm.h"

namespace tessera::model {
namespace {

TensorView first_rows(const Tensor& tensor, int64_t count) {
  return tensor.view().slice(0, 0, count);
}

void apply(const Linear& linear, const TensorView& x, const TensorView& out, const Context& ctx) {
  GemmArgs args{.a = x, .b = Weight{.values = linear.weight, .is_static = true}, .out = out};
  if (linear.scale.size_bytes() > 0) args.b.scale = linear.scale.view();
  if (linear.bias.size_bytes() > 0) args.bias = linear.bias.view();
  gemm(args, ctx);
}

void expect_weight(std::string_view what, const TensorView& weight, int64_t rows, int64_t cols) {
  if (weight.rank == 2 && weight.size(0) == rows && weight.size(1) == cols) return;
  fail(concat("Llama: ", what, " is ", to_string(weight), "; this rank needs [", rows, ", ", cols,
              "]: make the weights with the communicator's rank and size"));
}

}  // namespace

Llama::Llama(ModelConfig config, LlamaWeights weights, DType dtype, Device device,
             const BatchLimits& limits, dist::Communicator& communicator)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      dtype_(dtype),
      device_(device),
      limits_(limits),
      communicator_(communicator) {
  const int64_t ranks = communicator.size();
  const int64_t q_width = config_.num_heads / ranks * config_.head_dim;
  const int64_t kv_width = num_kv_heads() * config_.head_dim;
  const int64_t inter = config_.inter / ranks;
  expects_equal(static_cast<int64_t>(weights_.layers.size()), config_.num_layers,
                "Llama: layers of the weights");
  expect_weight("embedding", weights_.embedding, config_.vocab, config_.hidden);
  for (const LayerWeights& layer : weights_.layers) {
    expect_weight("qkv", layer.qkv.weight, q_width + 2 * kv_width, config_.hidden);
    expect_weight("output", layer.output.weight, config_.hidden, q_width);
    expect_weight("gate_up", layer.gate_up.weight, 2 * inter, config_.hidden);
    expect_weight("down", layer.down.weight, config_.hidden, inter);
  }
  if (!config_.has_tied_embeddings) {
    expect_weight("head", weights_.head.weight, config_.vocab / ranks, config_.hidden);
  }
  const int64_t num_positions =
      limits.max_positions > 0 ? limits.max_positions : config_.max_positions;
  rope_table_ =
      RopeTable(num_positions, config_.head_dim, config_.rope_theta, config_.rope_scaling, device);
  const auto make = [&](DType type, int64_t rows, int64_t cols) {
    return Tensor(type, {rows, cols}, device);
  };
  hidden_ = make(dtype, limits.tokens, config_.hidden);
  normed_ = make(dtype, limits.tokens, config_.hidden);
  qkv_ = make(dtype, limits.tokens, q_width + 2 * kv_width);
  attended_ = make(dtype, limits.tokens, q_width);
  const ScratchSizes scratch = scratch_sizes(limits);
  for (Tensor* tensor : {&scratch_k_, &scratch_v_}) {
    if (scratch.num_pages() == 0) break;
    // Rows beyond a sequence may be read, as long as they get no weight: they must be numbers.
    *tensor = Tensor::zeros(
        dtype, {scratch.num_pages(), scratch.page_size, num_kv_heads(), config_.head_dim}, device);
  }
  gate_up_ = make(dtype, limits.tokens, 2 * inter);
  last_ = make(dtype, limits.logits, config_.hidden);
  last_normed_ = make(dtype, limits.logits, config_.hidden);
  logits_part_ = make(DType::f32, limits.logits, config_.vocab / ranks);
  if (ranks > 1) logits_ = make(DType::f32, limits.logits, config_.vocab);
}

int64_t Llama::activation_bytes() const {
  int64_t total = rope_table_.size_bytes();
  for (const Tensor* tensor : {&hidden_, &normed_, &qkv_, &attended_, &scratch_k_, &scratch_v_,
                               &gate_up_, &last_, &last_normed_, &logits_part_, &logits_}) {
    total += tensor->size_bytes();
  }
  return total;
}

void Llama::check(const Batch& batch, const KvMemory& kv) const {
  if (batch.num_tokens() > limits_.tokens || batch.logit_rows.size(0) > limits_.logits) {
    fail(concat("Llama: a step of ", batch.num_tokens(), " tokens and ", batch.logit_rows.size(0),
                " logits; this model was made for ", limits_.tokens, " and ", limits_.logits));
  }
  if (batch.num_decodes > batch.batch() || batch.num_decodes > batch.num_tokens()) {
    fail(concat("Llama: num_decodes is ", batch.num_decodes, " in a batch of ", batch.batch()));
  }
  if (kv.num_kv_heads() != num_kv_heads() || kv.dtype() != dtype_ || kv.type() != limits_.kv_type) {
    fail(concat("Llama: the KV cache has ", kv.num_kv_heads(), " heads, ", name(kv.type()), " of ",
                name(kv.dtype()), "; this rank was made for ", num_kv_heads(), ", ",
                name(limits_.kv_type), " of ", name(dtype_)));
  }
}

// On entry normed_ holds what the layer before adds to hidden_ (for the first layer, nothing is
// pending: its input is hidden_ itself); on exit, what this one adds. The sum is taken by the norm
// that reads it.
void Llama::run_layer(const Batch& batch, int64_t layer, KvMemory& kv, const Context& ctx) {
  const LayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
  const int64_t num_tokens = batch.num_tokens();
  const TensorView hidden = first_rows(hidden_, num_tokens);
  const TensorView normed = first_rows(normed_, num_tokens);
  const TensorView qkv = first_rows(qkv_, num_tokens);
  const TensorView gate_up = first_rows(gate_up_, num_tokens);
  const int64_t inter = gate_up.size(1) / 2;

  RmsNormArgs attention_norm{
      .x = normed, .weight = weights.attention_norm, .out = normed, .residual = hidden};
  if (layer == 0) {
    attention_norm.x = hidden;
    attention_norm.residual.reset();
  }
  attention_norm.eps = config_.norm_eps;
  rms_norm(attention_norm, ctx);
  apply(weights.qkv, normed, qkv, ctx);
  attend(batch, layer, qkv, kv, ctx);
  apply(weights.output, first_rows(attended_, num_tokens), normed, ctx);
  communicator_.all_reduce_sum(normed, ctx);

  rms_norm({.x = normed,
            .weight = weights.mlp_norm,
            .out = normed,
            .residual = hidden,
            .eps = config_.norm_eps},
           ctx);
  apply(weights.gate_up, normed, gate_up, ctx);
  const TensorView gate = gate_up.slice(1, 0, inter);
  activation({.x = gate,
              .up = gate_up.slice(1, inter, 2 * inter),
              .out = gate,
              .kind = config_.activation},
             ctx);
  apply(weights.down, gate, normed, ctx);
  communicator_.all_reduce_sum(normed, ctx);
}

// Only the rows that are asked for go through the last norm and the head.
TensorView Llama::compute_logits(const Batch& batch, const Context& ctx) {
  const int64_t num_logits = batch.logit_rows.size(0);
  const bool is_whole = communicator_.size() == 1;
  const TensorView all = first_rows(is_whole ? logits_part_ : logits_, num_logits);
  if (num_logits == 0) return all;
  const TensorView last = first_rows(last_, num_logits);
  const TensorView normed = first_rows(last_normed_, num_logits);
  embedding(
      {.table = first_rows(hidden_, batch.num_tokens()), .ids = batch.logit_rows, .out = last},
      ctx);
  embedding(
      {.table = first_rows(normed_, batch.num_tokens()), .ids = batch.logit_rows, .out = normed},
      ctx);
  rms_norm({.x = normed,
            .weight = weights_.final_norm,
            .out = normed,
            .residual = last,
            .eps = config_.norm_eps},
           ctx);
  const TensorView part = first_rows(logits_part_, num_logits);
  if (weights_.head.weight.size_bytes() > 0) {
    apply(weights_.head, normed, part, ctx);
  } else {  // tied: this rank's rows of the embedding
    const int64_t rows = config_.vocab / communicator_.size();
    const int64_t begin = rows * communicator_.rank();
    gemm({.a = normed,
          .b = Weight{.values = weights_.embedding.view().slice(0, begin, begin + rows),
                      .is_static = true},
          .out = part},
         ctx);
  }
  communicator_.all_gather_columns(part, all, ctx);
  return all;
}

TensorView Llama::forward(const Batch& batch, KvMemory& kv, const Context& ctx) {
  check(batch, kv);
  if (batch.num_tokens() == 0) return compute_logits(batch, ctx);
  make_angles(batch.num_positions, ctx);
  embedding({.table = weights_.embedding,
             .ids = batch.tokens,
             .out = first_rows(hidden_, batch.num_tokens())},
            ctx);
  for (int64_t layer = 0; layer < config_.num_layers; ++layer) run_layer(batch, layer, kv, ctx);
  return compute_logits(batch, ctx);
}

}  // namespace tessera::model
