// Embeddings of the calibration samples.
// SPDX-License-Identifier: MIT
#include "quant_model/embed_samples.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "core/text.h"
#include "tessera/core/error.h"
#include "tessera/ops/copy.h"

namespace tessera::quant {

void embed_samples(const model::ModelConfig& config, const model::WeightSource& source,
                   const std::vector<model::TensorSpec>& specs,
                   const std::vector<std::vector<int32_t>>& samples, const LayerRunner& runner) {
  const auto length = std::ssize(samples.front());
  if (length > config.max_positions) {
    fail(concat("quantize: samples of ", length, " tokens; this model takes at most ",
                config.max_positions));
  }
  const auto spec =
      std::ranges::find(specs, std::string("model.embed_tokens.weight"), &model::TensorSpec::name);
  for (int64_t sample = 0; sample < runner.num_samples(); ++sample) {
    const Tensor rows(DType::f32, {length, config.hidden});
    for (int64_t i = 0; i < length; ++i) {
      const int32_t token = samples[static_cast<size_t>(sample)][static_cast<size_t>(i)];
      if (token < 0 || token >= config.vocab) {
        fail(concat("quantize: sample ", sample, " has token ", token, "; the model has ",
                    config.vocab));
      }
      source.read(*spec, token, 0, rows.view().slice(0, i, i + 1));
    }
    auto* values = rows.view().as<float>();
    for (int64_t i = 0; i < length * config.hidden; ++i) values[i] *= config.embedding_scale;
    const Tensor typed(runner.dtype(), {length, config.hidden});
    copy({.x = rows, .out = typed});
    copy({.x = typed.to(runner.device()), .out = runner.stream(sample)});
  }
}

}  // namespace tessera::quant
