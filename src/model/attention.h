// Attention over the paged cache: projections, norms of queries and keys, RoPE, the append, and
// what prompts and generated tokens each read.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "model/layers.h"
#include "tessera/ops/attention.h"

namespace tessera::model {

// Whether queries and keys are normalised before RoPE, and over what.
enum class QkNorm : uint8_t { none, heads, whole };

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
  void attend_decodes(const Heads& heads, const PagedKv& kv, Step& step) const;
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

}  // namespace tessera::model
