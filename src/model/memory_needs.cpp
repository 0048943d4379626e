// Bytes of weights, activations and tables.
// SPDX-License-Identifier: MIT
#include "model/memory_needs.h"

#include <algorithm>

#include "model/chunk_plan.h"

namespace tessera::model {
namespace {

int64_t num_q(const ModelConfig& config) { return config.num_heads * config.head_dim; }
int64_t num_qkv(const ModelConfig& config) {
  return num_q(config) + 2 * config.num_kv_heads * config.head_dim;
}

}  // namespace

int64_t weight_bytes(const ModelConfig& config, DType dtype, WeightFormat format) {
  const int64_t width = bit_width(dtype) / 8;
  if (format == WeightFormat::plain) return config.num_parameters() * width;
  const int64_t q = num_q(config), qkv = num_qkv(config);
  const int64_t layer_codes =
      qkv * config.hidden + config.hidden * q + 3 * config.inter * config.hidden;
  const int64_t layer_outputs = qkv + 2 * config.hidden + 2 * config.inter;
  const int64_t head_codes = config.vocab * config.hidden;
  const int64_t num_codes = config.num_layers * layer_codes + head_codes;
  const int64_t num_outputs = config.num_layers * layer_outputs + config.vocab;
  // A tied head is counted as a parameter once, as the embedding, which stays in `dtype`.
  const int64_t num_counted = num_codes - (config.has_tied_embeddings ? head_codes : 0);
  return (config.num_parameters() - num_counted) * width + num_codes +
         num_outputs * static_cast<int64_t>(sizeof(float));
}

int64_t largest_weight_bytes(const ModelConfig& config, DType dtype, WeightFormat format) {
  const int64_t linear_rows = std::max(num_qkv(config), 2 * config.inter);
  const int64_t linear_width = format == WeightFormat::plain ? bit_width(dtype) / 8 : 1;
  return config.hidden * std::max(config.vocab * bit_width(dtype) / 8, linear_rows * linear_width);
}

int64_t rope_table_bytes(const ModelConfig& config, const BatchLimits& limits) {
  const int64_t num_positions =
      limits.max_positions > 0 ? limits.max_positions : config.max_positions;
  return storage_bytes(DType::f32, num_positions * config.head_dim);
}

int64_t activation_bytes(const ModelConfig& config, DType dtype, const BatchLimits& limits) {
  const int64_t token_width =
      2 * config.hidden + num_qkv(config) + num_q(config) + 2 * config.inter;
  const int64_t num_scratch =
      2 * scratch_sizes(limits).num_rows() * config.num_kv_heads * config.head_dim;
  return rope_table_bytes(config, limits) +
         storage_bytes(
             dtype, limits.tokens * token_width + num_scratch + 2 * limits.logits * config.hidden) +
         storage_bytes(DType::f32, limits.logits * config.vocab);
}

}  // namespace tessera::model
