// JSON from files that nobody vouches for: bounded in size and depth, and no key twice.
// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tessera::model {

// Deeper than any file of a checkpoint nests, and shallow enough for code that recurses.
inline constexpr int kMaxJsonDepth = 16;

// Refuses what is not JSON, holds NUL, nests deeper than kMaxJsonDepth, or repeats a key of one
// object. The message begins with `origin`, shows the text around the mistake, and is one line.
nlohmann::json parse_json(std::string_view text, std::string_view origin);

// A value as messages show it: as shown() does text.
std::string shown_value(const nlohmann::json& value);

}  // namespace tessera::model
