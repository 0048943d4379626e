// Strings and numbers of a schema: lengths, patterns, formats and bounds.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "grammar/json_parts.h"
#include "grammar/schema_document.h"

namespace tessera::grammar {

ExprId schema_string(JsonParts& parts, const Json& schema, const std::string& path);
ExprId schema_integer(JsonParts& parts, const Json& schema, const std::string& path);
ExprId schema_number(JsonParts& parts, const Json& schema, const std::string& path);
// A keyword that counts, such as maxItems; nothing if it is absent.
std::optional<int64_t> schema_count(const Budget& budget, const Json& schema, const char* keyword,
                                    const std::string& path);

}  // namespace tessera::grammar
