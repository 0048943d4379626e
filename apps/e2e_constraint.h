// What masks cost: a workload with and without a JSON schema that every sequence is held to.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/e2e.h"

namespace tessera::apps {

struct ConstraintCost {
  E2eResult plain;
  E2eResult held;
  int64_t num_masks = 0;
  double mask_seconds = 0;  // of the engine's thread, all masks together
  int64_t num_wasted_rows = 0;

  // The extra time of all decode steps with the constraint, over their time without it.
  double share() const;
};

// Runs passes with and without the constraint in turns, on one engine that has a tokenizer. Refuses
// if a sequence ends early.
ConstraintCost measure_constraint(Engine& engine, const E2eShape& shape, int num_warmup,
                                  int num_repeats);

nlohmann::ordered_json constraint_json(const ConstraintCost& cost);
std::string constraint_text(const nlohmann::ordered_json& json);  // of constraint_json

}  // namespace tessera::apps
