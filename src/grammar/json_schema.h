// JSON schemas as rules.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string_view>

#include "grammar/rules.h"

namespace tessera::grammar {

// Every text of the rule is JSON that the schema accepts; docs/structured_output.md says which of
// them can be generated. Refuses, with the place in the schema, keywords that are not supported.
RuleId compile_schema(Rules& rules, std::string_view text, int32_t max_whitespace);
// Any JSON object.
RuleId compile_json_object(Rules& rules, int32_t max_whitespace);

}  // namespace tessera::grammar
