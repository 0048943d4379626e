// Engines over a model that is in memory already: tests, and benches with random weights.
// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>

#include "model/config.h"
#include "model/weights.h"
#include "tessera/engine/engine.h"

namespace tessera::engine {

std::unique_ptr<Engine> make_engine(const model::ModelConfig& config, model::LlamaWeights weights,
                                    std::optional<Tokenizer> tokenizer,
                                    const EngineOptions& options);

}  // namespace tessera::engine
