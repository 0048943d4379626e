// The part of a configuration that says how positions turn into angles.
// SPDX-License-Identifier: MIT
#pragma once

#include "model/config.h"
#include "model/config_fields.h"

namespace tessera::model {

// Sets rope_theta and rope_scaling, from rope_parameters or from rope_theta and rope_scaling; where
// yarn reaches further than max_positions says, max_positions too. Needs max_positions.
void read_rope(const Fields& fields, ModelConfig& config);

}  // namespace tessera::model
