// Lines of the log: one JSON object each.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "server/json_fields.h"

namespace tessera::server {

// {"time": "2026-01-31T12:00:00.123Z", "event": ..., and the fields of `more`.
std::string log_line(std::string_view event, Json more);

}  // namespace tessera::server
