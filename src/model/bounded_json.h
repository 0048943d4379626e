// JSON from untrusted files: bounded in depth, with no duplicate keys.
// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tessera::model {

// Deeper than any file of a checkpoint, and shallow enough for code that recurses.
inline constexpr int kMaxJsonDepth = 16;

// Refuses text that is not JSON, contains NUL, nests deeper than kMaxJsonDepth, or repeats a key
// within an object. The message is one line; it begins with `origin` and shows the text around the
// mistake.
nlohmann::json parse_json(std::string_view text, std::string_view origin);

// A value for a message, escaped and cut as shown() does with text.
std::string shown_value(const nlohmann::json& value);

}  // namespace tessera::model
