// Linear layers, norms, embeddings, the MLP and the head.
// SPDX-License-Identifier: MIT
#include "model/layers.h"

#include "core/text.h"
#include "tessera/core/error.h"
#include "tessera/ops/embedding.h"
#include "tessera/ops/norm_gemm.h"
#include "tessera/ops/quantize.h"
#include "tessera/ops/scale.h"

namespace tessera::model {
namespace {

constexpr int64_t kProbeTokens = 16;

// Rows of a vector or a matrix of the checkpoint.
TensorSpec spec_of(std::string name, int64_t rows, int64_t cols) {
  return {.name = std::move(name), .num_rows = rows, .num_cols = cols, .is_vector = cols == 1};
}

Slice whole(TensorSpec spec) {
  const int64_t rows = spec.num_rows, cols = spec.num_cols;
  return {.spec = std::move(spec), .num_rows = rows, .num_cols = cols};
}

// Memory for codes of a form and their scales, and how much of a row a scale serves.
struct CodeBuffers {
  CodeBuffers(const InputForm& form, int64_t rows, int64_t cols, Arena& arena)
      : codes(arena.take(*form.codes, rows, cols)), scale(form.static_scale) {
    if (is_static()) return;
    scale = arena.take(DType::f32, rows, form.group > 0 ? cols / form.group : 1);
  }
  bool is_static() const { return scale.rank == 1; }
  // The scales as products and norms have them: [rows] where a row has one.
  LinearInput input() const {
    if (is_static() || scale.size(1) > 1) return {codes, scale};
    return {codes, TensorView::contiguous(scale.data, DType::f32, {scale.size(0)}, scale.device)};
  }

  TensorView codes;
  TensorView scale;  // [rows, groups]; static: [1]
};

LinearInput quantized(const TensorView& values, const InputForm& form, Step& step) {
  const CodeBuffers to(form, values.size(0), values.size(1), step.arena);
  quantize({.x = values,
            .out = to.codes,
            .scale = to.scale,
            .mode = to.is_static() ? ScaleMode::fixed : ScaleMode::dynamic},
           step.ctx);
  return to.input();
}

}  // namespace

void Stream::add(float scale, const Step& step) {
  tessera::scale({.x = block, .out = hidden, .scale = scale, .residual = hidden}, step.ctx);
}

Linear Linear::by_outputs(const WeightScope& scope, std::string_view name,
                          const std::vector<Output>& outputs, int64_t in, bool has_bias,
                          int64_t interleave) {
  const LoadOptions& options = scope.options();
  const auto slices_of = [&](std::string_view what, int64_t num_cols) {
    std::vector<Slice> slices;
    for (const Output& output : outputs) {
      const int64_t of = output.of > 0 ? output.of : output.size;
      const int64_t share = output.size / options.num_ranks;
      slices.push_back({.spec = spec_of(scope.name(concat(output.name, what)), of, num_cols),
                        .row = output.begin + share * options.rank,
                        .num_rows = share,
                        .num_cols = num_cols});
    }
    return slices;
  };
  Weights& weights = scope.weights();
  Linear linear(
      weights.linear(scope.name(concat(name, ".weight")), slices_of(".weight", in), interleave),
      options.dtype);
  if (has_bias) {
    linear.bias_ =
        weights.dense(scope.name(concat(name, ".bias")), slices_of(".bias", 1), interleave);
  }
  return linear;
}

Linear Linear::by_inputs(const WeightScope& scope, std::string_view name, int64_t out, int64_t in,
                         bool has_bias) {
  const LoadOptions& options = scope.options();
  Weights& weights = scope.weights();
  const std::string weight = scope.name(concat(name, ".weight"));
  Slice slice = whole(spec_of(weight, out, in));
  slice.num_cols /= options.num_ranks;
  slice.col = slice.num_cols * options.rank;
  Linear linear(weights.linear(weight, {slice}), options.dtype);
  if (has_bias) {
    const TensorSpec bias = spec_of(scope.name(concat(name, ".bias")), out, 1);
    // The sum over the ranks takes the bias once.
    if (options.rank == 0) {
      linear.bias_ = weights.dense(bias.name, {whole(bias)});
    } else {
      weights.mention(bias);
    }
  }
  linear.adds_in_place_ = linear.can_add();
  return linear;
}

Linear Linear::over(const TensorView& weight, int64_t begin, int64_t end) {
  return Linear({.values = weight.slice(0, begin, end)}, weight.dtype);
}

GemmArgs Linear::args(const LinearInput& x, const TensorView& out, const Epilogue& epilogue) const {
  GemmArgs args{.a = x.x, .b = weight_.as_weight(), .out = out};
  if (x.scale.rank > 0) args.a_scale = x.scale;
  if (bias_.rank > 0) args.bias = bias_;
  args.activation = epilogue.gate;
  args.is_gated = epilogue.gate.has_value();
  args.residual = epilogue.residual;
  args.out_scale = epilogue.out_scale;
  return args;
}

LinearInput Linear::dry_input(TensorPool& dry) const {
  const int64_t in = weight_.values.size(1);
  const TensorView x = dry.make(inputs().codes.value_or(dtype_), {kProbeTokens, in});
  if (!inputs().codes) return x;
  const int64_t group = inputs().group;
  if (group > 0) return {x, dry.make(DType::f32, {kProbeTokens, in / group})};
  return {x, dry.make(DType::f32, {kProbeTokens})};
}

bool Linear::can_gate(Activation activation, std::optional<DType> codes) const {
  TensorPool dry(weight_.values.device, DryRegion::probe);
  const LinearInput x = dry_input(dry);
  const TensorView out = dry.make(codes.value_or(dtype_), {kProbeTokens, num_outputs() / 2});
  Epilogue epilogue{.gate = activation};
  if (codes) epilogue.out_scale = dry.make(DType::f32, {1});
  return supports(args(x, out, epilogue), {.batch_invariant = true});
}

bool Linear::can_add() const {
  TensorPool dry(weight_.values.device, DryRegion::probe);
  const LinearInput x = dry_input(dry);
  const TensorView out = dry.make(dtype_, {kProbeTokens, num_outputs()});
  return supports(args(x, out, {.residual = out}), {.batch_invariant = true});
}

void Linear::forward(const LinearInput& x, const TensorView& out, const Epilogue& epilogue,
                     Step& step) const {
  const Arena::Scope scope(step.arena);
  const bool is_ready = x.scale.rank > 0 || !inputs().codes;
  if (x.norm && is_ready && step.is_fused) {
    const NormGemmArgs both{.norm = *x.norm, .gemm = args(x, out, epilogue)};
    if (supports(both, step.ctx)) return norm_gemm(both, step.ctx);
  }
  if (x.norm) rms_norm(*x.norm, step.ctx);
  gemm(args(is_ready ? x : quantized(x.x, inputs(), step), out, epilogue), step.ctx);
}

void Linear::forward_sum(const LinearInput& x, const TensorView& out, Step& step) const {
  forward(x, out, {}, step);
  step.communicator.all_reduce_sum(out, step.ctx);
}

void Linear::add_to(Stream& stream, const LinearInput& x, Step& step) const {
  if (!adds_in_place_) {
    forward_sum(x, stream.block, step);
    stream.is_pending = true;
    return;
  }
  // The first rank's product includes the stream, so the sum over the ranks is the new stream.
  Epilogue epilogue;
  if (step.communicator.rank() == 0) epilogue.residual = stream.hidden;
  forward(x, stream.hidden, epilogue, step);
  step.communicator.all_reduce_sum(stream.hidden, step.ctx);
}

Norm::Norm(const WeightScope& scope, std::string_view name, int64_t size, const Options& options)
    : eps_(options.eps) {
  TensorSpec spec = spec_of(scope.name(concat(name, ".weight")), size, 1);
  spec.random_value = 1.0f - options.offset;
  Slice slice = whole(std::move(spec));
  slice.offset = options.offset;
  weight_ = scope.weights().dense(slice.spec.name, {slice});
}

LinearInput Norm::read(Stream& stream, const InputForm& form, Step& step) const {
  LinearInput input = defer(stream, form, step);
  rms_norm(*input.norm, step.ctx);
  input.norm.reset();
  return form.codes && input.scale.rank == 0 ? quantized(input.x, form, step) : input;
}

LinearInput Norm::defer(Stream& stream, const InputForm& form, Step& step) const {
  const TensorView& hidden = stream.hidden;
  RmsNormArgs args{.x = hidden, .weight = weight_, .out = stream.block, .eps = eps_};
  if (stream.is_pending) {
    args.x = stream.block;
    args.residual = hidden;
  }
  stream.is_pending = false;
  LinearInput input = stream.block;
  if (form.codes && form.group == 0) {
    const CodeBuffers to(form, hidden.size(0), hidden.size(1), step.arena);
    input = to.input();
    args.out = input.x;
    (to.is_static() ? args.static_scale : args.token_scale) = input.scale;
  }
  input.norm = args;
  return input;
}

void Norm::forward(const TensorView& x, const TensorView& out, const Context& ctx) const {
  rms_norm({.x = x, .weight = weight_, .out = out, .eps = eps_}, ctx);
}

Embedding::Embedding(const WeightScope& scope, const ModelConfig& config)
    : scale_(config.embedding_scale) {
  const std::string name = scope.name("embed_tokens.weight");
  table_ = scope.weights().dense(name, {whole(spec_of(name, config.vocab, config.hidden))});
}

Stream Embedding::forward(Step& step) const {
  const int64_t hidden = table_.size(1);
  const Stream stream{.hidden = step.take(hidden), .block = step.take(hidden)};
  EmbeddingArgs args{.table = table_, .ids = step.batch.tokens, .out = stream.hidden};
  if (step.batch.drawn.rank == 1) args.computed = step.batch.drawn;
  embedding(args, step.ctx);
  if (scale_ != 1.0f) {
    scale({.x = stream.hidden, .out = stream.hidden, .scale = scale_}, step.ctx);
  }
  return stream;
}

Mlp::Options Mlp::separate(const ModelConfig& config) {
  return {.gate = {"gate_proj", config.inter},
          .up = {"up_proj", config.inter},
          .has_bias = config.has_mlp_bias};
}

Mlp::Mlp(const WeightScope& scope, const ModelConfig& config, const Options& options)
    : activation_(config.activation) {
  const int64_t inter = scope.weights().share("inter", config.inter);
  const auto make = [&](const WeightScope& from, int64_t interleave) {
    return Linear::by_outputs(from, "gate_up", {options.gate, options.up}, config.hidden,
                              options.has_bias, interleave);
  };
  if (inter % kGateUpRows == 0) {
    Weights dry(scope.options());
    // Interleaved rows have no blocks, and a scale for each of them costs more than a kernel for
    // the gate.
    is_fused_ = !make(WeightScope(dry), 0).has_blocks() &&
                make(WeightScope(dry), kGateUpRows).can_gate(activation_);
  }
  gate_up_ = make(scope, is_fused_ ? kGateUpRows : 0);
  down_ = Linear::by_inputs(scope, "down_proj", config.hidden, config.inter, options.has_bias);
  writes_codes_ = is_fused_ && down_.inputs().static_scale.rank > 0 &&
                  gate_up_.can_gate(activation_, down_.inputs().codes);
}

LinearInput Mlp::gated(const LinearInput& x, Step& step) const {
  const int64_t inter = gate_up_.num_outputs() / 2;
  if (writes_codes_) {
    const TensorView scale = down_.inputs().static_scale;
    const TensorView out = step.arena.take(*down_.inputs().codes, step.batch.num_tokens(), inter);
    gate_up_.forward(x, out, {.gate = activation_, .out_scale = scale}, step);
    return {out, scale};
  }
  if (is_fused_) {
    const TensorView out = step.take(inter);
    gate_up_.forward(x, out, {.gate = activation_}, step);
    return out;
  }
  const TensorView gate_up = step.take(2 * inter);
  gate_up_.forward(x, gate_up, {}, step);
  const TensorView gate = gate_up.slice(1, 0, inter);
  activation(
      {.x = gate, .up = gate_up.slice(1, inter, 2 * inter), .out = gate, .kind = activation_},
      step.ctx);
  return gate;
}

void Mlp::forward(const LinearInput& x, const TensorView& out, Step& step) const {
  const Arena::Scope scope(step.arena);
  down_.forward_sum(gated(x, step), out, step);
}

void Mlp::add_to(Stream& stream, const Norm& norm, Step& step) const {
  const Arena::Scope scope(step.arena);
  down_.add_to(stream, gated(norm.defer(stream, inputs(), step), step), step);
}

Head::Head(const WeightScope& scope, const ModelConfig& config, const Embedding& embedding,
           const Norm& norm)
    : norm_(norm), scale_(config.logit_scale), softcap_(config.logit_softcap) {
  const LoadOptions& options = scope.options();
  const int64_t vocab = scope.weights().share("vocab", config.vocab);
  if (config.has_tied_embeddings && !is_quantizing(options.format)) {
    linear_ = Linear::over(embedding.table(), vocab * options.rank, vocab * (options.rank + 1));
    return;
  }
  // A tied head that is quantised is made of the embeddings and kept beside them.
  const std::string_view name = config.has_tied_embeddings ? "model.embed_tokens" : "lm_head";
  linear_ = Linear::by_outputs(scope, "lm_head", {{name, config.vocab}}, config.hidden, false);
}

// Only the rows that are wanted go through the last norm and the product. The states of all tokens
// are made beside them, so that the logits are the same whether a batch wants states or not.
TensorView Head::forward(Stream& stream, Step& step) const {
  const int64_t num_logits = step.batch.logit_rows.size(0), hidden = stream.hidden.size(1);
  const int64_t part_size = linear_.num_outputs();
  const auto take = [&](DType dtype, int64_t cols) {
    return step.arena.take(dtype, num_logits, cols);
  };
  const TensorView part = take(DType::f32, part_size);
  const int64_t num_ranks = step.communicator.size();
  const TensorView all = num_ranks == 1 ? part : take(DType::f32, num_ranks * part_size);
  if (step.batch.wants_states) {
    norm_.read(stream, {}, step);
    step.states = stream.block;
  }
  if (num_logits == 0) return all;
  const auto pick_rows = [&](const TensorView& from) {
    const TensorView rows = take(step.dtype, hidden);
    tessera::embedding({.table = from, .ids = step.batch.logit_rows, .out = rows}, step.ctx);
    return rows;
  };
  Stream last{.hidden = pick_rows(stream.hidden),
              .block = stream.is_pending ? pick_rows(stream.block) : take(step.dtype, hidden),
              .is_pending = stream.is_pending};
  linear_.forward(norm_.defer(last, linear_.inputs(), step), part, {}, step);
  if (scale_ != 1.0f || softcap_ != 0.0f) {
    tessera::scale({.x = part, .out = part, .scale = scale_, .softcap = softcap_}, step.ctx);
  }
  step.communicator.all_gather_columns(part, all, step.ctx);
  return all;
}

}  // namespace tessera::model
