// JSON as every verb prints it.
// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tessera::apps {

// Ends with a newline. Paths may not be UTF-8 but JSON must be, so invalid bytes become U+FFFD. An
// indent of -1 gives one line.
inline std::string json_text(const nlohmann::ordered_json& json, int indent = 1) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace tessera::apps
