// Scales folded into norms and linear layers.
// SPDX-License-Identifier: MIT
#include "quant_model/fold.h"

#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "model/model.h"
#include "ops/round_scales.h"
#include "tessera/core/error.h"

namespace tessera::quant {
namespace {

// What the model adds to a norm's stored weight: a random model has 1 in all.
float offset_of(const std::vector<model::TensorSpec>& specs, const std::string& name) {
  for (const model::TensorSpec& spec : specs) {
    if (spec.name.ends_with("." + name)) return 1.0f - spec.random_value.value_or(1.0f);
  }
  return 0.0f;
}

Tensor copied(const TensorView& from) {
  Tensor to(DType::f32, {from.size(0), from.size(1)});
  std::copy_n(from.as<float>(), from.num_elements(), to.view().as<float>());
  return to;
}

void divide_rows(LayerTensors& tensors, const std::string& name, int64_t first_row,
                 const std::vector<float>& by_row) {
  Tensor values = copied(tensors.at(name));
  const int64_t cols = values.view().size(1);
  for (size_t row = 0; row < by_row.size(); ++row) {
    float* at = values.view().as<float>() + (first_row + static_cast<int64_t>(row)) * cols;
    for (int64_t i = 0; i < cols; ++i) at[i] /= by_row[row];
  }
  tensors.put(name, std::move(values));
}

}  // namespace

std::vector<Fold> find_folds(const model::ModelConfig& config) {
  model::ModelConfig one = config;
  one.num_layers = 1;
  one.windowed_layers.clear();
  const auto dry = model::make_dry_model(one, {.dtype = DType::f32});
  const auto& specs = dry->weights().specs();
  const auto has = [&](std::string_view name) {
    return std::ranges::any_of(specs, [&](const model::TensorSpec& spec) {
      return spec.name == concat("model.layers.0.", name);
    });
  };
  const std::string before_attention = "input_layernorm.weight";
  const std::string before_mlp = has("pre_feedforward_layernorm.weight")
                                     ? "pre_feedforward_layernorm.weight"
                                     : "post_attention_layernorm.weight";
  if (!has(before_attention) || !has(before_mlp)) {
    fail(concat("quantize: the norms of ", config.architecture,
                " do not precede its linear layers, so that awq and smoothquant have nowhere to "
                "put their scales; use rtn or gptq"));
  }
  std::vector<Fold> folds;
  folds.push_back({.linear = "self_attn.qkv",
                   .norm = before_attention,
                   .norm_offset = offset_of(specs, before_attention)});
  const int64_t head = config.head_dim, share = config.num_heads / config.num_kv_heads;
  Fold values{.linear = "self_attn.o_proj"};
  if (has("self_attn.v_proj.weight")) {
    values.tensor = "self_attn.v_proj.weight";
  } else {
    values.tensor = "self_attn.qkv_proj.weight";
    values.first_row = (config.num_heads + config.num_kv_heads) * head;
  }
  for (int64_t i = 0; i < config.num_heads * head; ++i) {
    values.owners.push_back(static_cast<int32_t>(i / head / share * head + i % head));
  }
  folds.push_back(std::move(values));
  folds.push_back(
      {.linear = "mlp.gate_up", .norm = before_mlp, .norm_offset = offset_of(specs, before_mlp)});
  Fold up{.linear = "mlp.down_proj"};
  if (has("mlp.up_proj.weight")) {
    up.tensor = "mlp.up_proj.weight";
  } else {
    up.tensor = "mlp.gate_up_proj.weight";
    up.first_row = config.inter;
  }
  for (int64_t i = 0; i < config.inter; ++i) up.owners.push_back(static_cast<int32_t>(i));
  folds.push_back(std::move(up));
  return folds;
}

void fold_scales(const Fold& fold, const Linear& linear, DType norm_dtype,
                 std::vector<float>& scales, LayerTensors& tensors) {
  if (!fold.norm.empty()) {
    Tensor norm = copied(tensors.at(fold.norm));
    auto* weights = norm.view().as<float>();
    for (size_t i = 0; i < scales.size(); ++i) {
      const float before = weights[i] + fold.norm_offset;
      const float stored = ops::rounded_to(norm_dtype, before / scales[i] - fold.norm_offset);
      const float after = stored + fold.norm_offset;
      if (after == 0.0f || before == 0.0f) {
        scales[i] = 1.0f;
        continue;
      }
      weights[i] = stored;
      scales[i] = before / after;
    }
    tensors.put(fold.norm, std::move(norm));
  } else {
    std::vector<float> by_row;
    for (size_t i = 0; i < scales.size(); ++i) {
      const auto owner = static_cast<size_t>(fold.owners[i]);
      by_row.resize(std::max(by_row.size(), owner + 1));
      by_row[owner] = scales[i];
    }
    divide_rows(tensors, fold.tensor, fold.first_row, by_row);
    const std::string bias = fold.tensor.substr(0, fold.tensor.rfind('.')) + ".bias";
    if (tensors.has(bias)) divide_rows(tensors, bias, fold.first_row, by_row);
  }
  for (const std::string& name : linear.tensors) {
    Tensor values = copied(tensors.at(name));
    const int64_t n = values.view().size(0), k = values.view().size(1);
    for (int64_t i = 0; i < n * k; ++i) {
      values.view().as<float>()[i] *= scales[static_cast<size_t>(i % k)];
    }
    tensors.put(name, std::move(values));
  }
}

}  // namespace tessera::quant
