// Engines over a model that is in memory already: tests, and benches with random weights; and on
// which device a model can run.
// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>

#include "model/config.h"
#include "model/weights.h"
#include "tessera/engine/engine.h"

namespace tessera::engine {

// Refuses a device that is not there, or that lacks a kernel the model needs, naming it.
void check_device(const model::ModelConfig& config, const EngineOptions& options);
// The first GPU, if there is one and it has kernels for all that the model needs in these types;
// else the CPU. What options.device says does not count.
Device choose_device(const model::ModelConfig& config, const EngineOptions& options);

std::unique_ptr<Engine> make_engine(const model::ModelConfig& config, model::LlamaWeights weights,
                                    std::optional<Tokenizer> tokenizer,
                                    const EngineOptions& options);

}  // namespace tessera::engine
