// RoPE settings in both spellings of config.json, and the kinds of scaling that are supported.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <string>

#include "core/text.h"
#include "model/config.h"
#include "model/config_fields.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

constexpr double kMaxTheta = 1e12;
constexpr double kMaxFactor = 1e4;
constexpr double kMaxTurns = 1e6;  // for beta_fast and the frequency factors

double read_theta(const Fields& fields) {
  // At 1 all frequencies are equal; no model goes below.
  return fields.number_or_none("rope_theta", 1.0, kMaxTheta).value_or(10000.0);
}

int64_t read_original_positions(const Fields& fields) {
  return fields.whole("original_max_position_embeddings", 1, kMaxPositions);
}

RopeScaling read_llama3(const Fields& fields) {
  RopeScaling scaling{.kind = RopeScalingKind::llama3};
  scaling.factor = fields.number("factor", 1.0, kMaxFactor);
  scaling.low_freq_factor = fields.number("low_freq_factor", 1e-6, kMaxTurns);
  scaling.high_freq_factor = fields.number("high_freq_factor", 1e-6, kMaxTurns);
  scaling.original_max_positions = read_original_positions(fields);
  if (scaling.high_freq_factor <= scaling.low_freq_factor) {
    fields.refuse("high_freq_factor",
                  concat("above low_freq_factor, which is ", scaling.low_freq_factor));
  }
  return scaling;
}

// The YaRN paper's factor on attention scores for a context stretched `factor` times.
double attention_scale(double factor, double weight) {
  return factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

RopeScaling read_yarn(const Fields& fields, const ModelConfig& config) {
  RopeScaling scaling{.kind = RopeScalingKind::yarn};
  scaling.factor = fields.number("factor", 1.0, kMaxFactor);
  scaling.original_max_positions = fields.has("original_max_position_embeddings")
                                       ? read_original_positions(fields)
                                       : config.max_positions;
  scaling.beta_fast = fields.number_or_none("beta_fast", 1e-6, kMaxTurns).value_or(32.0);
  scaling.beta_slow = fields.number_or_none("beta_slow", 1e-6, kMaxTurns).value_or(1.0);
  if (scaling.beta_fast < scaling.beta_slow) {
    fail(concat(fields.prefix(), "beta_fast is ", scaling.beta_fast, " and beta_slow ",
                scaling.beta_slow, "; beta_fast must not be the smaller"));
  }
  scaling.attention_factor = fields.number_or_none("attention_factor", 1e-6, kMaxFactor);
  const auto mscale = fields.number_or_none("mscale", 0.0, kMaxFactor);
  const auto mscale_all_dim = fields.number_or_none("mscale_all_dim", 0.0, kMaxFactor);
  if (!scaling.attention_factor && mscale && mscale_all_dim && *mscale > 0 && *mscale_all_dim > 0) {
    scaling.attention_factor =
        attention_scale(scaling.factor, *mscale) / attention_scale(scaling.factor, *mscale_all_dim);
  }
  if (!fields.flag("truncate", true)) {
    fields.refuse("truncate", "true; other ramps are not supported");
  }
  return scaling;
}

RopeScaling read_scaling(const Fields& fields, const ModelConfig& config) {
  const char* key = fields.has("rope_type") ? "rope_type" : "type";
  const std::string kind = fields.text_or_none(key).value_or("default");
  if (kind == "default") return {};
  if (kind == "linear") {
    return {.kind = RopeScalingKind::linear, .factor = fields.number("factor", 1.0, kMaxFactor)};
  }
  if (kind == "llama3") return read_llama3(fields);
  if (kind == "yarn") return read_yarn(fields, config);
  fail(concat(fields.prefix(), key, " is '", shown(kind),
              "', which is not supported; supported are default, linear, llama3 and yarn"));
}

void refuse_partial(const Fields& fields) {
  const auto part = fields.number_or_none("partial_rotary_factor", 0.0, 1.0);
  if (part && *part != 1.0) {
    fields.refuse("partial_rotary_factor", "1; heads that rotate in part are not supported");
  }
}

}  // namespace

void read_rope(const Fields& fields, ModelConfig& config) {
  refuse_partial(fields);
  if (const auto parameters = fields.object_or_none("rope_parameters")) {
    for (const char* layer_type : {"full_attention", "sliding_attention"}) {
      if (!parameters->has(layer_type)) continue;
      fail(concat(parameters->prefix(), layer_type,
                  " is given; parameters of their own for kinds of layers are not supported"));
    }
    refuse_partial(*parameters);
    // Some files have rope_parameters but keep rope_theta at the top level.
    config.rope_theta = read_theta(parameters->has("rope_theta") ? *parameters : fields);
    config.rope_scaling = read_scaling(*parameters, config);
  } else {
    config.rope_theta = read_theta(fields);
    if (const auto scaling = fields.object_or_none("rope_scaling")) {
      config.rope_scaling = read_scaling(*scaling, config);
    }
  }
  if (config.rope_scaling.kind == RopeScalingKind::yarn) {
    if (config.rope_theta <= 1.0) {
      fail(
          concat(fields.prefix(), "rope_theta is ", config.rope_theta, "; yarn needs more than 1"));
    }
    const double reach =
        std::floor(config.rope_scaling.factor *
                   static_cast<double>(config.rope_scaling.original_max_positions));
    const double limit = static_cast<double>(kMaxPositions);
    config.max_positions =
        std::max(config.max_positions, static_cast<int64_t>(std::min(reach, limit)));
  }
}

}  // namespace tessera::model
