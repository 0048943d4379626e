// What error messages call the fields of requests and options.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace tessera {

// A C++ caller knows a field as "max_new_tokens", a user of the command line by its flag, a client
// of a server by its JSON key. `name` translates; without it fields go by their C++ names.
struct FieldNames {
  std::function<std::string(std::string_view field)> name = {};

  std::string operator()(std::string_view field) const {
    return name ? name(field) : std::string(field);
  }
  // "stop[2]"; a translated name stands for all elements.
  std::string element(std::string_view field, size_t index) const {
    return name ? name(field) : std::string(field) + "[" + std::to_string(index) + "]";
  }
  // "request: " in front of fields that go by their C++ names; nothing in front of others.
  std::string prefix(std::string_view owner) const {
    return name ? std::string() : std::string(owner) + ": ";
  }
};

}  // namespace tessera
