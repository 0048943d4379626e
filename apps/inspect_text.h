// The page that `tessera inspect` prints for people, from the object it prints for programs.
// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tessera::apps {

std::string inspect_text(const nlohmann::ordered_json& json);

}  // namespace tessera::apps
