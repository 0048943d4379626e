// A layer's attention.
// SPDX-License-Identifier: MIT
#include "model/layers.h"
#include "tessera/ops/attention_append.h"
#include "tessera/ops/kv_cache.h"

namespace tessera::model {
namespace {

// Columns [begin, begin + num_heads * head_dim) of a matrix as [rows, num_heads, head_dim].
TensorView as_heads(const TensorView& matrix, int64_t begin, int64_t num_heads, int64_t head_dim) {
  TensorView heads = matrix.slice(1, begin, begin + num_heads * head_dim);
  heads.rank = 3;
  heads.shape = {matrix.size(0), num_heads, head_dim};
  heads.strides = {matrix.stride(0), head_dim, 1};
  return heads;
}

// A contiguous matrix as rows of head_dim.
TensorView as_rows_of(const TensorView& matrix, int64_t head_dim) {
  return TensorView::contiguous(matrix.data, matrix.dtype,
                                {matrix.num_elements() / head_dim, head_dim}, matrix.device);
}

// Pages as the tokens they have room for, one after the other.
TensorView as_tokens(const TensorView& pages) {
  return TensorView::contiguous(pages.data, pages.dtype,
                                {pages.size(0) * pages.size(1), pages.size(2), pages.size(3)},
                                pages.device);
}

// The cache as sequences [begin, end) of the batch see it.
PagedKv sequences_of(const Batch& batch, const PagedKv& kv, int64_t begin, int64_t end) {
  PagedKv sequences = kv;
  sequences.page_table = batch.page_table.slice(0, begin, end);
  sequences.seq_lens = batch.seq_lens.slice(0, begin, end);
  if (batch.tails.rank == 1) sequences.tails = batch.tails.slice(0, begin, end);
  return sequences;
}

}  // namespace

std::vector<Linear::Output> Attention::separate_qkv(const ModelConfig& config) {
  const int64_t kv_size = config.num_kv_heads * config.head_dim;
  return {{"q_proj", config.num_heads * config.head_dim}, {"k_proj", kv_size}, {"v_proj", kv_size}};
}

std::vector<Linear::Output> Attention::fused_qkv(const ModelConfig& config, std::string_view name) {
  std::vector<Linear::Output> outputs = separate_qkv(config);
  int64_t size = 0;
  for (Linear::Output& output : outputs) {
    output.name = name;
    output.begin = size;
    size += output.size;
  }
  for (Linear::Output& output : outputs) output.of = size;
  return outputs;
}

Attention::Attention(const WeightScope& scope, const ModelConfig& config, const Options& options)
    : layer_(options.layer),
      num_heads_(scope.weights().share("num_heads", config.num_heads)),
      num_kv_heads_(scope.weights().share("num_kv_heads", config.num_kv_heads)),
      head_dim_(config.head_dim),
      window_(config.window_of(options.layer)),
      scale_(config.attention_scale),
      softcap_(config.attention_softcap),
      norm_(options.norm) {
  qkv_ = Linear::by_outputs(scope, "qkv", options.qkv, config.hidden, config.has_qkv_bias);
  if (norm_ != QkNorm::none) {
    const bool by_head = norm_ == QkNorm::heads;
    const Norm::Options norm{.eps = config.norm_eps};
    q_norm_ = Norm(scope, "q_norm", by_head ? head_dim_ : config.num_heads * head_dim_, norm);
    k_norm_ = Norm(scope, "k_norm", by_head ? head_dim_ : config.num_kv_heads * head_dim_, norm);
  }
  output_ = Linear::by_inputs(scope, "o_proj", config.hidden, config.num_heads * head_dim_,
                              config.has_output_bias);
}

void Attention::forward(const LinearInput& x, const TensorView& out, Step& step) const {
  const Arena::Scope scope(step.arena);
  output_.forward_sum(attend(x, step), out, step);
}

void Attention::add_to(Stream& stream, const Norm& norm, Step& step) const {
  const Arena::Scope scope(step.arena);
  output_.add_to(stream, attend(norm.defer(stream, inputs(), step), step), step);
}

Attention::Heads Attention::project(const LinearInput& x, Step& step) const {
  const int64_t q_size = num_heads_ * head_dim_, kv_size = num_kv_heads_ * head_dim_;
  const TensorView qkv = step.take(q_size + 2 * kv_size);
  qkv_.forward(x, qkv, {}, step);
  Heads heads{.q = as_heads(qkv, 0, num_heads_, head_dim_),
              .k = as_heads(qkv, q_size, num_kv_heads_, head_dim_),
              .v = as_heads(qkv, q_size + kv_size, num_kv_heads_, head_dim_),
              .out = as_heads(step.take(q_size), 0, num_heads_, head_dim_)};
  if (norm_ == QkNorm::heads) normalise_heads(qkv, heads, step);
  if (norm_ == QkNorm::whole) {
    const TensorView q = normalise_whole(qkv.slice(1, 0, q_size), q_norm_, step);
    const TensorView k = normalise_whole(qkv.slice(1, q_size, q_size + kv_size), k_norm_, step);
    heads.q = as_heads(q, 0, num_heads_, head_dim_);
    heads.k = as_heads(k, 0, num_kv_heads_, head_dim_);
  }
  return heads;
}

// rms_norm takes rows that are evenly spaced, which those of q alone are not: they are heads of
// tokens that lie a whole row of qkv apart. So it normalises every head of q, k and v with each
// weight, and the results that nobody reads cost less than copies would.
void Attention::normalise_heads(const TensorView& qkv, Heads& heads, Step& step) const {
  const TensorView by_q = step.take(qkv.size(1)), by_k = step.take(qkv.size(1));
  const TensorView rows = as_rows_of(qkv, head_dim_);
  q_norm_.forward(rows, as_rows_of(by_q, head_dim_), step.ctx);
  k_norm_.forward(rows, as_rows_of(by_k, head_dim_), step.ctx);
  heads.q = as_heads(by_q, 0, num_heads_, head_dim_);
  heads.k = as_heads(by_k, num_heads_ * head_dim_, num_kv_heads_, head_dim_);
}

// The norm is over all heads, so ranks that share them exchange theirs first.
TensorView Attention::normalise_whole(const TensorView& part, const Norm& norm, Step& step) const {
  const int64_t num_ranks = step.communicator.size(), size = part.size(1);
  if (num_ranks == 1) {
    norm.forward(part, part, step.ctx);
    return part;
  }
  const TensorView all = step.take(num_ranks * size);
  step.communicator.all_gather_columns(part, all, step.ctx);
  norm.forward(all, all, step.ctx);
  return all.slice(1, step.communicator.rank() * size, (step.communicator.rank() + 1) * size);
}

// Generated tokens go to the decode kernel, chunks of prompts to the prefill kernel, which may
// round differently. The batch says which is which, so a token takes the same path whatever else a
// step computes.
TensorView Attention::attend(const LinearInput& x, Step& step) const {
  const Heads heads = project(x, step);
  const PagedKv kv = step.kv.layer(layer_);
  const bool is_decode = step.batch.num_decodes == step.batch.num_tokens();
  if (step.is_fused && is_decode && !step.batch.has_drafts) {
    append_and_attend(heads, kv, step);
  } else {
    append(heads, kv, step);
    if (step.batch.num_decodes > 0) attention_decode(decodes_of(heads, kv, step), step.ctx);
    attend_chunks(heads, kv, step);
  }
  return TensorView::contiguous(heads.out.data, heads.out.dtype,
                                {heads.out.size(0), num_heads_ * head_dim_}, heads.out.device);
}

// Keys that a chunk's first group had before this step: appending may overwrite them.
void Attention::keep_tails(const PagedKv& kv, Step& step) const {
  const Batch& batch = step.batch;
  PagedKv tails = sequences_of(batch, kv, batch.num_decodes, batch.batch());
  tails.page_table = tails.page_table.slice(1, 0, 1);  // less than a page
  tails.seq_lens = batch.tail_lens;
  // The values it reads beside them go to rows that no page table names.
  kv_gather({.kv = tails,
             .starts = batch.exact_starts,
             .k = as_tokens(step.chunk_k),
             .v = as_tokens(step.chunk_v)},
            step.ctx);
}

// Rotates q and k, and stores k and v.
KvAppendArgs Attention::tokens_of(const Heads& heads, const PagedKv& kv, const Step& step) {
  const Batch& batch = step.batch;
  return {.k = heads.k,
          .v = heads.v,
          .slots = batch.slots,
          .k_pages = kv.k_pages,
          .v_pages = kv.v_pages,
          .k_scales = kv.k_scales,
          .v_scales = kv.v_scales,
          .k_tail = kv.k_tail,
          .tail_slots = batch.tail_slots,
          .rope = KvRope{.q = heads.q, .positions = batch.positions, .table = step.angles}};
}

void Attention::append(const Heads& heads, const PagedKv& kv, Step& step) const {
  const Batch& batch = step.batch;
  const bool keeps_exact = batch.exact_slots.rank == 1 && batch.num_decodes < batch.batch();
  if (keeps_exact) keep_tails(kv, step);
  kv_append(tokens_of(heads, kv, step), step.ctx);
  if (!keeps_exact) return;
  kv_append({.k = heads.k,  // rotated by the call before
             .v = heads.v,
             .slots = batch.exact_slots,
             .k_pages = step.chunk_k,
             .v_pages = step.chunk_v},
            step.ctx);
}

DecodeAttentionArgs Attention::decodes_of(const Heads& heads, const PagedKv& kv,
                                          const Step& step) const {
  const Batch& batch = step.batch;
  const int64_t num_decodes = batch.num_decodes;
  return {.q = heads.q.slice(0, 0, num_decodes),
          .kv = sequences_of(batch, kv, 0, num_decodes),
          .out = heads.out.slice(0, 0, num_decodes),
          .scale = scale_,
          .window = window_,
          .softcap = softcap_,
          .longest = batch.longest_decode,
          .shares_pages = batch.shares_pages};
}

// A step without chunks. It began with a copy to the device, which nothing after it overtakes: all
// that the batch says and all older tokens are there before any kernel of the step.
void Attention::append_and_attend(const Heads& heads, const PagedKv& kv, Step& step) const {
  attention_append({.append = tokens_of(heads, kv, step),
                    .decode = decodes_of(heads, kv, step),
                    .is_settled = true},
                   step.ctx);
}

void Attention::attend_chunks(const Heads& heads, const PagedKv& kv, Step& step) const {
  const Batch& batch = step.batch;
  const int64_t num_decodes = batch.num_decodes, num_tokens = batch.num_tokens();
  if (num_decodes == batch.batch()) return;
  if (step.chunk_k.rank > 0) {
    for (const ChunkPass& pass : batch.passes) attend_gathered(pass, heads, kv, step);
    return;
  }
  attention_prefill({.q = heads.q.slice(0, num_decodes, num_tokens),
                     .k = kv.k_pages,
                     .v = kv.v_pages,
                     .out = heads.out.slice(0, num_decodes, num_tokens),
                     .scale = scale_,
                     .mask = mask(),
                     .softcap = softcap_,
                     .q_starts = batch.chunk_starts,
                     .kv_lens = batch.seq_lens.slice(0, num_decodes, batch.batch()),
                     .k_page_table = batch.page_table.slice(0, num_decodes, batch.batch())},
                    step.ctx);
}

void Attention::attend_gathered(const ChunkPass& pass, const Heads& heads, const PagedKv& kv,
                                Step& step) const {
  const int64_t begin = pass.first_sequence, end = begin + pass.num_sequences;
  kv_gather({.kv = sequences_of(step.batch, kv, begin, end),
             .starts = pass.gather_starts,
             .k = as_tokens(step.chunk_k),
             .v = as_tokens(step.chunk_v)},
            step.ctx);
  const int64_t first = pass.first_token, last = first + pass.num_tokens;
  attention_prefill({.q = heads.q.slice(0, first, last),
                     .k = step.chunk_k,
                     .v = step.chunk_v,
                     .out = heads.out.slice(0, first, last),
                     .scale = scale_,
                     .mask = mask(),
                     .softcap = softcap_,
                     .q_starts = pass.q_starts,
                     .kv_lens = pass.kv_lens,
                     .k_page_table = pass.k_table,
                     .v_page_table = pass.v_table},
                    step.ctx);
}

}  // namespace tessera::model
