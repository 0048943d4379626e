// The model that `tessera bench e2e` times, with its draft model if there is one, and models with
// random weights for `tessera serve --shape`.
// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "model/config.h"
#include "tessera/engine/engine.h"

namespace tessera::apps {

struct SubjectFlags {
  std::string folder = {};
  std::string shape = {};
  std::string draft_shape = {};
  bool is_repeating = false;
};

// From a folder, or a named shape with random weights.
struct Subject {
  std::string name;
  std::filesystem::path folder = {};  // empty: random weights
  model::ModelConfig config = {};
  bool is_repeating = false;
  std::optional<model::ModelConfig> draft = {};  // with random weights
};

// Refuses flags that contradict each other or `draft_folder`, the flag --draft.
Subject find_subject(const SubjectFlags& flags, const std::string& draft_folder);

// `options` are filled in. A model from a folder has its own tokenizer; random weights have the
// one that is given.
std::unique_ptr<Engine> make_subject_engine(const Subject& subject, const EngineOptions& options,
                                            std::optional<Tokenizer> tokenizer = {});

}  // namespace tessera::apps
