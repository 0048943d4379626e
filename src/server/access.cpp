// Keys compared in constant time.
// SPDX-License-Identifier: MIT
#include "server/access.h"

#include <charconv>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::server {
namespace {

bool is_same(std::string_view key, std::string_view given) {
  size_t difference = key.size() ^ given.size();
  for (size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<size_t>(static_cast<unsigned char>(key[i % key.size()]) ^
                                      static_cast<unsigned char>(given[i]));
  }
  return difference == 0;
}

}  // namespace

std::vector<ApiKey> parse_keys(std::string_view text, std::string_view origin) {
  constexpr std::string_view kBlanks = " \t\r";
  std::vector<ApiKey> keys;
  for (size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
    if (line.empty() || line.front() == '#') continue;
    ApiKey key{.key = std::string(line.substr(0, line.find_first_of(kBlanks)))};
    line.remove_prefix(key.key.size());
    line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
    line = line.substr(0, line.find_last_not_of(kBlanks) + 1);
    const auto [end, error] =
        std::from_chars(line.data(), line.data() + line.size(), key.max_requests);
    const bool is_number = error == std::errc{} && end == line.data() + line.size();
    if (!line.empty() && (!is_number || key.max_requests < 1)) {
      fail(concat(origin, ": line ", number,
                  " has something after the key that is not a positive number of requests"));
    }
    keys.push_back(std::move(key));
  }
  if (keys.empty()) fail(concat(origin, ": has no keys; write one a line"));
  return keys;
}

std::optional<size_t> find_key(std::span<const ApiKey> keys, std::string_view authorization) {
  constexpr std::string_view kScheme = "Bearer ";
  if (!authorization.starts_with(kScheme)) return std::nullopt;
  const std::string_view given = authorization.substr(kScheme.size());
  std::optional<size_t> found;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (is_same(keys[i].key, given)) found = i;
  }
  return found;
}

bool is_own_origin(std::string_view origin, std::string_view host) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (origin.starts_with(scheme) && origin.substr(scheme.size()) == host) return true;
  }
  return false;
}

}  // namespace tessera::server
