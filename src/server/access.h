// Who may ask: API keys and the origins of web pages.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::server {

struct ApiKey {
  std::string key;
  int64_t max_requests = 0;  // at once; 0: as many as the server takes
};

// One key a line, and after a space how many requests it may have at once. Empty lines and lines
// that begin with # are left out. Refuses a file without keys; messages do not show keys.
std::vector<ApiKey> parse_keys(std::string_view text, std::string_view origin);

// The index of the key in an Authorization header ("Bearer KEY"). The time depends on the header
// and the number of keys, never on how much of a key was right.
std::optional<size_t> find_key(std::span<const ApiKey> keys, std::string_view authorization);

// Whether `origin` is the server's own page, as the Host header names it.
bool is_own_origin(std::string_view origin, std::string_view host);

}  // namespace tessera::server
