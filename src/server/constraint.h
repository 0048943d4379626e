// Fields that constrain the text of an answer: response_format, guided_* and tools.
// SPDX-License-Identifier: MIT
#pragma once

#include "server/json_fields.h"
#include "tessera/engine/request.h"

namespace tessera::server {

// Reads the fields and sets what they ask for. A constraint that the engine cannot keep is refused
// with status 400: text is never returned as if it had been constrained.
void read_constraint(Fields& fields, Request& request);

}  // namespace tessera::server
