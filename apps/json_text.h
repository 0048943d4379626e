// JSON as every verb prints it.
// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tessera::apps {

// With the line's end. Paths need not be UTF-8, and JSON is: bytes that make no character become
// U+FFFD. An indent of -1 gives one line.
inline std::string json_text(const nlohmann::ordered_json& json, int indent = 1) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace tessera::apps
