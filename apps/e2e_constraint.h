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

  // By how much the steps of all tokens take longer, as a share of those without a constraint.
  double share() const;
};

// Both in turns on one engine, which has a tokenizer. Refuses if a sequence ends early.
ConstraintCost measure_constraint(Engine& engine, const E2eShape& shape, int num_warmup,
                                  int num_repeats);

nlohmann::ordered_json constraint_json(const ConstraintCost& cost);
std::string constraint_text(const nlohmann::ordered_json& json);  // of constraint_json

}  // namespace tessera::apps
